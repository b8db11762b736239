"""A ``%%it2`` cell that makes the scheduler of an optimizer that was there before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import it2nb

LIMIT_S = 60.0
Cells = Callable[[str], Any]

SETUP = """
import torch, it2nb
from torch.optim.lr_scheduler import LambdaLR, StepLR
weight = torch.nn.Parameter(torch.ones(2))
opt = torch.optim.SGD([weight], lr=0.1)
used = []
opt.register_step_pre_hook(lambda o, args, kwargs: used.append(o.param_groups[0]["lr"]))

def shape(epoch):
    return 1 - epoch / 40

def ask(kind, **payload):
    return it2nb.current().submit({"type": kind, "payload": payload}, source="panel")
"""

LOOP = """
for n in range(1, 13):
    opt.zero_grad(); weight.sum().backward(); opt.step(); sched.step()
    if n == 4:
        ask("save_checkpoint")
    if n == 8:
        ask("goto", step=5)
"""

IN_THE_CELL = "sched = LambdaLR(opt, shape)" + LOOP
IN_A_FUNCTION = "def train():\n    sched = LambdaLR(opt, shape)" + LOOP.replace("\n", "\n    ")
NEXT_PHASE = "sched = StepLR(opt, 1, 1.0)\nopt.step(); sched.step()\nused.clear()\n" + IN_THE_CELL


@pytest.fixture
def cells(run_cell: Cells) -> Cells:
    run_cell(SETUP)
    return run_cell


@pytest.mark.parametrize("before", ["", "sched = StepLR(opt, 1, 0.5)"], ids=["none", "another"])
@pytest.mark.parametrize(
    "loop", [IN_THE_CELL, IN_A_FUNCTION + "\ntrain()"], ids=["cell", "function"]
)
def test_C08_its_state_is_saved_and_goes_back_with_the_rest(
    cells: Cells, before: str, loop: str
) -> None:
    cells(before)
    cells(f"%%it2 --no-panel\n{loop}")
    session = it2nb.current()
    assert session.wait(LIMIT_S) == "finished"
    assert [row["status"] for row in _results(session)] == ["applied", "applied"]
    # Step 9's control point goes back to step 5's: what follows is step 6, as it was.
    lrs = [0.1 * (1 - epoch / 40) for epoch in (*range(9), *range(5, 8))]
    assert cells("used") == pytest.approx(lrs)


def test_C08_that_of_a_next_phase_takes_its_place(cells: Cells) -> None:
    cells(f"%%it2 --no-panel\n{NEXT_PHASE.replace('step=5', 'step=6')}")
    session = it2nb.current()
    assert session.wait(LIMIT_S) == "finished"
    assert [row["status"] for row in _results(session)] == ["applied", "applied"]
    lrs = [0.1 * (1 - epoch / 40) for epoch in (*range(9), *range(5, 8))]
    assert cells("used") == pytest.approx(lrs)


def _results(session: Any) -> Any:
    return session.journal.requests().to_dict("records")
