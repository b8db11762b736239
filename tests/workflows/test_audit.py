"""The questions to a journal, asked of a file alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import it2nb
from it2nb.core.errors import It2nbError
from it2nb.core.opened import OpenedJournal
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.workflows.audit import asked, goal_of, outcomes, scores


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> OpenedJournal:
    """Two rounds of a training whose goal is its knob; a person and a rule ask."""
    session = it2nb.TrainingSession(
        it2nb.Goal("val_loss"), directory=tmp_path_factory.mktemp("runs"), title="toy", context="c"
    )
    session.attach(it2nb.rule("at 5: size x 0.5"))

    def train(session: Session, ctx: object) -> None:
        values = {"size": 8.0}
        session.register_knob(
            "size", lambda: values["size"], lambda v: values.update(size=v), min=0, max=10
        )
        for step in range(1, 11):
            session.step({"loss": values["size"]}, step=step)
            if step == 2:
                session.submit(
                    Action(type="set_knob", payload={"name": "size", "value": 99}, actor="anna"),
                    source="panel",
                )
                session.submit(
                    Action(type="set_knob", payload={"name": "size", "value": "a"}), source="panel"
                )
            if step % 2 == 0:
                session.report_eval({"val_loss": values["size"]})

    session.run_rounds(train, 2)
    return it2nb.open(session.path or "")


def test_the_goal_is_in_the_journal(record: OpenedJournal) -> None:
    assert goal_of(record) == it2nb.Goal("val_loss", "min")


def test_a_run_without_rounds_tells_its_goal_too(tmp_path: Path) -> None:
    session = it2nb.TrainingSession("accuracy", title="t")
    with session.run():
        session.step({"accuracy": 0.5})
    assert goal_of(it2nb.open(session.path or "")) == it2nb.Goal("accuracy", "max")
    silent = it2nb.TrainingSession(title="t")
    with silent.run():
        silent.step({"loss": 1.0})
    with pytest.raises(It2nbError, match="tells of no goal"):
        goal_of(it2nb.open(silent.path or ""))


def test_who_asked_for_what(record: OpenedJournal) -> None:
    found = asked(record).set_index(["source", "actor"])
    assert found.loc[("panel", "anna"), "clamped"] == 2
    assert found.loc[("panel", ""), "rejected"] == 2
    assert set(found.index.get_level_values("source")) == {"panel", "rule"}


def test_what_was_applied_stands_beside_the_goal_before_and_after(record: OpenedJournal) -> None:
    found = outcomes(record)
    first = found[found["round"] == 0]
    assert first["name"].tolist() == ["size", "size"]
    assert first["goal_before"].tolist() == [8.0, 10.0]
    assert first["goal_next"].tolist() == [10.0, 5.0]
    assert first["goal_last"].tolist() == [5.0, 5.0]
    assert first["helped"].tolist() == [False, True]


def test_scores_are_by_round(record: OpenedJournal) -> None:
    found = scores(record)
    assert found["round"].tolist() == [0, 1]
    assert found["evaluations"].tolist() == [5, 5]
    assert found["best"].tolist() == found["last"].tolist() == [5.0, 5.0]
    assert found["best_step"].tolist() == [6, 6]
    assert not any(map(math.isnan, found["first"]))


def test_no_request_is_an_empty_table(tmp_path: Path) -> None:
    session = it2nb.TrainingSession("loss")
    with session.run():
        session.step({"loss": 1.0})
    record = it2nb.open(session.path or "")
    assert len(asked(record)) == len(outcomes(record)) == 0


def test_a_path_a_session_and_its_journal_are_asked_the_same(tmp_path: Path) -> None:
    session = it2nb.TrainingSession(it2nb.Goal("val_loss"), directory=tmp_path)
    session.attach(it2nb.rule("at 1: size x 0.5"))
    values = {"size": 8.0}
    session.register_knob(
        "size", lambda: values["size"], lambda v: values.update(size=v), min=0, max=10
    )
    with session.run():
        for _ in range(3):
            session.step({"val_loss": values["size"]})
    assert session.path is not None
    others: list[Any] = [session.journal, session.path, str(session.path)]
    first = session
    for other in others:
        assert goal_of(other) == goal_of(first)
        for ask in (asked, outcomes, scores):
            assert ask(other).to_dict() == ask(first).to_dict()
    assert len(outcomes(first)) == 1
