"""Measure the main memory of each workflow at its peak, each in a process of its own.

    python -m scripts.workflow_memory

A shortened run at laptop sizes: weights, optimizers, data, one evaluation and the snapshots that
undo needs are all there after it. The peak halfway is kept beside the one at the end, to see that
it grows no more. Writes docs/workflow_memory.json; scripts.workflow_tables makes a table of it.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "docs" / "workflow_memory.json"
#: Steps of the shortened run.
STEPS = 40
#: What a workflow must not need more of at laptop scale, bytes.
LIMIT = 8 * 10**9
#: `ru_maxrss` is in KiB, on macOS in bytes.
UNIT = 1 if sys.platform == "darwin" else 1024


def measure(name: str, scale: str, steps: int) -> dict[str, Any]:
    """Run a workflow in a process of its own; return its steps and peaks in bytes."""
    code = "import sys; from scripts.workflow_memory import train; train(*sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", code, name, scale, str(steps)],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def train(name: str, scale: Any, steps: str) -> None:
    """Do one run in this process and print its peaks."""
    import it2nb
    from scripts.workflow_seeds import COMPARED

    count = int(steps)
    flow = COMPARED[name][0](scale, steps=count, evaluate_every=count // 2)
    peaks: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        session = it2nb.TrainingSession(flow.goal, directory=folder, title=name)
        # The first evaluation comes after the middle step's control point: one step later.
        session.every(count // 2 + 1, lambda _: peaks.append(peak()))
        flow.run(session, seed=1)
    print(json.dumps({"scale": scale, "steps": count, "half": peaks[0], "peak": peak()}))


def peak() -> int:
    """Return the largest resident size of this process so far, bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    from scripts.workflow_seeds import COMPARED

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args(arguments)
    found = {name: measure(name, asked.scale, asked.steps) for name in COMPARED}
    FILE.write_text(json.dumps(found, indent=1) + "\n")
    for name, each in found.items():
        print(f"{name}: {each['peak'] / 1e9:.2f} GB, {each['half'] / 1e9:.2f} halfway")
    return int(any(each["peak"] > LIMIT for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
