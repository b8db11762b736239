"""Write docs/arena.md: controllers against each other on the digits.

    python -m scripts.arena_report                 # five seeds, healthy and with three faults
    python -m scripts.arena_report --minutes 30 --steps 500

What is not begun before the time is over is left out, and the page says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pandas as pd
import torch

from it2nb.contest import NAMES, Arena, Budget, arena
from it2nb.workflows.faults import FAULTS, faulty

PAGE = Path(__file__).resolve().parent.parent / "docs" / "arena.md"
FIRST, LAST = "<!-- results -->", "<!-- end of results -->"


def table(found: Arena) -> str:
    """Write a summary as a table."""
    lines = [
        f"| controller | {found.metric} ({found.direction}) | better than none | rounds that "
        "improved | seconds | tokens | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in found.summary().to_dict("records"):
        better = "–"
        if not pd.isna(row["p_better"]):
            better = f"{row['p_better']:.2f} [{row['p_low']:.2f}, {row['p_high']:.2f}]"
        lines.append(
            f"| {row['controller']} | {row['score']:.4f} [{row['low']:.4f}, {row['high']:.4f}] "
            f"| {better} | {row['improved']:.1f} | {row['wall_s']:.1f} | {row['tokens']} "
            f"| {row['failed']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--faults", nargs="*", default=["healthy", *FAULTS], metavar="NAME")
    parser.add_argument("--minutes", type=float, default=5.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    parts: list[str] = []
    left_out: list[str] = []
    took = 0.0
    for fault in given.faults:
        spent = time.monotonic() - began
        if spent + took > given.minutes * 60:
            left_out.append(fault)
            continue
        workflow = faulty(
            None if fault == "healthy" else fault,
            "laptop", steps=given.steps, evaluate_every=max(1, given.steps // 6),
        )  # fmt: skip
        found = arena(workflow, NAMES, range(given.seeds), Budget(given.rounds))
        took = time.monotonic() - began - spent
        parts.append(f"### {fault}\n\n{table(found)}\n")
        errors = found.frame()["error"].dropna().unique()
        parts += [f"An error: `{each}`\n" for each in errors[:3]]
        sys.stderr.write(f"{fault}: {took:.0f} s\n")
    words = " ".join(sys.argv[1:])
    said = f"`python -m scripts.arena_report {words}`".replace(" `", "`")
    about = (
        f"Made by {said} in {(time.monotonic() - began) / 60:.1f} minutes on one busy CPU core: "
        f"{given.seeds} seeds, {given.steps} steps a round, {given.rounds} rounds for each "
        f"controller and seed."
    )
    if left_out:
        about += f" The time was over before {', '.join(left_out)}."
    text = PAGE.read_text()
    head, tail = text.partition(FIRST)[0], text.partition(LAST)[2]
    PAGE.write_text(f"{head}{FIRST}\n{about}\n\n" + "\n".join(parts) + f"\n{LAST}{tail}")


if __name__ == "__main__":
    main()
