"""What a control point costs on two ranks, which meet at every k-th.

Two processes under torchrun take steps that do nothing, so that all that is measured is the
control point; the store through which they meet is a third process's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.bench.measured import Measured, middle

ROOT = Path(__file__).resolve().parents[2]
STEPS = 3_000
#: Control points from one meeting of the ranks to the next; None lets rank 0 choose.
EVERY = (10, None, 1)


def measure(quick: bool) -> list[Measured]:
    """Start the two processes some times; the mean of a control point in each."""
    runs = [_run() for _ in range(3 if quick else 9)]
    found = []
    for every in EVERY:
        value, low, high = middle([run[str(every)] for run in runs])
        how, delay = (
            ("as rank 0 chooses", "about 50 ms")
            if every is None
            else (f"every {every} steps", f"up to {every} steps")
            if every > 1
            else ("every step", "for the end of the step")
        )
        # What is promised is for k = 10; the others show what k buys.
        goal = 100.0 if every == 10 else None
        what = f"mean cost per control point on 2 ranks, check {how}"
        note = f"on the slower rank, {STEPS} control points; a request waits {delay}"
        beside: dict[str, float | str] = {"one rank": middle([run["alone"] for run in runs])[0]}
        found.append(Measured(what, value, "us", goal, low, high, beside, note))
    return found


def _run() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "numbers.json"
        command = [
            sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
            "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", __file__, str(out),
        ]  # fmt: skip
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
        found: dict[str, float] = json.loads(out.read_text())
        return found


def worker(out: Path) -> None:
    """Measure on this rank; rank 0 writes the larger number of both, microseconds."""
    import torch.distributed as dist

    import it2nb

    dist.init_process_group("gloo")
    found: dict[str, float] = {}
    cases: list[tuple[str, Any]] = [("alone", False)]
    cases += [(str(k), True if k is None else {"check_every": k}) for k in EVERY]
    for name, distributed in cases:
        session = it2nb.TrainingSession(directory=None, distributed=distributed)
        metrics = {"loss": 1.0}
        with session.run():
            for _ in range(200):
                session.step(metrics)
            dist.barrier()
            began = time.perf_counter()
            for _ in range(STEPS):
                session.step(metrics)
            spent = (time.perf_counter() - began) / STEPS * 1e6
        shared: list[Any] = [None, None]
        dist.all_gather_object(shared, spent)
        found[name] = max(shared)
        dist.barrier()
    if dist.get_rank() == 0:
        out.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    worker(Path(sys.argv[1]))
