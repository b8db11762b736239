"""A knob whose loop writes over it: told, so that "applied" is not all that is said (C01, C05)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from it2nb.core.session import Session


def _run(
    turn: Callable[[dict[str, Any], int], Any],
    steps: int = 60,
    asks: Callable[[Session, int], Any] = lambda session, step: (
        session.submit({"type": "set_knob", "payload": {"name": "clip", "value": 0.5}})
        if step == 3
        else None
    ),
) -> tuple[Session, list[dict[str, Any]]]:
    values: dict[str, Any] = {"clip": 0.1}
    session = Session(directory=None)
    session.register_knob(
        "clip", lambda: values["clip"], lambda v: values.update(clip=v), min=0.0, max=1.0
    )
    with session.run():
        for step in range(1, steps + 1):
            turn(values, step)
            asks(session, step)
            session.step({"clip": values["clip"]})
    drifts = session.journal.tail(1_000, ("knob_drifted",))
    return session, [each.payload for each in drifts]


def test_C05_a_value_that_the_loop_puts_back_is_told_and_warned_of() -> None:
    session, rows = _run(lambda values, step: values.update(clip=0.1))
    assert rows == [
        {"name": "clip", "before": 0.5, "expected": 0.5, "found": 0.1, "by": "the loop",
         "after_step": 3}
    ]  # fmt: skip
    (warning,) = session.warnings
    assert warning.startswith("clip was set to 0.5 after step 3, and what was there before, 0.1")


def test_C05_one_that_is_put_back_once_an_epoch_is_told_too() -> None:
    session, rows = _run(lambda values, step: step % 20 or values.update(clip=0.1))
    assert [row["found"] for row in rows] == [0.1] and len(session.warnings) == 1


def test_what_the_loop_works_out_from_it_is_a_row_and_no_warning() -> None:
    session, rows = _run(lambda values, step: values.update(clip=values["clip"] * 0.9))
    assert [row["found"] for row in rows] == [0.45] and not session.warnings


def test_a_value_that_stands_and_one_that_was_asked_for_again_are_no_drift() -> None:
    def asks(session: Session, step: int) -> None:
        if step in (3, 7):
            value = 0.5 if step == 3 else 0.1
            session.submit({"type": "set_knob", "payload": {"name": "clip", "value": value}})
        if step == 12:
            session.submit({"type": "batch", "payload": {"set": {"clip": 0.3}}})

    session, rows = _run(lambda values, step: None, asks=asks)
    assert rows == [] and not session.warnings


def test_a_value_that_can_not_be_read_any_more_tells_nothing() -> None:
    session, rows = _run(lambda values, step: step != 4 or values.update(clip="text"), steps=9)
    assert rows == [] and session.status == "finished"
