"""How much slower a small GPT trains on two ranks when it is steered.

Two processes under torchrun train it with DistributedDataParallel over gloo. The steering is
switched off on both for every other stretch of as many updates as lie between two meetings.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts.bench.measured import Measured

ROOT = Path(__file__).resolve().parents[2]
#: Updates of a stretch: one meeting of the ranks where they meet at every tenth.
STRETCH = 10
#: Control points from one meeting to the next; None lets rank 0 choose.
EVERY = (10, None)
WARM_UP = 2


def measure(quick: bool) -> list[Measured]:
    """Train on two ranks, once for each way to meet."""
    found = []
    for every in EVERY:
        with tempfile.TemporaryDirectory() as folder:
            command = [
                sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", __file__, folder,
                str(every or ""), str(4 if quick else 80),
            ]  # fmt: skip
            environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=900)
            found += [Measured(**each) for each in json.loads(Path(folder, "told").read_text())]
    return found


def worker(folder: Path, every: int | None, pairs: int) -> None:
    """Train on this rank; rank 0 writes what the rank measured where it2nb does more."""
    import torch
    import torch.distributed as dist

    import it2nb
    from scripts.bench import small_gpt
    from scripts.bench.switch import SNAPSHOTS_EVERY, Snapshots, Switch, told

    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    gpt = small_gpt.gpt()
    model = torch.nn.parallel.DistributedDataParallel(gpt)
    optimizer = small_gpt.adamw(model)
    windows = small_gpt.windows(1000, seed=dist.get_rank())

    def update(at: int) -> torch.Tensor:
        loss = small_gpt.loss(model, windows[(at * 7 + torch.arange(small_gpt.ROWS)) % 1000])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    session = it2nb.TrainingSession(
        title="bench", directory=folder, snapshots={"every": SNAPSHOTS_EVERY},
        distributed={"check_every": every},
    )  # fmt: skip
    session.bind(gpt, optimizers=[optimizer])
    with session.run(), Snapshots() as snapshots:
        switch = snapshots.switch = Switch(optimizer, [(session, ["step"])], clock=time.thread_time)
        # Off, on, on, off: what drifts meets both alike.
        turns = [True] * WARM_UP + [at % 4 in (1, 2) for at in range(2 * pairs)]
        for number, on in enumerate(turns):
            dist.barrier()  # by the wall clock a stretch takes as long as on the slower rank
            switch.turn(on)
            for at in range(STRETCH):
                loss = update(number * STRETCH + at)
                if on:
                    session.step({"loss": loss})
        switch.end()
    chosen: list[Any] = [getattr(session.gate, "_distance", None)]
    dist.broadcast_object_list(chosen)
    k = f"check every {every} steps" if every else f"check as rank 0 chooses (every {chosen[0]})"
    what = f"{small_gpt.WHAT} on 2 ranks, {k}"
    aside = "processor time on the busier rank, without snapshots and without waits for the other"
    rows = told(what, switch, snapshots, 1.0, WARM_UP, STRETCH, aside)
    shared: list[Any] = [None, None]
    dist.all_gather_object(shared, [asdict(each) for each in rows])
    if dist.get_rank() == 0:
        busier = max(shared, key=lambda rows: rows[1]["value"])
        Path(folder, "told").write_text(json.dumps(busier))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    worker(Path(sys.argv[1]), int(sys.argv[2]) if sys.argv[2] else None, int(sys.argv[3]))
