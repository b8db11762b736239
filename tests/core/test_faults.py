"""The one broad catch: whatever is raised in steering stays behind its boundary."""

from __future__ import annotations

import pytest

from it2nb.core.ballast import frameless
from it2nb.core.control import StopTraining
from it2nb.core.faults import Fault, guard
from tests.core.driving import Loop
from tests.core.test_policy import made


class Mute(Exception):
    """Can't say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Panic(BaseException):
    """As a Rust extension raises it: no Exception."""


def test_an_exception_that_has_no_text_is_caught_as_any_other() -> None:
    with guard("setter of lr") as fault:
        raise Mute
    assert fault.error == "Mute: (its text can't be read: RuntimeError)"
    assert "Mute" in fault.traceback
    twin = frameless(Mute(), "where it was")
    assert twin.__notes__ == ["where it was"]


def test_a_report_that_has_no_text_is_dropped_too() -> None:
    def report(fault: Fault) -> None:
        raise Mute

    with guard("setter of lr", report) as fault:
        raise ValueError("first")
    assert fault.error.startswith("ValueError: first (and its report failed: Mute")


def test_what_is_no_exception_is_caught_unless_it_ends_a_training() -> None:
    with guard("setter of lr") as fault:
        raise Panic("index out of range")
    assert fault.error == "Panic: index out of range"
    for error in (StopTraining, KeyboardInterrupt, SystemExit, GeneratorExit):
        with pytest.raises(error), guard("setter of lr"):
            raise error
        with guard("a thread of ours", passes=()) as fault:
            raise error
        assert fault.kind == error.__name__


@pytest.mark.parametrize("error", [Mute, Panic])
def test_a_setter_that_raises_such_a_thing_is_a_failed_request(error: type[BaseException]) -> None:
    _, session = made()

    def broken(value: float) -> None:
        raise error

    session.register_knob("odd", lambda: 0.1, broken, min=0.0, max=1.0)
    loop = Loop(session)
    handle = session.set("odd", 0.5)
    loop.advance()
    assert handle.result(5).status == "failed"
    loop.advance()
    loop.finish()
    assert session.status == "finished"
