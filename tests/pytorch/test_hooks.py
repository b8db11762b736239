"""The ways people step: each update is one control point, and nothing of theirs is replaced."""

from __future__ import annotations

import gc
import importlib
import sys
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.optim.optimizer as torch_optimizer
from torch import nn
from torch.optim import lr_scheduler as lrs

from it2nb.core.control import StopTraining
from it2nb.core.errors import SessionEnded
from it2nb.core.session import Session
from it2nb.pytorch import steered, switchboard
from it2nb.pytorch.hooks import attach
from it2nb.pytorch.optimizers import add_optimizer_knobs, steering_of
from tests.pytorch.hooked import torch_hooks
from tests.pytorch.steering import gradients, parameters, record, rows, run, statuses, train

pytestmark = pytest.mark.usefixtures("nothing_is_left")

LIMIT_S = 20.0


# --- stepping --------------------------------------------------------------------------------


def test_each_step_is_a_control_point_with_its_metrics() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    losses = iter(range(10))
    with run(metrics_fn=lambda: {"loss": next(losses)}) as (session, _):
        train(optimizer, 5, session=session)

    assert session.step_count == 5
    assert session.metrics.latest()["loss"] == (5, 4.0)


def test_a_metrics_function_that_fails_does_not_end_the_training() -> None:
    def broken() -> dict[str, float]:
        raise KeyError("loss")

    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run(metrics_fn=broken) as (session, _):
        train(optimizer, 3, session=session)
    assert session.step_count == 3
    assert "KeyError" in rows(session, "note")[0]["text"]


def test_gradient_accumulation_counts_updates_and_an_edit_waits_for_the_windows_end() -> None:
    (weight,) = weights = parameters()
    optimizer = torch.optim.SGD(weights, lr=0.1)
    with run() as (session, _):
        for micro in range(1, 13):
            (weight.sum() / 4).backward()
            if micro == 6:
                session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.01}})
            if micro % 4 == 0:
                optimizer.step()
                optimizer.zero_grad()
    assert session.step_count == 3
    assert rows(session, "action_result")[0]["after"] == 0.01
    assert [e.step for e in session.journal.since(0) if e.type == "action_result"] == [2]
    assert weight[0, 0].item() == pytest.approx(1 - 0.1 - 0.1 - 0.01)


def test_C39_lbfgs_with_closure_is_one_step_and_returns_its_value() -> None:
    ours, theirs = ([nn.Parameter(torch.tensor([2.0, -3.0]))] for _ in range(2))
    calls: list[int] = []

    def problem(weights: list[nn.Parameter], optimizer: Any) -> Any:
        def closure(scale: float = 1.0) -> torch.Tensor:
            calls.append(1)
            optimizer.zero_grad()
            loss = scale * ((weights[0] ** 4).sum() + (weights[0] ** 2).sum())
            loss.backward()
            return loss

        return closure

    reference = torch.optim.LBFGS(theirs, max_iter=20)
    want = [reference.step(problem(theirs, reference)) for _ in range(2)]
    per_step = len(calls) // 2
    optimizer = torch.optim.LBFGS(ours, max_iter=20)
    closure = problem(ours, optimizer)
    with run() as (session, _):
        session.submit({"type": "pause"})
        session.submit({"type": "resume"})
        got = [optimizer.step(closure), optimizer.step(closure=closure)]
        with pytest.raises(TypeError):
            optimizer.step()  # type: ignore[call-arg]

    assert session.step_count == 2 and per_step > 1
    assert got == want and isinstance(got[0], torch.Tensor)
    assert torch.equal(ours[0], theirs[0])
    assert statuses(session) == ["applied", "applied"]


def test_return_values_and_arguments_pass_through() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    gradients(optimizer)
    with run():
        assert optimizer.step(lambda: 3.5) == 3.5
        assert optimizer.step() is None


@pytest.mark.parametrize("made", ["before", "after"])
def test_C36_C37_schedulers_before_and_after_attaching_warn_of_nothing(made: str) -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = lrs.StepLR(optimizer, 1) if made == "before" else None
    step = optimizer.step
    with run() as (session, _):
        add_optimizer_knobs(session, optimizer)
        scheduler = scheduler or lrs.StepLR(optimizer, 1)
        for _ in range(3):
            gradients(optimizer)
            optimizer.step()
            scheduler.step()

    assert optimizer._opt_called is True  # type: ignore[attr-defined]
    if made == "before":
        assert optimizer.step == step  # nothing was replaced
    assert session.step_count == 3


def test_requests_from_before_the_first_step_hold_for_it() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, _):
        used = record(optimizer)
        session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.02}})
        train(optimizer, 2, session=session)
    assert used == [0.02, 0.02]


# --- stop ------------------------------------------------------------------------------------


def test_stop_is_raised_at_once_and_again_before_any_later_step() -> None:
    (weight,) = weights = parameters()
    optimizer = torch.optim.SGD(weights, lr=0.1)
    raised = 0
    with run() as (session, _):
        for step in range(1, 8):
            gradients(optimizer)
            if step == 3:
                session.submit({"type": "stop"})
            try:
                optimizer.step()
            except BaseException as error:  # noqa: BLE001 - as a bare except: in a user's loop
                assert isinstance(error, StopTraining)
                raised += 1

    assert raised == 5
    assert session.step_count == 3 and session.status == "stopped"
    assert weight[0, 0].item() == pytest.approx(0.7)


def test_C04_stop_while_paused_lets_no_further_step_through() -> None:
    (weight,) = weights = parameters()
    optimizer = torch.optim.SGD(weights, lr=0.1)
    with run() as (session, _):
        train(optimizer, 1, session=session)
        for kind in ("pause", "evaluate", "stop"):
            session.submit({"type": kind})
        train(optimizer, 5, session=session)
    assert session.step_count == 2 and session.status == "stopped"
    assert weight[0, 0].item() == pytest.approx(0.8)
    assert statuses(session) == ["applied", "rejected", "applied"]


def test_stop_before_the_first_step_lets_none_happen() -> None:
    (weight,) = weights = parameters()
    optimizer = torch.optim.SGD(weights, lr=0.1)
    with run() as (session, _):
        session.submit({"type": "stop"})
        train(optimizer, 3, session=session)
    assert session.step_count == 0 and torch.equal(weight, torch.ones(2, 2))


def test_other_optimizers_do_not_step_after_a_stop_either() -> None:
    one, other = (torch.optim.SGD(parameters(), lr=0.1) for _ in range(2))
    with run() as (session, _):
        for each in (one, other):
            gradients(each)
            each.step()
        session.submit({"type": "stop"})
        with pytest.raises(StopTraining):
            one.step()
        with pytest.raises(StopTraining):
            other.step()
        before = other.param_groups[0]["params"][0].detach().clone()
    assert torch.equal(before, torch.full((2, 2), 0.9))


# --- threads, copies, leaving ----------------------------------------------------------------


def test_optimizers_of_other_threads_are_none_of_ours() -> None:
    mine, theirs = torch.optim.SGD(parameters(), lr=0.1), torch.optim.Adam(parameters(), lr=0.1)
    with run() as (session, _):
        train(mine, 2, session=session)
        gradients(theirs)
        worker = threading.Thread(target=lambda: [theirs.step() for _ in range(5)])
        worker.start()
        worker.join(LIMIT_S)
        train(mine, 1, session=session)
    assert session.step_count == 3
    assert not any("adam" in name or "beta" in name for name in session.knobs)


def test_another_thread_that_steps_our_optimizer_brings_no_edit_into_force() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    used = record(optimizer)
    with run([scheduler]) as (session, _):
        train(optimizer, 2, None, {2: {"name": "lr", "value": 0.3}}, session=session)
        worker = threading.Thread(target=optimizer.step)
        worker.start()
        worker.join(LIMIT_S)
        train(optimizer, 1, session=session)
    assert used == [0.1, 0.1, 0.1, 0.3]
    assert session.step_count == 3


def test_attaching_three_times_counts_once() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, attachment):
        assert attach(session, metrics_fn=lambda: {"loss": 2.0}) is attachment
        assert attach(session) is attachment
        train(optimizer, 3, session=session)
        assert torch_hooks() == (1, 1)
    assert session.step_count == 3
    assert session.metrics.latest()["loss"] == (3, 2.0)


def test_a_second_import_of_the_package_adds_no_second_pair_of_hooks() -> None:
    """As autoreload and a notebook with two copies of the package do it."""
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, _):
        importlib.reload(switchboard)
        kept = sys.modules.pop("it2nb.pytorch.switchboard")
        try:
            again = importlib.import_module("it2nb.pytorch.switchboard")
            assert again is not kept
            assert again.switchboard() is kept.switchboard()
            again.switchboard().steer(steering_of(session).optimizers[0]) if steering_of(
                session
            ).optimizers else None
        finally:
            sys.modules["it2nb.pytorch.switchboard"] = kept
        train(optimizer, 3, session=session)
        assert torch_hooks() == (1, 1)
    assert session.step_count == 3


def test_a_run_whose_steps_another_one_takes_over_is_told() -> None:
    with run() as (session, _), run() as (other, _):
        (said,) = session.warnings
        assert f"count for run {other.run_id} from now on" in said
        assert other.warnings == []


def test_a_session_that_has_ended_takes_no_hooks() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, _):
        pass
    with pytest.raises(SessionEnded):
        attach(session)
    with pytest.raises(SessionEnded):
        add_optimizer_knobs(session, optimizer)


def test_detaching_leaves_nothing_behind() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    before = dict(vars(optimizer))
    honoured = Session(directory=None).honours_control
    with run() as (session, attachment):
        train(optimizer, 2, session=session)
        attachment.detach()
        attachment.detach()
        assert session.honours_control is honoured
        train(optimizer, 2, session=session)
        assert session.step_count == 2
    assert set(vars(optimizer)) == set(before)
    assert not optimizer._optimizer_load_state_dict_post_hooks


def test_the_end_of_the_last_session_takes_the_switchboard_away() -> None:
    name = "_it2nb_switchboard"
    others = list(vars(torch_optimizer)[name].sessions) if name in vars(torch_optimizer) else []
    with run() as (session, _):
        train(torch.optim.SGD(parameters(), lr=0.1), 2, session=session)
        assert name in vars(torch_optimizer)
    left = vars(torch_optimizer).get(name)
    assert (left is None) is (others == []) and (left is None or list(left.sessions) == others)


def test_an_optimizer_that_is_gone_takes_the_hooks_with_it() -> None:
    session = Session(directory=None)
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    add_optimizer_knobs(session, optimizer)
    assert torch_hooks() == (1, 1)
    del optimizer
    gc.collect()
    assert torch_hooks() == (0, 0)


def test_C82_many_sessions_leave_no_hooks_and_no_optimizers() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    for _ in range(20):
        with run() as (session, _):
            train(optimizer, 2, None, {1: {"name": "lr", "value": 0.2}}, session=session)
        assert torch_hooks() == (0, 0)
    assert not optimizer._optimizer_load_state_dict_post_hooks
    gone = weakref.ref(optimizer)
    del optimizer
    gc.collect()
    assert gone() is None


def test_after_the_end_a_held_value_is_given_back_to_the_schedule() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    with run([scheduler]) as (session, _):
        edits = {1: {"name": "lr", "value": 0.3, "mode": "hold"}}
        train(optimizer, 3, scheduler, edits, session=session)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 / 8)


def test_a_step_that_raises_leaves_no_lent_value_behind() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    used = record(optimizer)

    def broken() -> float:
        raise ArithmeticError

    with run([scheduler]) as (session, _):
        edits = {1: {"name": "lr", "value": 0.3, "mode": "hold"}}
        train(optimizer, 2, scheduler, edits, session=session)
        with pytest.raises(ArithmeticError):
            optimizer.step(broken)
        session.submit({"type": "set_mode", "payload": {"name": "lr", "mode": "release"}})
        train(optimizer, 2, scheduler, session=session)
    assert used == [0.1, 0.3, 0.3, 0.3, 0.0125] and session.step_count == 4


@pytest.mark.parametrize("where", ["before_step", "after_step"])
def test_a_fault_of_our_own_does_not_end_the_training(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    monkeypatch.setattr(steered.SteeredOptimizer, where, lambda self: 1 / 0)
    with run() as (session, _):
        session.set("lr", 0.2)  # with nothing to do around a step it is not called
        train(optimizer, 3, session=session)
    assert session.step_count == 3
    assert "ZeroDivisionError" in rows(session, "note")[0]["text"]
