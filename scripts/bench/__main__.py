"""Measure, print the table, write the result.

    python -m scripts.bench                 all of it, some ten minutes on a quiet machine
    python -m scripts.bench --quick         few repetitions
    python -m scripts.bench --only requests,journal
    python -m scripts.bench --readme        and put the table into README.md
    python -m scripts.bench --table         only that, from the result of the last run

Each measure has a process of its own. The result is docs/bench.json; the table says the load of
the machine, and a table from a busy one is worth little.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from scripts.bench import table

MEASURES = ("control_points", "requests", "memory", "switched_off", "slow_down", "trainers",
            "gpt_lightning", "gpt_ranks", "ranks", "widgets", "journal", "imports", "first_cell",
            "controllers", "browser", "panels")  # fmt: skip
#: One thread each: PyTorch's own only get in the way of what is measured.
QUIET = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def main() -> None:
    """Parse the line and do as it says."""
    parser = argparse.ArgumentParser(prog="python -m scripts.bench")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=table.RESULT)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        _one(asked.one, asked.quick)
        return
    if not asked.table:
        names = [name for name in asked.only.split(",") if name] or list(MEASURES)
        asked.out.write_text(json.dumps(_all(names, asked.quick), indent=1) + "\n")
    result = json.loads(asked.out.read_text())
    print(table.markdown(result))
    if asked.readme or asked.table:
        table.write(result)


def _all(names: list[str], quick: bool) -> dict[str, Any]:
    result: dict[str, Any] = {"machine": table.machine(), "quick": quick, "lines": []}
    for name in names:
        print(f"  {name}", file=sys.stderr, flush=True)
        load = os.getloadavg()[0]
        line = [sys.executable, "-m", "scripts.bench", "--one", name]
        ran = subprocess.run(
            line + ["--quick"] * quick, env={**os.environ, **QUIET}, check=False,
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        if ran.returncode:
            result["lines"].append({"what": f"{name} did not finish", "load": load})
            continue
        told = json.loads(ran.stdout.splitlines()[-1])
        result["lines"] += [{**each, "load": round(load, 2)} for each in told]
    return result


def _one(name: str, quick: bool) -> None:
    measure = importlib.import_module(f"scripts.bench.{name}").measure
    found = [{**asdict(each), "meets": each.meets} for each in measure(quick)]
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
