"""Train workflows untouched, with a rule, and with the scripted agent, over some seeds.

    python -m scripts.workflow_seeds                 # all of them, about 40 minutes of one core
    python -m scripts.workflow_seeds layerwise --steps 150

Writes the goal at the end of each run into docs/workflow_seeds.json as it comes;
scripts.workflow_tables makes a table of it. Rule and agent are set in one way for all workflows
and were not tuned on what came out.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import it2nb
from it2nb.workflows.audit import scores
from it2nb.workflows.base import Workflow
from it2nb.workflows.countdown import Countdown
from it2nb.workflows.digits import Digits
from it2nb.workflows.hf import HFSentiment
from it2nb.workflows.layerwise import LayerwiseGPT
from it2nb.workflows.mixing import SentimentMixing
from it2nb.workflows.muon import MuonGPT

FILE = Path(__file__).resolve().parent.parent / "docs" / "workflow_seeds.json"
#: A workflow, the knob that is steered, the steps of a run, and evaluations of it, evenly spread.
COMPARED: dict[str, tuple[type[Workflow], str, int, int]] = {
    "hf": (HFSentiment, "lr", 72, 12),
    "mixing": (SentimentMixing, "lr", 72, 12),
    "countdown": (Countdown, "lr", 36, 12),
    "muon": (MuonGPT, "muon.lr", 240, 24),
    "layerwise": (LayerwiseGPT, "lr", 240, 24),
    "digits": (Digits, "lr", 780, 12),
}
WHO = ("nobody", "rule", "scripted agent")
#: Evaluations that have to bring something, and how much, else the rate is halved; how often.
PATIENCE, TOLERANCE, MAX_CUTS = 2, 0.02, 3


def steered_by(who: str, session: it2nb.TrainingSession, flow: Workflow, knob: str) -> None:
    """Attach a rule or an agent; both cut the rate on the same plateau."""
    assert flow.goal.metric is not None
    every = flow.evaluate_every
    wait = PATIENCE * every
    if who == "rule":
        session.attach(it2nb.rule(
            f"no improvement of {flow.goal.metric} by {TOLERANCE:.0%} in {wait} steps: "
            f"{knob} x 0.5, at most {MAX_CUTS} times, cooldown {wait}"
        ))  # fmt: skip
    if who == "scripted agent":
        agent = it2nb.ScriptedAgent(
            knob, every=every, patience=wait, tolerance=TOLERANCE, max_drops=MAX_CUTS
        )
        session.attach(agent, blocking=True)


def train(flow: Workflow, knob: str, who: str, seed: int) -> dict[str, Any]:
    """Do one run; return the goal at its end and how many requests were applied."""
    with tempfile.TemporaryDirectory() as folder:
        session = it2nb.TrainingSession(
            flow.goal, directory=folder, title=who, snapshots=False, resources_every_s=3600
        )
        steered_by(who, session, flow, knob)
        flow.run(session, seed=seed)
        record = it2nb.open(session.path or "")
        row = scores(record).iloc[-1]
        applied = int((record.requests()["status"] == "applied").sum())
        return {"last": float(row["last"]), "best": float(row["best"]), "applied": applied}


def compare(name: str, steps: int, scale: Any, seeds: list[int]) -> dict[str, Any]:
    """Do all runs of one workflow, seed by seed."""
    kind, knob, _, evaluations = COMPARED[name]
    flow = kind(scale, steps=steps, evaluate_every=max(1, steps // evaluations))
    found: dict[str, list[dict[str, Any]]] = {who: [] for who in WHO}
    for seed in seeds:
        for who in WHO:
            began = time.monotonic()
            found[who].append(train(flow, knob, who, seed))
            took_s = time.monotonic() - began
            print(f"{name}, seed {seed}, {who}: {found[who][-1]}, {took_s:.0f} s", flush=True)
    return {
        "steps": steps, "evaluate_every": flow.evaluate_every, "knob": knob, "scale": scale,
        "seeds": seeds, "metric": flow.goal.metric, "direction": flow.goal.direction,
        "runs": found,
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workflow", nargs="*", help=f"of {', '.join(COMPARED)}; all by default")
    parser.add_argument("--steps", type=int, help="of a run, in the place of its own number")
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    told = parser.parse_args(arguments)
    unknown = set(told.workflow) - set(COMPARED)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(COMPARED)}")
    for name in told.workflow or COMPARED:
        found = compare(name, told.steps or COMPARED[name][2], told.scale, told.seeds)
        everything = json.loads(FILE.read_text()) if FILE.exists() else {}
        everything[name] = found
        ordered = {each: everything[each] for each in COMPARED if each in everything}
        FILE.write_text(json.dumps(ordered, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
