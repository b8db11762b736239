"""A loss that is no number any more is told of in a plain loop as well (C44)."""

from __future__ import annotations

import math
from typing import Any

import pytest

import it2nb
from it2nb.core.session import Session
from tests.core.driving import until


def notes(session: Session) -> list[str]:
    rows = session.journal.tail(1000, ("note",))
    return [each.payload["text"] for each in rows if each.payload["level"] == "warning"]


def run(losses: list[Any], name: str = "loss", guard: Any = None) -> Session:
    session = Session(directory=None)
    if guard is not None:
        session.guard(guard)
    with session.run():
        for loss in losses:
            session.step({name: loss})
    return session


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_the_first_step_of_it_is_named_c44(odd: float) -> None:
    session = run([0.5, 0.4, odd, math.nan, math.nan])
    assert session.warnings == [f"non-finite loss at step 3: {odd!r}"]
    assert notes(session) == session.warnings


def test_it_is_told_while_the_run_goes_on_and_once_c44() -> None:
    session = Session(directory=None)
    with session.run():
        session.step({"loss": 1.0})
        session.step({"loss": math.nan})
        until(lambda: bool(session.warnings))
        for _ in range(3):
            session.step({"loss": math.nan})
            session.odd_loss.look()
    assert notes(session) == ["non-finite loss at step 2: nan"]


def test_finite_losses_and_other_metrics_are_left_alone_c44() -> None:
    assert run([0.5, 0.4]).warnings == []
    assert run([0.5, math.nan], name="val_loss").warnings == []


def test_a_guard_tells_of_it_by_itself_c44() -> None:
    session = run([0.5, math.nan, math.nan], guard=it2nb.NonFinite("loss"))
    assert len(notes(session)) == len(set(notes(session))) <= 1
    assert len(session.journal.tail(1000, ("guard_tripped",))) == 1
