"""What a control point costs on two ranks: python -m scripts.bench_ranks.

Two processes under torchrun take steps that do nothing, so that everything that is measured is
the control point. Prints one line of JSON; ``--raw`` prints nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

STEPS = 3_000


def worker(out: Path) -> None:
    """Measure on this rank; rank 0 writes the numbers of both."""
    import torch.distributed as dist

    import it2nb

    dist.init_process_group("gloo")
    rank = dist.get_rank()
    found: dict[str, Any] = {}
    cases: list[tuple[str, Any]] = [("alone", False)]
    cases += [(f"every_{k}", {"check_every": k}) for k in (1, 10, 100)] + [("auto", True)]
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
    if rank == 0:
        out.write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def measure(repeats: int = 3) -> dict[str, float]:
    """Mean cost of a control point, microseconds, on the slower rank; the median of repeats."""
    runs: list[dict[str, float]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "numbers.json"
            command = [
                sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0",
                __file__, "--worker", str(out),
            ]  # fmt: skip
            root = str(Path(__file__).parents[1])
            environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
            subprocess.run(command, env=environment, check=True, capture_output=True, timeout=300)
            runs.append(json.loads(out.read_text()))
    return {
        f"ranks_{name}_us": round(statistics.median(run[name] for run in runs), 2)
        for name in runs[0]
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--raw", action="store_true", help="only the line of JSON")
    given = parser.parse_args()
    if given.worker is not None:
        worker(given.worker)
        return
    numbers = measure(given.repeats)
    if not given.raw:
        print("microseconds a control point on two ranks, mean, on the slower one:")
    print(json.dumps(numbers))


if __name__ == "__main__":
    main()
