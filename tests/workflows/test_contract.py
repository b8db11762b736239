"""What every workflow keeps: knobs with bounds and words, evaluation on schedule, a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import it2nb
from it2nb.core.comparison import Verdict
from it2nb.session import TrainingSession
from it2nb.workflows.base import Workflow
from it2nb.workflows.countdown import Countdown
from it2nb.workflows.digits import Digits
from it2nb.workflows.layerwise import LayerwiseGPT
from it2nb.workflows.mixing import SentimentMixing
from it2nb.workflows.muon import MuonGPT

#: A workflow, and two knobs of it with other values.
CASES: dict[type[Workflow], dict[str, Any]] = {
    Digits: {"lr": 1e-3, "shift": 1},
    SentimentMixing: {"weight/tweets": 3.0, "class/neutral": 2.0},
    LayerwiseGPT: {"lr[block.0]": 1e-4, "lr": 2e-3},
    MuonGPT: {"muon.momentum": 0.9, "adam.lr": 2e-3},
    Countdown: {"difficulty": 4, "kl": 0.1},
}


@dataclass
class Ran:
    flow: Workflow
    session: TrainingSession
    asked: dict[str, Any]
    verdict: Verdict


@pytest.fixture(scope="module", params=CASES, ids=lambda each: each.name)
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Run a workflow at ci scale, steered at each turn, and replay the recording."""
    kind: type[Workflow] = request.param
    folder = tmp_path_factory.mktemp(kind.name)
    flow = kind("ci", steps=6, evaluate_every=3)
    options: dict[str, Any] = {"snapshots": {"every": 1, "max_share": 1.0}, "directory": folder}
    session = TrainingSession(title=flow.name, **options)
    asked: dict[str, Any] = {}
    script: dict[int, Callable[[], Any]] = {
        2: lambda: [
            asked.update({name: session.set(name, value)}) for name, value in CASES[kind].items()
        ],
        4: lambda: asked.setdefault("undo", session.do("undo")),
        5: lambda: asked.setdefault("evaluate", session.do("evaluate")),
    }

    def steer(_: Any) -> None:
        if session.step_count in script:
            script.pop(session.step_count)()

    session.every(1, steer)
    flow.run(session, seed=7)
    replay = it2nb.replay(session.path or "")
    flow.run(TrainingSession(replay=replay, **options))
    return Ran(flow, session, asked, replay.verify())


def test_a_steered_run_is_replayed_to_the_bit(ran: Ran) -> None:
    assert ran.verdict, str(ran.verdict)
    assert ran.verdict.state == "equal"
    assert ran.session.branch_id == 1


def test_its_knobs_take_what_was_asked_for(ran: Ran) -> None:
    results = {name: handle.result(0) for name, handle in ran.asked.items()}
    assert {name: each.status for name, each in results.items()} == dict.fromkeys(
        results, "applied"
    )
    for name, value in CASES[type(ran.flow)].items():
        assert results[name].after == pytest.approx(value)
    assert ran.flow.goal.metric in results["evaluate"].data


def test_every_knob_says_what_it_is_within_which_bounds(ran: Ran) -> None:
    for view in ran.session.knobs.views():
        assert view.description, view.name
        if view.dtype in ("float", "int"):
            assert view.min is not None, view.name
            assert view.max is not None, view.name


def test_it_evaluates_on_schedule(ran: Ran) -> None:
    frame = ran.session.metrics.frame().dropna(subset=[ran.flow.goal.metric])
    assert {3, 5, 6} <= set(frame["step"])
    assert ran.session.status == "finished"


def test_it_says_what_it_needs(ran: Ran) -> None:
    for scale in ("ci", "laptop", "paper"):
        needs = type(ran.flow)(scale).requirements()
        assert needs.minutes > 0
        assert (needs.gpu_gib > 0 and needs.hub != ()) == (
            scale == "paper" and ran.flow.name != "digits"
        )
