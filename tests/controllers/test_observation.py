"""Observations: what is in them, what is not, and that their cost does not grow."""

from __future__ import annotations

import json
import math
import threading
from typing import Any

import pytest

from it2nb.controllers.observation import POINTS, Observation, observe
from it2nb.core.metrics import MetricStore
from it2nb.session import TrainingSession


def session_with(count: int, steps: int = 30) -> TrainingSession:
    session = TrainingSession("val_loss", directory=None, total_steps=100, context="a test")
    for number in range(count):
        held = {"value": float(number)}
        session.register_knob(
            f"knob{number}",
            lambda held=held: held["value"],  # type: ignore[misc]
            lambda value, held=held: held.update(value=value),  # type: ignore[misc]
        )
    session.start()
    for step in range(1, steps + 1):
        session.step({"loss": 1.0 / step, "bad": math.nan})
    return session


def test_it_holds_what_a_controller_has_to_know() -> None:
    session = session_with(2)
    seen = observe(session, "agent")
    assert (seen.step, seen.round, seen.branch_id, seen.total_steps) == (30, 0, 0, 100)
    assert seen.metrics["loss"] == 1.0 / 30
    assert seen.metric_steps["loss"] == 30
    assert seen.values == {"knob0": 0.0, "knob1": 1.0}
    assert [each.name for each in seen.knobs] == ["knob0", "knob1"]
    assert "set_knob" in {each.name for each in seen.actions}
    assert (seen.context, seen.goal) == ("a test", session.goal)
    text = json.dumps(seen.describe(), allow_nan=False)
    assert '"bad": "nan"' in text
    assert json.dumps(seen.observed(["knob1", "other"]), allow_nan=False) == (
        '{"step": 30, "metrics": {"loss": 0.03333333333333333, "bad": "nan"}, '
        '"knobs": {"knob1": 1.0}}'
    )
    session.finish()


def test_what_its_source_may_not_use_is_left_out_and_a_lock_is_told() -> None:
    session = session_with(3)
    session.policy.forbid("agent", "knob0", "evaluate").hide("knob1")
    session.policy.lock("knob2", against=["agent"], reason="mine")
    seen = observe(session, "agent")
    [view] = seen.knobs
    assert (view.name, view.enabled, view.reason) == ("knob2", False, "locked (mine)")
    names = {each.name for each in seen.actions}
    assert "evaluate" not in names
    assert "pause" not in names  # as by default
    assert {each.name for each in observe(session, "rule").knobs} == {"knob0", "knob2"}
    session.finish()


def test_it_stays_what_it_was_when_the_run_goes_on() -> None:
    session = session_with(1)
    seen = observe(session, "agent")
    session.set("knob0", 5.0)
    for _ in range(170):
        session.step({"loss": 100.0})
    assert seen.values == {"knob0": 0.0}
    assert seen.knobs[0].value == 0.0
    assert len(seen.history["loss"]) == 30
    assert seen.history["loss"][-1] == (30, 1.0 / 30)
    session.finish()


def test_a_history_reaches_into_the_branch_that_it_came_from() -> None:
    session = session_with(0, steps=10)
    session.fork_branch(5, "undo of set_knob lr")
    session.step({"loss": 7.0})
    seen = observe(session, "agent")
    assert [step for step, _ in seen.history["loss"]] == [1, 2, 3, 4, 5, 6]
    assert seen.history["loss"][-1] == (6, 7.0)
    session.finish()


def test_a_budget_says_what_is_left() -> None:
    session = session_with(0)
    session.policy.budget("agent", tokens=100, cost=2.0)
    session.policy.spend("agent", tokens=30, cost=2.5)
    assert dict(observe(session, "agent").budget) == {"tokens": 70.0, "cost": 0.0}
    assert dict(observe(session, "rule").budget) == {}
    session.finish()


def test_knobs_that_cannot_be_read_are_left_out() -> None:
    session = session_with(1)

    def broken() -> Any:
        raise OSError("gone")

    session.register_knob("broken", broken, lambda value: None)
    seen = observe(session, "agent")
    assert list(seen.values) == ["knob0"]
    assert [each.enabled for each in seen.knobs] == [True, False]
    session.finish()


@pytest.fixture(scope="module")
def long_run() -> TrainingSession:
    """A run of a million steps, of which only the metrics are real."""
    session = session_with(12, steps=0)
    session.pump()
    steps = 1_000_000
    store = MetricStore()
    rows = _rows(steps)
    store.extend(("loss", "val_loss", "acc", "grad"), rows, branch_id=0, round=0)
    session.metrics = store
    session._step = steps
    return session


def _rows(steps: int) -> Any:
    import numpy as np

    rows = np.empty((steps, 6))
    rows[:, 0] = rows[:, 1] = np.arange(1, steps + 1)
    rows[:, 2:] = np.random.default_rng(0).random((steps, 4))
    return rows


def test_its_history_is_bounded_however_long_the_run(long_run: TrainingSession) -> None:
    seen = observe(long_run, "agent")
    for points in seen.history.values():
        assert 16 <= len(points) <= POINTS
        assert points[-1][0] == 1_000_000
        assert [step for step, _ in points] == sorted(step for step, _ in points)


def test_looking_touches_no_more_at_step_a_million_than_at_step_ten(
    long_run: TrainingSession,
) -> None:
    """Counted in calls, so that no clock has to be trusted."""
    short = session_with(12, steps=0)
    for step in range(10):
        short.step(dict.fromkeys(("loss", "val_loss", "acc", "grad"), float(step)))
    calls = _calls(lambda: observe(short, "agent"))
    assert _calls(lambda: observe(long_run, "agent")) <= calls + 5  # where the row lies
    short.finish()


def _calls(function: Any) -> int:
    import sys

    count = 0

    def seen(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def test_what_is_made_later_is_made_once_and_on_any_thread() -> None:
    session = session_with(1)
    seen = observe(session, "agent")
    kept: list[Any] = []
    thread = threading.Thread(target=lambda: kept.append(list(seen.knobs)))
    thread.start()
    thread.join(20)
    assert kept == [list(seen.knobs)]
    assert seen.knobs[0] is seen.knobs[0]
    assert seen.knobs[0:1] == [seen.knobs[0]]
    assert repr(seen.history).startswith("{'loss'")
    assert len(seen.actions) == len(list(seen.actions))
    session.finish()


def test_one_can_be_made_by_hand() -> None:
    seen = Observation(step=3, metrics={"loss": 1.0})
    assert seen.observed() == {"step": 3, "metrics": {"loss": 1.0}}
    assert seen.describe()["knobs"] == []
