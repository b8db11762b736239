"""A ``%%it2`` cell that steps, or logs to, the session that is made for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import it2nb
from it2nb.notebook.control_points import steps_itself

LIMIT_S = 60.0
Cells = Callable[[str], Any]

SETUP = """
import torch, it2nb
weight = torch.nn.Parameter(torch.ones(2))
opt = torch.optim.SGD([weight], lr=0.1)

def told(i):
    it2nb.current().step({"loss": i})
"""
TRAINS = "    weight.grad = torch.ones(2)\n    opt.step()\n"
STEPS = {
    "current": "    it2nb.current().step({'loss': i})",
    "assigned": "    mine.step({'loss': i})",
    "walrus": "    (own := it2nb.current()).step({'loss': i})",
}


@pytest.mark.parametrize("trains", ["", TRAINS], ids=["plain", "optimizer"])
@pytest.mark.parametrize("how", STEPS)
def test_C33_its_steps_are_those_that_it_makes_itself(
    run_cell: Cells, how: str, trains: str
) -> None:
    run_cell(SETUP)
    run_cell(
        f"%%it2 --no-panel\nmine = it2nb.current()\nfor i in range(10):\n"
        f"    if i == 3: raise ValueError('x')\n{trains}{STEPS[how]}"
    )
    session = it2nb.current()
    with pytest.raises(ValueError, match="x"):
        session.wait(LIMIT_S)
    failed = session.journal.frame().query("type == 'run_failed'")
    assert failed["step"].tolist() == [3]
    frame = session.metrics.frame()
    assert frame[["step", "loss"]].to_numpy().tolist() == [[1, 0], [2, 1], [3, 2]]


def test_C33_turns_of_a_loop_are_no_steps_where_a_function_steps(run_cell: Cells) -> None:
    run_cell(SETUP)
    run_cell(
        "%%it2 --no-panel --at loop\nfor i in range(4):\n    told(i)\n"
        "    if i == 2: it2nb.current().stop()"
    )
    session = it2nb.current()
    assert session.wait(LIMIT_S) == "stopped"
    assert session.metrics.frame()[["step", "loss"]].to_numpy().tolist()[:3] == [
        [1, 0], [2, 1], [3, 2],
    ]  # fmt: skip
    assert session.step_count == len(session.metrics.frame()) and session.stepper is None


@pytest.mark.parametrize("trains", ["", TRAINS], ids=["plain", "optimizer"])
@pytest.mark.parametrize("first", [True, False], ids=["before the update", "after it"])
def test_C13_what_it_logs_is_of_the_step_of_its_turn(
    run_cell: Cells, first: bool, trains: str
) -> None:
    run_cell(SETUP)
    logs = "    it2nb.current().log(loss=i)\n"
    turn = logs + trains if first else trains + logs
    run_cell(f"%%it2 --no-panel\nfor i in range(4):\n{turn}")
    session = it2nb.current()
    assert session.wait(LIMIT_S) == "finished"
    frame = session.metrics.frame()
    assert frame[["step", "loss"]].to_numpy().tolist() == [[1, 0], [2, 1], [3, 2], [4, 3]]


@pytest.mark.parametrize(
    ("code", "itself"),
    [
        ("opt.step()", False),
        ("it2nb.current().pump()", False),
        ("s = it2nb.current()\nopt.step()", False),
        ("s = it2nb.current()\nfor i in x:\n    s.step({'loss': i})", True),
        ("def f():\n    current().step()\nf()", True),
        ("with it2nb.current() as s: opt.step()", False),
    ],
)
def test_only_a_step_of_the_current_session_counts(code: str, itself: bool) -> None:
    import ast

    assert steps_itself(ast.parse(code)) is itself
