"""The ways people step: each update is one control point, and nothing of theirs is replaced."""

from __future__ import annotations

import copy
import gc
import importlib
import itertools
import sys
import threading
import types
import weakref
from typing import Any

import pytest
import torch
import torch.optim.optimizer as torch_optimizer
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import lr_scheduler as lrs

from it2nb.core.control import StopTraining
from it2nb.core.errors import SessionEnded
from it2nb.core.lifetime import runs
from it2nb.core.session import Session
from it2nb.pytorch import hooks, steered, switchboard
from it2nb.pytorch.autopatch import autopatch, unpatch
from it2nb.pytorch.hooks import attach
from it2nb.pytorch.optimizers import add_optimizer_knobs, steering_of
from tests.pytorch.steering import gradients, parameters, record, rows, run, statuses, train

LIMIT_S = 20.0


def torch_hooks() -> tuple[int, int]:
    return (
        len(torch_optimizer._global_optimizer_pre_hooks),
        len(torch_optimizer._global_optimizer_post_hooks),
    )


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    """Every test ends as if we had never been there."""
    for session in runs():
        session.finish()  # those of other tests that were never started
    board = vars(torch_optimizer).get("_it2nb_switchboard")
    if board is not None:  # of tests that never detached
        board.attachments.clear()
        for steered in list(board.steered.values()):
            board.leave(steered)
        board.sessions.clear()
        board._disconnect_if_idle()
    assert torch_hooks() == (0, 0)
    scaler_step = GradScaler._maybe_opt_step
    yield
    if torch_hooks() != (0, 0):
        gc.collect()  # optimizers of sessions that a test never ended
    assert torch_hooks() == (0, 0)
    assert GradScaler._maybe_opt_step is scaler_step
    board = vars(torch_optimizer).get("_it2nb_switchboard")
    assert board is None or not (board.attachments or board.steered)


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


# --- autopatch -------------------------------------------------------------------------------


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
