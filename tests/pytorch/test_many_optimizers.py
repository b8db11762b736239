"""Several optimizers, replaced ones, those of others, and batches of edits."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch.optim import Optimizer
from torch.optim import lr_scheduler as lrs

from it2nb.core.session import Session
from it2nb.pytorch.optimizers import add_optimizer_knobs, steering_of
from it2nb.session import TrainingSession
from tests.pytorch.hyper import both, decay_groups
from tests.pytorch.steering import gradients, parameters, record, run, statuses, train


@pytest.mark.parametrize("by_user", [True, False])
def test_C11_edits_reach_the_groups_that_load_state_dict_put_there(by_user: bool) -> None:
    (weight,) = weights = parameters()
    optimizer = torch.optim.SGD(weights, lr=0.1)
    with run() as (session, _):
        train(optimizer, 2, session=session)
        saved = copy.deepcopy(optimizer.state_dict())
        train(optimizer, 3, session=session)
        old = optimizer.param_groups[0]
        if by_user:
            optimizer.load_state_dict(saved)
        else:
            session.action("back")(lambda payload, session: optimizer.load_state_dict(saved))
            train(optimizer, 1, None, {1: lambda s: s.submit({"type": "back"})}, session=session)
        assert optimizer.param_groups[0] is not old
        train(optimizer, 1, None, {1: {"name": "lr", "value": 0.05}}, session=session)
        before = weight.detach().clone()
        train(optimizer, 1, session=session)

    assert optimizer.param_groups[0]["lr"] == 0.05
    assert torch.equal(before - 0.05, weight)


def test_nothing_here_keeps_an_optimizer_or_its_tensors_alive() -> None:
    optimizer = torch.optim.Adam(parameters(), lr=torch.tensor(0.1))
    with run() as (session, _):
        train(optimizer, 3, None, {1: {"name": "lr", "value": 0.2}}, session=session)
        gone = weakref.ref(optimizer)
        weight = weakref.ref(optimizer.param_groups[0]["params"][0])
        lr = weakref.ref(optimizer.param_groups[0]["lr"])
        del optimizer
        gc.collect()
        assert gone() is None and weight() is None and lr() is None
        view = session.knobs["lr"].view()
        assert view.value is None
        assert view.reason is not None and "is gone" in view.reason


# --- several optimizers ----------------------------------------------------------------------


def test_several_optimizers_have_knobs_under_their_variables() -> None:
    session = Session(directory=None)
    one, other = torch.optim.Adam(parameters(), lr=0.1), torch.optim.SGD(parameters(), lr=0.2)
    session.bind(optimizers=[one, other])
    session.bound.names.update({id(one): "opt_g", id(other): "opt_d"})
    for each in (one, other):
        add_optimizer_knobs(session, each)

    assert "lr" not in session.knobs
    assert session.knobs["opt_g.lr"].value == 0.1
    assert session.knobs["opt_d.learning_rate"].value == 0.2
    assert add_optimizer_knobs(session, one) == steering_of(session).optimizers[0].knobs


def test_only_some_hyper_parameters_may_be_knobs() -> None:
    session = Session(directory=None)
    optimizer = torch.optim.Adam(parameters(), lr=0.1)
    add_optimizer_knobs(session, optimizer, only=("lr",))
    assert list(session.knobs) == ["lr"]


def test_an_optimizer_found_later_leaves_the_first_ones_names() -> None:
    first, second = torch.optim.SGD(parameters(), lr=0.1), torch.optim.Adam(parameters(), lr=0.2)
    with run() as (session, _):
        train(first, 2, session=session)
        train(second, 2, session=session)

    assert session.knobs["lr"].value == 0.1
    assert session.knobs["sgd.lr"] is session.knobs["lr"]
    assert session.knobs["adam.lr"].value == 0.2


def test_an_optimizer_made_anew_takes_the_place_of_the_old_one() -> None:
    optimizer: Optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, _):
        train(optimizer, 2, session=session)
        optimizer = torch.optim.Adam(parameters(), lr=0.3)
        gc.collect()
        used = record(optimizer)
        train(optimizer, 3, None, {1: {"name": "lr", "value": 0.02}}, session=session)
        assert session.step_count == 5
        assert session.stepper == "adam"

    assert used == [0.3, 0.02, 0.02]
    assert "betas[0]" in session.knobs and "dampening" not in session.knobs


def test_an_optimizer_of_a_known_name_takes_the_place_of_one_that_is_still_there() -> None:
    session = Session(directory=None)
    old, new = torch.optim.SGD(parameters(), lr=0.1), torch.optim.SGD(parameters(), lr=0.7)
    session.bind(optimizers=[old])
    add_optimizer_knobs(session, old, name="opt")
    session.bind(optimizers=[new])
    add_optimizer_knobs(session, new, name="opt")

    assert session.knobs["lr"].value == 0.7
    assert session.bound.optimizers == [new]


class ThirdParty(Optimizer):
    """An optimizer of somebody else."""

    def __init__(self, params: Any) -> None:
        defaults = {
            "lr": 1e-3, "beta3": 0.97, "rank": 4, "clip_threshold": 1.0, "decay_rate": -0.8,
            "safeguard": False, "law": "cubic", "eps2": 1e-6, "fused": None, "k_momentum": 0.5,
        }  # fmt: skip
        super().__init__(params, defaults)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for each in group["params"]:
                each.data.add_(each.grad, alpha=-group["lr"] * group["beta3"])


def test_third_party_optimizers_follow_the_same_rule() -> None:
    (weight,) = weights = parameters()
    optimizer = ThirdParty(weights)
    with run() as (session, _):
        train(
            optimizer, 3, None,
            {1: [{"name": "beta3", "value": 0.5}, {"name": "lr", "value": 0.1},
                 {"name": "rank", "value": 5}, {"name": "safeguard", "value": True}]},
            session=session,
        )  # fmt: skip
        views = {view.name: view for view in session.knobs.views() if view.group == "ThirdParty"}

    assert statuses(session) == ["applied", "applied", "applied", "rejected"]
    kinds = {name: view.dtype for name, view in views.items()}
    assert kinds == {
        "lr": "float", "beta3": "float", "rank": "int", "clip_threshold": "float",
        "decay_rate": "float", "safeguard": "bool", "eps2": "float", "k_momentum": "float",
    }  # fmt: skip
    assert views["beta3"].max is not None and views["beta3"].max < 1
    assert weight[0, 0].item() == pytest.approx(1 - 0.001 * 0.97 - 2 * 0.1 * 0.5)


def test_C42_a_captured_float_is_rejected_and_a_captured_tensor_written_at_once() -> None:
    """Capture itself needs a GPU; what follows from it is told and tried here."""
    for lr, status in ((0.1, "rejected"), (torch.tensor(0.1), "applied")):
        optimizer = torch.optim.SGD(parameters(), lr=lr)
        session = Session(directory=None)
        add_optimizer_knobs(session, optimizer)
        steering_of(session).optimizers[0].captured()
        with session.run():
            session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.02}})
            session.pump()
        assert statuses(session) == [status]
        now = float(optimizer.param_groups[0]["lr"])
        assert now == pytest.approx(0.1 if status == "rejected" else 0.02)


def test_failed_edits_in_a_batch_are_put_back_exactly() -> None:
    optimizer = decay_groups()
    with run() as (session, _):
        session.register_knob("bad", lambda: 0.0, lambda v: 1 / 0)
        edit = lambda s: s.submit(  # noqa: E731
            {"type": "batch", "payload": {"set": {"lr": 0.03, "bad": 1.0}}}
        )
        train(optimizer, 4, None, {2: edit}, session=session)

    assert statuses(session) == ["failed"]
    assert both(optimizer, "lr") == (0.1, 0.01)
    gradients(optimizer)


class _Bare(torch.optim.SGD):
    """Somebody's own: of SGD's keys it has lr alone, and it never called ``super().__init__``."""

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        self.param_groups = [{"params": params, "lr": 0.1}]
        self.state = {}  # type: ignore[assignment]
        self.defaults = {"lr": 0.1}

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for each in group["params"]:
                each.data.sub_(each.grad, alpha=group["lr"])


@pytest.mark.parametrize("first", [True, False], ids=["scheduler first", "steered first"])
def test_C36_a_subclass_without_hooks_and_with_fewer_keys_is_steered(first: bool) -> None:
    """Under a scheduler an edit waits for the step, of which no hook of PyTorch tells."""
    (weight,) = weights = parameters()
    optimizer = _Bare(weights)
    session = TrainingSession(directory=None)
    schedulers = [lrs.ExponentialLR(optimizer, 0.5)] if first else []
    session.bind(optimizers=[optimizer], schedulers=schedulers)
    scheduler = schedulers[0] if first else lrs.ExponentialLR(optimizer, 0.5)
    moved = []

    def update() -> None:
        before = weight[0, 0].item()
        gradients(optimizer)
        optimizer.step()
        scheduler.step()
        moved.append(before - weight[0, 0].item())

    with session.run():
        for step in range(1, 6):
            update()
            if step == 2:
                session.set("lr", 0.08)
            session.step()
    update()
    assert statuses(session) == ["applied"]
    assert moved == pytest.approx([0.1, 0.05, 0.08, 0.04, 0.02, 0.01], abs=1e-6)


class _Around:
    """No optimizer of PyTorch's, and one of these makes its steps."""

    def __init__(self, params: list[torch.nn.Parameter]) -> None:
        self.inner = torch.optim.SGD(params, lr=0.1)
        self.param_groups, self.state = self.inner.param_groups, self.inner.state
        self.defaults = {"lr": 0.1}

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


@pytest.mark.parametrize("mode", ["rescale", "hold"])
def test_C36_a_step_that_calls_a_hooked_one_is_one_step(mode: str) -> None:
    (weight,) = weights = parameters()
    optimizer: Any = _Around(weights)
    scheduler = lrs.ExponentialLR(optimizer.inner, 0.5)
    moved = []
    with run() as (session, _):
        add_optimizer_knobs(session, optimizer)
        for step in range(1, 6):
            gradients(optimizer)
            if step == 2:
                edit = {"name": "lr", "value": 0.08, "mode": mode}
                session.submit({"type": "set_knob", "payload": edit})
            before = weight[0, 0].item()
            optimizer.step()
            moved.append(before - weight[0, 0].item())
            scheduler.step()
        assert session.step_count == 5
        assert [each.kind for each in steering_of(session).optimizers] == ["_Around"]
    rest = {"rescale": [0.04, 0.02], "hold": [0.08, 0.08]}[mode]
    assert moved == pytest.approx([0.1, 0.05, 0.08, *rest], abs=1e-6)
