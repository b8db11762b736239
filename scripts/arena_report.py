"""Write docs/arena.md: controllers against each other on the digits.

    python -m scripts.arena_report                 # five seeds, healthy and with three faults
    python -m scripts.arena_report --minutes 30 --steps 500

What would not be done before the time is over is not begun, and the page says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pandas as pd
import torch

from it2nb.contest import NAMES, Arena, Budget, arena
from it2nb.controllers.llm import LLMAgent
from it2nb.workflows.faults import FAULTS, faulty
from scripts.arena_model import PRICES, RECIPE, says
from tests.controllers.endpoint import Endpoint

PAGE = Path(__file__).resolve().parent.parent / "docs" / "arena.md"
FIRST, LAST = "<!-- results -->", "<!-- end of results -->"


def table(found: Arena) -> str:
    """Write a summary as a table."""
    lines = [
        f"| controller | {found.metric} ({found.direction}) | better than none | rounds that "
        "improved | steps | seconds | tokens | money | failed |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    steps = found.frame().groupby("controller")["steps"].mean()
    for row in found.summary().to_dict("records"):
        better = "–"
        if not pd.isna(row["p_better"]):
            better = f"{row['p_better']:.2f} [{row['p_low']:.2f}, {row['p_high']:.2f}]"
        lines.append(
            f"| {row['controller']} | {row['score']:.4f} [{row['low']:.4f}, {row['high']:.4f}] "
            f"| {better} | {row['improved']:.1f} | {steps[row['controller']]:,.0f} "
            f"| {row['wall_s']:.1f} | {row['tokens']:,} | {row['cost']:.4f} | {row['failed']} |"
        )
    return "\n".join(lines)


def play(fault: str, given: argparse.Namespace, url: str) -> Arena:
    """Let all controllers train the digits with one fault."""
    workflow = faulty(
        None if fault == "healthy" else fault,  # type: ignore[arg-type]
        "laptop", steps=given.steps, evaluate_every=max(1, given.steps // 6),
    )  # fmt: skip

    def agent(seed: int) -> LLMAgent:
        return LLMAgent("scripted", base_url=url, prices=PRICES, every=max(1, given.steps // 5))

    entries = {**{name: name for name in NAMES}, "llm": agent}
    return arena(workflow, entries, range(given.seeds), Budget(given.rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--faults", nargs="*", default=["healthy", *FAULTS], metavar="NAME")
    parser.add_argument("--minutes", type=float, default=25.0)
    given = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    # What is loaded once is no part of anybody's seconds.
    arena(faulty(None, "ci", steps=20, evaluate_every=10), ("none", "optuna"), 1, 2)
    parts: list[str] = []
    left_out: list[str] = []
    took = 0.0
    with Endpoint(says) as endpoint:
        for fault in given.faults:
            spent = time.monotonic() - began
            if spent + took > given.minutes * 60:
                left_out.append(fault)
                continue
            found = play(fault, given, endpoint.url)
            took = time.monotonic() - began - spent
            parts.append(f"### {fault}\n\n{table(found)}\n")
            errors = found.frame()["error"].dropna().unique()
            parts += [f"An error: `{each}`\n" for each in errors[:3]]
            sys.stderr.write(f"{fault}: {took:.0f} s\n")
        asked = len(endpoint.asked)
    words = " ".join(sys.argv[1:])
    said = f"`python -m scripts.arena_report {words}`".replace(" `", "`")
    about = (
        f"Made by {said} in {(time.monotonic() - began) / 60:.1f} minutes on one busy CPU core: "
        f"{given.seeds} seeds, {given.steps} steps a round, {given.rounds} rounds for each "
        f"controller and seed.\n\n"
        f"`llm` is an `it2nb.LLMAgent` without a model: it talks over HTTP to the chat-completions "
        f"server of the tests, which answers from a script ({RECIPE}). Its rows measure the "
        f"plumbing, the count of tokens and the account of money ({asked:,} requests, at made-up "
        f"prices of {PRICES['input']:g} and {PRICES['output']:g} a million tokens in and out), and "
        f"no model's skill. Tokens and money are of all seeds together."
    )
    if left_out:
        about += f" The time was over before {', '.join(left_out)}."
    text = PAGE.read_text()
    head, tail = text.partition(FIRST)[0], text.partition(LAST)[2]
    PAGE.write_text(f"{head}{FIRST}\n{about}\n\n" + "\n".join(parts) + f"\n{LAST}{tail}")


if __name__ == "__main__":
    main()
