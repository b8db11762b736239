"""Train a workflow untouched, with a rule, and with the scripted agent, over some seeds.

    python -m scripts.workflow_seeds layerwise --steps 150

Writes the goal at the end of each run into docs/workflow_seeds.json; scripts.workflow_tables
makes a table of it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import it2nb
from it2nb.workflows.audit import scores
from it2nb.workflows.base import Workflow
from it2nb.workflows.countdown import Countdown
from it2nb.workflows.digits import Digits
from it2nb.workflows.layerwise import LayerwiseGPT
from it2nb.workflows.muon import MuonGPT

FILE = Path(__file__).resolve().parent.parent / "docs" / "workflow_seeds.json"
#: A workflow and the knob that is steered.
KNOBS: dict[str, tuple[type[Workflow], str]] = {
    "digits": (Digits, "lr"),
    "layerwise": (LayerwiseGPT, "lr"),
    "muon": (MuonGPT, "muon.lr"),
    "countdown": (Countdown, "lr"),
}
WHO = ("nobody", "rule", "scripted agent")


def train(flow: Workflow, knob: str, who: str, seed: int) -> dict[str, Any]:
    """Do one run; return the goal at its end and how many requests were applied."""
    with tempfile.TemporaryDirectory() as folder:
        session = it2nb.TrainingSession(
            flow.goal, directory=folder, title=who, snapshots=False, resources_every_s=3600
        )
        every = flow.evaluate_every
        if who == "rule":
            session.attach(it2nb.rule(
                f"no improvement of {flow.goal.metric} by 2 % in {2 * every} steps: "
                f"{knob} x 0.5, at most 3 times, cooldown {2 * every}"
            ))  # fmt: skip
        if who == "scripted agent":
            session.attach(it2nb.ScriptedAgent(knob, every=every), blocking=True)
        flow.run(session, seed=seed)
        record = it2nb.open(session.path or "")
        row = scores(record).iloc[-1]
        applied = int((record.requests()["status"] == "applied").sum())
        return {"last": float(row["last"]), "best": float(row["best"]), "applied": applied}


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("workflow", choices=KNOBS)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    told = parser.parse_args(arguments)
    kind, knob = KNOBS[told.workflow]
    flow: Workflow = kind(told.scale, steps=told.steps)
    found: dict[str, list[dict[str, Any]]] = {
        who: [train(flow, knob, who, seed) for seed in told.seeds] for who in WHO
    }
    everything = json.loads(FILE.read_text()) if FILE.exists() else {}
    everything[told.workflow] = {
        "steps": told.steps, "scale": told.scale, "seeds": told.seeds,
        "metric": flow.goal.metric, "direction": flow.goal.direction, "runs": found,
    }  # fmt: skip
    FILE.write_text(json.dumps(everything, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
