"""Which optimizer's steps count, where there are several, and which steps are none."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.optim.optimizer as torch_optimizer
from torch import nn
from torch.amp.grad_scaler import GradScaler

from it2nb.core.control import StopTraining
from it2nb.core.session import Session
from it2nb.pytorch import hooks
from it2nb.pytorch.hooks import attach
from it2nb.pytorch.optimizers import add_optimizer_knobs, steering_of
from tests.pytorch.steering import gradients, parameters, record, rows, run, statuses, train

pytestmark = pytest.mark.usefixtures("nothing_is_left")


# --- several optimizers ----------------------------------------------------------------------


def test_the_first_optimizer_that_steps_counts_and_the_session_says_which() -> None:
    one, other = torch.optim.SGD(parameters(), lr=0.1), torch.optim.Adam(parameters(), lr=0.1)
    with run() as (session, _):
        for _ in range(4):
            for each in (one, other, other):
                gradients(each)
                each.step()
    assert session.step_count == 4
    assert session.stepper == "sgd, one of 2 optimizers"


def test_the_steps_of_a_named_optimizer_count() -> None:
    one, other = torch.optim.SGD(parameters(), lr=0.1), torch.optim.Adam(parameters(), lr=0.1)
    session = Session(directory=None)
    session.bound.names[id(other)] = "opt_g"
    with session.run():
        attach(session, steps_of="opt_g")
        for _ in range(4):
            for each in (one, other, other):
                gradients(each)
                each.step()
    assert session.step_count == 8
    assert session.stepper == "opt_g (Adam), one of 2 optimizers"


def test_edits_of_each_optimizer_hold_for_its_own_next_step() -> None:
    one, other = torch.optim.SGD(parameters(), lr=0.1), torch.optim.Adam(parameters(), lr=0.2)
    used_one, used_other = record(one), record(other)
    with run() as (session, _):
        for step in range(4):
            for each in (one, other):
                gradients(each)
                if step == 2 and each is one:
                    for name in ("lr", "adam.lr"):
                        payload = {"name": name, "value": 0.05}
                        session.submit({"type": "set_knob", "payload": payload})
                each.step()
    assert used_one == [0.1, 0.1, 0.1, 0.05]
    assert used_other == [0.2, 0.2, 0.05, 0.05]


def test_when_the_counting_optimizer_rests_requests_are_served_and_another_counts() -> None:
    one, other = torch.optim.SGD(parameters(), lr=0.1), torch.optim.Adam(parameters(), lr=0.1)
    with run() as (session, _):
        train(one, 3, session=session)
        train(other, 1, session=session)
        session.submit({"type": "note", "payload": {"text": "here"}})
        train(other, hooks.SERVED_AFTER, session=session)
        assert statuses(session) == ["applied"]
        assert session.step_count == 3
        train(other, hooks.REPLACED_AFTER, session=session)
        assert session.step_count > 3
        assert session.stepper == "adam (Adam), one of 2 optimizers" or session.stepper == (
            "adam, one of 2 optimizers"
        )


def test_a_deep_copied_optimizer_is_not_counted() -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with run() as (session, _):
        for _ in range(3):
            gradients(optimizer)
            optimizer.step()
            trial = copy.deepcopy(optimizer)
            gradients(trial)
            trial.step()
    assert session.step_count == 3
    assert [each.name for each in steering_of_closed(session)] == []
    assert [name for name in session.knobs if name.endswith("lr")] == ["lr"]


def steering_of_closed(session: Session) -> list[Any]:
    """After the end nothing is steered any more."""
    board = torch_optimizer.__dict__.get("_it2nb_switchboard")
    return [] if board is None else [s for s in board.steered.values() if s.session is session]


def test_an_optimizer_that_was_unpickled_counts_when_it_is_the_one() -> None:
    optimizer = copy.deepcopy(torch.optim.SGD(parameters(), lr=0.1))
    with run() as (session, _):
        train(optimizer, 3, session=session)
    assert session.step_count == 3


def test_optimizers_made_inside_a_function_are_found_at_their_first_step() -> None:
    seen: list[Any] = []

    def inside(session: Session) -> None:
        optimizer = torch.optim.AdamW(parameters(), lr=0.1)
        train(optimizer, 2, session=session)

    session = Session(directory=None)
    with session.run():
        attach(session, on_new_optimizer=lambda o: seen.append(type(o).__name__))
        inside(session)
    assert seen == ["AdamW"] and "weight_decay" in session.knobs


def test_a_new_optimizer_gets_the_name_that_the_callback_gives_it() -> None:
    session = Session(directory=None)
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with session.run():
        attach(
            session,
            on_new_optimizer=lambda o: add_optimizer_knobs(session, o, name="my_opt"),
        )
        train(optimizer, 1, session=session)
    assert session.stepper == "my_opt (SGD)"


class Wrapper(torch.optim.Optimizer):
    """As SAM and ZeRO do it: an optimizer whose step calls another one's."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        super().__init__(inner.param_groups[0]["params"], dict(inner.defaults))
        self.param_groups = inner.param_groups

    def step(self, closure: Any = None) -> Any:
        return self.inner.step(closure)


def test_a_step_inside_another_optimizers_step_is_not_counted_again() -> None:
    (weight,) = weights = parameters()
    outer = Wrapper(torch.optim.SGD(weights, lr=0.1))
    with run() as (session, _):
        train(outer, 3, None, {2: {"name": "lr", "value": 0.3}}, session=session)
        assert [each.kind for each in steering_of(session).optimizers] == ["Wrapper"]
    assert session.step_count == 3
    assert weight[0, 0].item() == pytest.approx(1 - 0.2 - 0.3)


def test_an_optimizer_name_that_never_steps_is_told() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    session = Session(directory=None)
    with session.run():
        attach(session, steps_of="opt_g")
        train(optimizer, hooks.REPLACED_AFTER + 5, session=session)
    assert session.step_count == 0
    assert [n["text"].split(":")[0] for n in rows(session, "note")] == [
        "no step of the optimizer 'opt_g' was seen among 200 of others"
    ]


# --- AMP -------------------------------------------------------------------------------------


def amp_run(fused: bool) -> tuple[Session, list[torch.Tensor]]:
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=fused)
    scaler = GradScaler("cpu", init_scale=8.0, growth_interval=1000)
    with run() as (session, _):
        for step in range(1, 7):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).sum() * (float("inf") if step in (2, 5) else 1.0)
            scaler.scale(loss).backward()
            if step == 4:
                session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.01}})
            scaler.step(optimizer)
            scaler.update()
    return session, [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("fused", [True, False])
def test_steps_that_a_grad_scaler_skips_are_told_and_not_counted(fused: bool) -> None:
    session, _ = amp_run(fused)
    assert session.step_count == 4
    skipped = [e for e in session.journal.since(0) if e.type == "skipped"]
    assert [e.step for e in skipped] == [1, 3]
    assert {e.payload["reason"] for e in skipped} == {"found_inf"}
    assert statuses(session) == ["applied"]


def test_fused_and_plain_are_told_alike() -> None:
    (one, weights), (other, others) = amp_run(True), amp_run(False)

    def told(session: Session) -> list[Any]:
        return [
            (e.type, e.step, {k: v for k, v in e.payload.items() if k != "scale"})
            for e in session.journal.since(0)
            if e.type == "skipped"
        ]

    assert told(one) == told(other)
    for mine, theirs in zip(weights, others, strict=True):
        assert torch.allclose(mine, theirs)


def test_requests_are_served_while_every_step_is_skipped() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scaler = GradScaler("cpu", init_scale=8.0)
    with run() as (session, _):
        train(optimizer, 1, session=session)
        session.submit({"type": "stop"})
        for each in optimizer.param_groups[0]["params"]:
            each.grad = None
            scaler.scale((each * float("inf")).sum()).backward()
        with pytest.raises(StopTraining):
            scaler.step(optimizer)
    assert session.status == "stopped" and session.step_count == 1
