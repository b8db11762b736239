"""What a control point costs does not grow with the run (DESIGN section 3, rule 8)."""

from __future__ import annotations

import os
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

from it2nb.core.session import Session
from it2nb.core.wire import Action

#: `make soak` goes ten times as far.
FAR = 1_000_000 if os.environ.get("IT2NB_SOAK") else 100_000


def calls_of(function: Callable[[], Any]) -> int:
    """Count the Python and C functions that a call enters: the same number on any machine."""
    count = 0

    def see(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        function()
    finally:
        sys.setprofile(None)
    return count


def test_a_control_point_enters_as_many_functions_late_in_a_run_as_early() -> None:
    cell = {"x": 0.0}
    session = Session(directory=None)
    session.register_knob("x", lambda: cell["x"], lambda v: cell.__setitem__("x", v))
    session.every(10, lambda session: None)

    def steered_step() -> None:
        session.submit(
            Action(type="set_knob", payload={"name": "x", "value": cell["x"] + 1.0}, id=new())
        )
        session.step({"loss": 1.0})

    def new() -> str:
        return f"request-{session.step_count:012d}"

    with session.run():
        while session.step_count < 1_000:
            session.step({"loss": 1.0})
        steered_step()
        early = sorted(calls_of(steered_step) for _ in range(15))
        while session.step_count < FAR:
            session.step({"loss": 1.0})
        late = sorted(calls_of(steered_step) for _ in range(15))
        session.state()
        assert calls_of(session.state) < 2_000
    # The fewest: a sealing thread or a new chunk of a column may come in between.
    assert late[0] <= early[0] * 1.1


def test_memory_grows_by_the_columns_alone() -> None:
    session = Session(directory=None)
    metrics = {"a": 1.0, "b": 2.0, "c": 3.0, "d": 4.0}
    with session.run():
        for _ in range(5_000):
            session.step(metrics)
        session.journal.seal()
        tracemalloc.start()
        before = tracemalloc.take_snapshot()
        steps = 50_000
        for _ in range(steps):
            session.step(metrics)
        session.journal.seal()
        after = tracemalloc.take_snapshot()
        tracemalloc.stop()
    grown = sum(each.size_diff for each in after.compare_to(before, "filename"))
    assert grown / steps <= 60  # 52 bytes a step, and what the last chunk has to spare
