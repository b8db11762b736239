"""autopatch: hooks on one optimizer without a word in the loop."""

from __future__ import annotations

import itertools
import types
from typing import Any

import pytest
import torch
from torch import nn

from it2nb.core.errors import SessionEnded
from it2nb.core.session import Session
from it2nb.pytorch.autopatch import autopatch, unpatch
from tests.pytorch.hooked import torch_hooks
from tests.pytorch.steering import gradients, parameters, train

pytestmark = pytest.mark.usefixtures("nothing_is_left")


def test_autopatch_counts_steps_and_calls_its_metrics_after_each() -> None:
    optimizer, other = (torch.optim.SGD(parameters(), lr=0.1) for _ in range(2))
    session = Session(directory=None)
    numbers = itertools.count(1)
    with session.run():
        for _ in range(3):
            autopatch(session, optimizer, lambda: {"loss": float(next(numbers))}, name="opt")
        for _ in range(4):
            for each in (optimizer, other):
                gradients(each)
                each.step()
    assert session.step_count == 4
    assert session.metrics.latest()["loss"] == (4, 4.0)
    assert session.stepper == "opt (SGD)"
    assert [name for name in session.knobs if name.endswith("lr")] == ["lr"]


def test_unpatch_takes_it_back() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    session = Session(directory=None)
    with session.run():
        autopatch(session, optimizer)
        train(optimizer, 2, session=session)
        unpatch(session, optimizer)
        assert torch_hooks() == (0, 0)
        train(optimizer, 2, session=session)
    assert session.step_count == 2


def test_autopatch_without_a_session_takes_the_current_one() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    session = Session(directory=None)
    with session.run():
        autopatch(optimizer, lambda: {"loss": 1.0})
        train(optimizer, 2, session=session)
        unpatch(optimizer)
        train(optimizer, 2, session=session)
    assert session.step_count == 2
    assert session.metrics.latest()["loss"] == (2, 1.0)
    with pytest.raises(SessionEnded):
        autopatch(session, optimizer)
    with pytest.raises(TypeError):
        autopatch(Session(directory=None))


def test_autopatch_enforces_a_stop() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    session = Session(directory=None)
    with session.run():
        autopatch(session, optimizer=optimizer)
        train(optimizer, 9, None, {2: lambda s: s.submit({"type": "stop"})}, session=session)
    assert session.step_count == 2 and session.status == "stopped"


class Foreign:
    """An optimizer that knows nothing of PyTorch's hooks."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(torch.ones(1))
        self.defaults = {"lr": 0.1}
        self.param_groups: list[dict[str, Any]] = [{"params": [self.weight], "lr": 0.1}]
        self.state: dict[Any, Any] = {}

    def step(self, closure: Any = None) -> Any:
        self.weight.data -= self.param_groups[0]["lr"]
        return closure


def test_C36_an_optimizer_without_hooks_is_wrapped_by_a_bound_method() -> None:
    optimizer = Foreign()
    session = Session(directory=None)
    with session.run():
        autopatch(session, optimizer)
        autopatch(session, optimizer)
        assert isinstance(optimizer.step, types.MethodType)
        session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.25}})
        assert optimizer.step("x") == "x"
        optimizer.step()
        unpatch(session, optimizer)
        optimizer.step()
    assert session.step_count == 2
    assert "step" not in vars(optimizer)
    assert optimizer.weight.item() == pytest.approx(1 - 0.25 * 3)
