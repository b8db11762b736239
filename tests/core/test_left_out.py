"""What is given and not taken, or watched and never there: told once, and never an error."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from it2nb.core import opened
from it2nb.core.errors import It2nbError, JournalError
from it2nb.core.guards import NonFinite, Spike
from it2nb.core.rounds import Plan
from it2nb.core.session import Session
from it2nb.core.wire import Action


def made(**options: Any) -> Session:
    return Session(directory=None, **options)


def notes(session: Session) -> list[str]:
    rows = session.journal.since(0)
    return [r.payload["text"] for r in rows if r.type == "note"]


# --- values that are no numbers -----------------------------------------------------------------


def test_a_value_that_is_no_number_is_told_of_once_for_each_name() -> None:
    session = made()
    for _ in range(3):
        session.step(
            {"ok": 1.0, "loss": torch.zeros(3), "name": "abc", "n": None, "vals": [1, 2],
             "parts": {"a": 1}, "one": torch.tensor([2.0])}
        )  # fmt: skip
    said = notes(session)
    assert len(said) == 5
    for name, what in (
        ("loss", "a Tensor of shape (3,)"), ("name", "'abc', a text"), ("n", "None"),
        ("vals", "[1, 2], a list"), ("parts", "{'a': 1}, a dict"),
    ):  # fmt: skip
        (text,) = [each for each in said if f"metric '{name}'" in each]
        assert f"left out: {what}" in text
        assert "a number or a zero-dimensional tensor" in text
    assert session.warnings == said
    assert session.metrics.names() == ["ok", "one"]


@pytest.mark.parametrize("metrics", [5, 0, [1.0], torch.zeros(3), "loss"])
def test_metrics_that_are_no_mapping_are_told_of_once(metrics: Any) -> None:
    session = made()
    for _ in range(3):
        session.step(metrics)
    (text,) = notes(session)
    assert "is no mapping; they are a mapping of names to numbers" in text
    assert session.step_count == 3


def test_no_metrics_are_no_fault() -> None:
    session = made()
    for metrics in (None, {}, {"loss": 1.0}, {}):
        session.step(metrics)
    assert notes(session) == []


def test_ever_new_names_do_not_fill_the_journal() -> None:
    session = made()
    for step in range(80):
        session.step({"loss": 1.0, f"text{step}": "a"})
    assert len(notes(session)) == 50


# --- metrics that never come --------------------------------------------------------------------


def test_a_guard_of_a_misspelt_metric_is_told_of_once() -> None:
    session = made()
    session.guard(Spike("los"))
    session.guard(NonFinite())
    for _ in range(49):
        session.step({"loss": 1.0})
    assert notes(session) == []
    for _ in range(60):
        session.step({"loss": 1.0})
    session.end()
    (text,) = notes(session)
    assert "the guard Spike waits for it; did you mean 'loss'?" in text


def test_a_goal_that_comes_seldom_is_missed_at_the_end_alone() -> None:
    session = made(goal="val_loss")
    for _ in range(120):
        session.step({"loss": 1.0})
    assert notes(session) == []
    session.end()
    (text,) = notes(session)
    assert "no metric 'val_loss' was recorded in this run: the goal" in text


def test_what_came_late_is_not_missed() -> None:
    session = made(goal="val_loss")
    session.guard(Spike("val_loss"))
    for _ in range(120):
        session.step({"loss": 1.0})
    session.step({"val_loss": 1.0})
    session.end()
    assert notes(session) == []


# --- evaluators ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ("good", "evaluate is 'good', a text"), ({"acc": 0.5, "name": "x"}, "name is 'x', a text"),
        (None, "the evaluator returned None"), ([1, 2], "evaluate is [1, 2], a list"),
    ],
)  # fmt: skip
def test_an_evaluator_without_numbers_is_told_of_in_the_result(found: Any, said: str) -> None:
    session = made()
    session.on_evaluate(lambda: found)
    handle = session.submit(Action(type="evaluate"))
    session.step({"loss": 1.0})
    result = handle.result(0)
    assert result.status == "applied"
    assert said in (result.reason or "")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (torch.tensor(0.25), ", 0.25"), (torch.tensor([0.25]), ", 0.25"), (0.25, ", 0.25"),
        ({"acc": torch.tensor([[0.25]])}, ", acc 0.25"),
    ],
)  # fmt: skip
def test_the_line_of_an_evaluation_shows_its_number(found: Any, said: str) -> None:
    session = made()
    session.on_evaluate(lambda: found)
    handle = session.submit(Action(type="evaluate"))
    session.step({"loss": 1.0})
    assert handle.result(0).reason is None
    assert str(handle.result(0)).endswith(said)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [None, 3, ""])
def test_what_is_no_path_is_not_opened(path: Any) -> None:
    with pytest.raises(JournalError, match="is no path"):
        opened.open(path)


def test_a_goal_that_the_baseline_lacks_is_told_of() -> None:
    import it2nb

    session = it2nb.TrainingSession("val_los", directory=None)

    def train(session: Any, ctx: Any) -> None:
        session.step({"val_loss": 1.0})

    session.goal = it2nb.Goal("val_los", "min")
    session.run_rounds(train, 1)
    assert any("was not recorded in round 0" in each for each in notes(session))
    assert any("did you mean 'val_loss'" in each for each in notes(session))


class Planner:
    name = "mine"

    def __init__(self, needs_goal: bool) -> None:
        self.needs_goal = needs_goal

    def plan(self, ctx: Any) -> Plan:
        return Plan()


def test_a_planner_that_needs_a_goal_does_not_begin_without_one() -> None:
    import it2nb

    trained: list[int] = []

    def train(session: Any, ctx: Any) -> None:
        trained.append(ctx.round)
        session.step({"loss": 1.0})

    session = it2nb.TrainingSession(directory=None)
    session.attach(Planner(needs_goal=True))
    with pytest.raises(It2nbError, match="plans rounds by the goal, and this session has none"):
        session.run_rounds(train, 2)
    assert trained == []
    session = it2nb.TrainingSession(directory=None)
    session.attach(Planner(needs_goal=False))
    session.run_rounds(train, 2)
    assert trained == [0, 1]
