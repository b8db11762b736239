"""Optimizers whose classes are built upon others, and those that left PyTorch's hooks out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from it2nb.core.session import Session
from it2nb.pytorch.autopatch import autopatch, unpatch
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.steering import parameters, run, train


class Clipped(torch.optim.SGD):
    """Does something of its own, then steps as its parent."""

    def step(self, closure: Any = None) -> Any:
        super().step(closure)
        return "clipped"


class Twice(Clipped):
    """A third layer."""

    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


@pytest.mark.parametrize("made", [Clipped, Twice])
def test_C39_a_step_that_calls_its_parents_is_counted_once(made: type[Clipped]) -> None:
    torch.optim.SGD(parameters(), lr=0.1)  # from here on the parent's step has hooks as well
    Clipped(parameters(), lr=0.1)
    (weight,) = weights = parameters()
    optimizer = made(weights, lr=0.1)
    with run(metrics_fn=lambda: {"loss": 1.0}) as (session, _):
        train(optimizer, 4, None, {2: {"name": "lr", "value": 0.3}}, session=session)
        assert optimizer.step() == "clipped"
    assert session.step_count == 5
    assert session.metrics.frame()["step"].tolist() == [1, 2, 3, 4, 5]
    assert weight[0, 0].item() == pytest.approx(1 - 0.1 * 2 - 0.3 * 3)


def test_C39_an_inner_step_that_raises_does_not_hide_the_next_one() -> None:
    torch.optim.SGD(parameters(), lr=0.1)
    optimizer = Clipped(parameters(), lr=0.1)

    def broken() -> float:
        raise ValueError("no loss")

    with run() as (session, _):
        train(optimizer, 1, session=session)
        with pytest.raises(ValueError, match="no loss"):
            optimizer.step(broken)
        train(optimizer, 2, session=session)
    assert session.step_count == 3


def test_C39_a_loop_that_counts_beside_autopatch_is_told_once() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    session = Session(directory=None)
    with session.run():
        autopatch(session, optimizer)
        for _ in range(4):
            train(optimizer, 1, session=session)
        assert session.warnings == []
        for _ in range(4):
            train(optimizer, 1, session=session)
            session.step({"loss": 1.0})
    (said,) = session.warnings
    assert "each update is counted twice" in said and "session.step(...)" in said


class Bare(torch.optim.Optimizer):
    """Left ``super().__init__`` out, as some published ones do."""

    def __init__(self, weights: list[torch.nn.Parameter]) -> None:
        self.defaults = {"lr": 0.1}
        self.param_groups = [{"params": weights, "lr": 0.1}]
        self.state = {}  # type: ignore[assignment]

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for each in group["params"]:
                each.data -= group["lr"]
        return closure


def test_C36_an_optimizer_that_left_out_the_parents_init_is_steered() -> None:
    (weight,) = weights = parameters()
    optimizer = Bare(weights)
    session = Session(directory=None)
    with session.run():
        autopatch(session, optimizer)
        session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.25}})
        assert optimizer.step("x") == "x"
        optimizer.step()
        unpatch(session, optimizer)
        optimizer.step()
    assert session.step_count == 2
    assert weight[0, 0].item() == pytest.approx(1 - 0.25 * 3)


def test_C36_such_an_optimizer_has_knobs_in_a_direct_loop() -> None:
    (weight,) = weights = parameters()
    optimizer = Bare(weights)
    session = Session(directory=None)
    add_optimizer_knobs(session, optimizer)
    with session.run():
        optimizer.step()
        handle = session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.25}})
        session.step({"loss": 1.0})
        optimizer.step()
    assert handle.result(0).status == "applied"
    assert weight[0, 0].item() == pytest.approx(1 - 0.1 - 0.25)
