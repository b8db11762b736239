"""Write the tables of docs/workflows.md from the recorded journals and measurements.

    python -m scripts.workflow_tables

A test fails when the page is not what this writes.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import it2nb
from it2nb.recorded import RecordedRun
from it2nb.workflows.audit import asked, goal_of, outcomes, scores
from it2nb.workflows.recorded import hashes, path_of
from scripts import workflow_memory, workflow_seeds
from scripts.workflow_seeds import MAX_CUTS, PATIENCE, TOLERANCE, WHO

PAGE = Path(__file__).resolve().parent.parent / "docs" / "workflows.md"
MARKED = re.compile(r"(<!-- tables -->\n).*?(<!-- end -->)", re.DOTALL)


def tables() -> str:
    """Return all tables as text."""
    runs = {name: it2nb.open(path_of(name)) for name in sorted(hashes())}
    live = {name: run for name, run in runs.items() if not name.endswith("-rounds")}
    return "\n".join(
        [
            "### Steered while they trained\n",
            *_live(live),
            "",
            "### What was changed, and how the goal stood around it\n",
            *_changes(live),
            "",
            "### Rounds: untouched, then planned by the scripted agent\n",
            *_rounds({name: run for name, run in runs.items() if name not in live}),
            "",
            *_seeds(json.loads(workflow_seeds.FILE.read_text())),
            *_memory(json.loads(workflow_memory.FILE.read_text())),
        ]
    )


def page() -> str:
    """Return the page with fresh tables."""
    text = PAGE.read_text()
    return MARKED.sub(lambda found: found[1] + "\n" + tables() + "\n" + found[2], text)


def _live(runs: dict[str, RecordedRun]) -> Iterator[str]:
    yield "| run | steps | requests | of them applied | goal | first | best | last |"
    yield "|---|---|---|---|---|---|---|---|"
    for name, run in runs.items():
        found, counts = scores(run), asked(run)
        done = sum(int(counts[each].sum()) for each in ("applied", "clamped") if each in counts)
        total = len(run.requests())
        goal = goal_of(run)
        steps = int(run.metrics.frame()["step"].max())
        row = found.iloc[-1]
        yield (
            f"| {name} | {steps} | {total} | {done} | `{goal.metric}` ({goal.direction}) "
            f"| {row['first']:.4f} | {row['best']:.4f} at step {int(row['best_step'])} "
            f"| {row['last']:.4f} |"
        )


def _changes(runs: dict[str, RecordedRun]) -> Iterator[str]:
    yield "| run | step | source | actor | knob | before | after | goal before | goal next |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for name, run in runs.items():
        for row in outcomes(run).to_dict("records"):
            actor = row["actor"] if isinstance(row["actor"], str) else ""
            yield (
                f"| {name} | {row['step']} | {row['source']} | {actor} | `{row['name']}` "
                f"| {_short(row['before'])} | {_short(row['after'])} "
                f"| {_short(row['goal_before'])} | {_short(row['goal_next'])} |"
            )


def _rounds(runs: dict[str, RecordedRun]) -> Iterator[str]:
    yield "| rounds of | goal | untouched | planned | the best planned one |"
    yield "|---|---|---|---|---|"
    for name, run in runs.items():
        goal, last = goal_of(run), list(scores(run)["last"])
        best = goal.best(last[1:])
        verdict = "none"
        if best is not None:
            verdict = "is better" if goal.better(best, last[0]) else "is not better"
        yield (
            f"| {name.removesuffix('-rounds')} | `{goal.metric}` ({goal.direction}) "
            f"| {last[0]:.4f} | {', '.join(f'{each:.4f}' for each in last[1:])} | {verdict} |"
        )


def _seeds(told: dict[str, Any]) -> Iterator[str]:
    yield "### Untouched, with a rule, with the scripted agent\n"
    yield (
        "Shortened runs at laptop sizes, from `python -m scripts.workflow_seeds`. Rule and agent "
        f"halve one learning rate, at most {MAX_CUTS} times, when the last {PATIENCE} evaluations "
        f"made the goal better by less than {TOLERANCE * 100:g} %, and wait for {PATIENCE} more "
        "after each cut; the agent also cuts to a third what got much worse. They are set in the "
        "same way for all workflows. The two language models evaluate twice as often as the "
        "others: with 12 evaluations in 300 steps muon's loss fell by more than that to the end, "
        "and nobody asked for anything. Nothing was tuned on whether it helps.\n"
    )
    yield (
        "In a cell: the mean of the goal at the end over the seeds, its range, and how many "
        "requests were applied in all; where none was, the runs are those of nobody, to the bit. "
        "Below: by how much a mean is better (+) or worse (-) than nobody's, beside the range "
        "that the seeds alone make.\n"
    )
    yield f"| workflow | steps | evaluations | seeds | knob | goal | {' | '.join(WHO)} |"
    yield f"|---|---|---|---|---|---|{'---|' * len(WHO)}"
    for name, each in told.items():
        cells = []
        for who in WHO:
            last = [run["last"] for run in each["runs"][who]]
            mean, applied = sum(last) / len(last), sum(run["applied"] for run in each["runs"][who])
            cells.append(f"{mean:.4f} ({min(last):.4f} to {max(last):.4f}), {applied} applied")
        yield (
            f"| {name} | {each['steps']} | {each['steps'] // each['evaluate_every']} "
            f"| {len(each['seeds'])} | `{each['knob']}` "
            f"| `{each['metric']}` ({each['direction']}) | {' | '.join(cells)} |"
        )
    yield ""
    yield f"| workflow | {' | '.join(WHO[1:])} | range of {WHO[0]}'s |"
    yield f"|---|{'---|' * len(WHO)}"
    for name, each in told.items():
        ends = {who: [run["last"] for run in each["runs"][who]] for who in WHO}
        sign = -1 if each["direction"] == "min" else 1
        means = {who: sum(values) / len(values) for who, values in ends.items()}
        gains = [f"{sign * (means[who] - means[WHO[0]]):+.4f}" for who in WHO[1:]]
        yield f"| {name} | {' | '.join(gains)} | {max(ends[WHO[0]]) - min(ends[WHO[0]]):.4f} |"
    yield ""


def _memory(told: dict[str, Any]) -> Iterator[str]:
    yield "### Main memory\n"
    yield (
        "The largest resident size of a process that does a shortened run at laptop sizes, one "
        "with a session that keeps snapshots, from `python -m scripts.workflow_memory`. "
        "Everything that takes memory is there after the first evaluation: the peak halfway is "
        "beside the one at the end. A browser and a Jupyter server come on top.\n"
    )
    yield "| workflow | steps | GB halfway | GB at the end | said up front |"
    yield "|---|---|---|---|---|"
    for name, each in told.items():
        flow = workflow_seeds.COMPARED[name][0](each["scale"])
        yield (
            f"| {name} | {each['steps']} | {each['half'] / 1e9:.2f} | {each['peak'] / 1e9:.2f} "
            f"| {flow.requirements().memory_gib:g} GiB |"
        )
    yield ""


def _short(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return str(value)


def main() -> int:
    """Write the page."""
    PAGE.write_text(page())
    print(f"{PAGE.name}: tables of {len(hashes())} recorded runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
