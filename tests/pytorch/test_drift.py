"""Values that something else changes, and modes that are saved and brought back."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import Optimizer
from torch.optim import lr_scheduler as lrs

from it2nb.core.session import Session
from it2nb.pytorch.drift import LOOK_STEPS, MAX_DRIFTS, WATCHED_STEPS
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.hyper import make
from tests.pytorch.steering import gradients, parameters, rows, run, train


def drifts(session: Session) -> list[tuple[int, dict[str, Any]]]:
    """Return the step and the payload of each row about a drift."""
    found = (event for event in session.journal.since(0) if event.type == "knob_drifted")
    return [(event.step, event.payload) for event in found]


def test_a_value_that_something_else_changed_soon_after_an_edit_is_told_at_once() -> None:
    for step, told_at in ((20, 19), (49, 48), (60, 64)):
        optimizer = torch.optim.SGD(parameters(), lr=0.1, weight_decay=0.1)

        def by_hand(now: int, step: int = step, optimizer: Optimizer = optimizer) -> None:
            if now == step:
                optimizer.param_groups[0]["weight_decay"] = 0.7

        with run() as (session, _):
            train(
                optimizer, 70, None, {2: {"name": "weight_decay", "value": 0.2}},
                session=session, before=by_hand,
            )  # fmt: skip
        ((at, drifted),) = drifts(session)
        assert at == told_at
        assert drifted["name"] == "weight_decay" and drifted["by"] == "the loop"
        assert (drifted["expected"], drifted["found"]) == (0.2 if step < 50 else 0.1, 0.7)


def test_drift_names_the_scheduler_and_load_state_dict() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    saved = copy.deepcopy(optimizer.state_dict())
    with run() as (session, _):
        train(optimizer, 5, None, {2: {"name": "lr", "value": 0.2}}, session=session)
        optimizer.load_state_dict(saved)
        train(optimizer, 3, session=session)
        train(optimizer, 5, None, {2: {"name": "lr", "value": 0.3}}, session=session)
        scheduler = lrs.LambdaLR(optimizer, lambda e: 0.5)
        session.bind(schedulers=[scheduler])
        train(optimizer, 3, scheduler, session=session)
        train(optimizer, 3, scheduler, {1: {"name": "lr", "value": 0.4}}, session=session)
        optimizer.param_groups[0]["lr"] = 0.9
        train(optimizer, 2, session=session)

    found = [
        (each["by"], each["expected"], each["found"]) for each in rows(session, "knob_drifted")
    ]
    assert found == [
        ("load_state_dict", 0.2, 0.1),
        ("LambdaLR", 0.3, 0.15),
        ("the loop", pytest.approx(0.4), 0.9),
    ]


def test_a_schedule_that_goes_on_as_it_should_is_no_drift() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = lrs.CosineAnnealingLR(optimizer, 20)
    with run([scheduler]) as (session, _):
        edits = {n: {"name": "lr", "value": 0.01 * n} for n in (3, 7, 9)}
        train(optimizer, 40, scheduler, edits, session=session)
    assert rows(session, "knob_drifted") == []


# --- before any edit -------------------------------------------------------------------------


@pytest.mark.parametrize("make", [float, torch.tensor], ids=["float", "tensor"])
def test_what_another_cell_wrote_before_any_request_is_told_with_before_and_found(
    make: Callable[[float], Any],
) -> None:
    optimizer = torch.optim.SGD(
        [{"params": parameters(), "lr": make(lr)} for lr in (0.5, 0.25, 0.125)]
    )

    def by_hand(step: int) -> None:
        for at, (when, value) in enumerate(((3, 1.0), (5, 2.0), (4, 0.5))):
            if step == when:
                optimizer.param_groups[at]["lr"] = make(value)

    with run() as (session, _):
        edits = {8: {"name": "lr[1]", "value": 0.002}}
        train(optimizer, 12, None, edits, session=session, before=by_hand)
    told = [
        (step, each["name"], each["group"], each["before"], each["found"], each["by"])
        for step, each in drifts(session)
    ]
    assert told == [
        (2, "lr", 0, 0.5, 1.0, "the loop"),
        (3, "lr", 2, 0.125, 0.5, "the loop"),
        (4, "lr", 1, 0.25, 2.0, "the loop"),
    ]
    assert not any("kept" in each for _, each in drifts(session))


def test_a_tensor_that_is_filled_in_place_is_told_and_one_filled_with_the_same_is_not() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=torch.tensor(0.5))

    def by_hand(step: int) -> None:
        if step in (3, 60):
            optimizer.param_groups[0]["lr"].fill_(0.5 if step == 3 else 0.25)

    with run() as (session, _):
        train(optimizer, 64, session=session, before=by_hand)
    ((step, told),) = drifts(session)
    assert (step, told["before"], told["found"]) == (59, 0.5, 0.25)


@pytest.mark.parametrize(("every", "count"), [(1, 1), (30, 1), (60, 4)])
def test_a_loop_that_writes_lr_does_not_flood_the_journal(every: int, count: int) -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)

    def by_loop(step: int) -> None:
        if step > 1 and (step - 1) % every == 0:
            optimizer.param_groups[0]["lr"] *= 0.9

    with run() as (session, _):
        train(optimizer, 260, session=session, before=by_loop)
    told = drifts(session)
    assert len(told) == count
    assert (told[0][0], told[0][1]["before"]) == (every, 0.1)
    assert told[0][1]["found"] == pytest.approx(0.09)


def test_one_group_has_so_many_rows_and_no_more() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)

    def by_loop(step: int) -> None:
        if step % WATCHED_STEPS == 0:
            optimizer.param_groups[0]["lr"] *= 0.9

    with run() as (session, _):
        steps = WATCHED_STEPS * (MAX_DRIFTS + 5)
        train(optimizer, steps, session=session, before=by_loop)
    assert len(drifts(session)) == MAX_DRIFTS


def test_what_is_not_lr_is_looked_at_now_and_then_and_the_row_says_since_when() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)

    def by_hand(step: int) -> None:
        group = optimizer.param_groups[0]
        if step == 10:
            group["weight_decay"] = 0.7
        if step > 70:
            group["momentum"] *= 0.999

    with run() as (session, _):
        train(optimizer, 6 * LOOK_STEPS, session=session, before=by_hand)
    told = [
        (step, each["after_step"], each["name"], each["before"]) for step, each in drifts(session)
    ]
    assert told == [
        (LOOK_STEPS, 0, "weight_decay", 0.1),
        (2 * LOOK_STEPS, LOOK_STEPS, "momentum", 0.9),
    ]


def test_what_is_written_before_the_first_step_is_where_the_run_begins() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1, weight_decay=0.1)
    with run() as (session, _):
        add_optimizer_knobs(session, optimizer)
        optimizer.param_groups[0].update(lr=0.5, weight_decay=0.5)
        train(optimizer, 2 * LOOK_STEPS + 1, session=session)
    assert drifts(session) == []


def test_neither_a_scheduler_nor_a_request_nor_a_restored_state_is_told_as_drift() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
    scheduler = lrs.StepLR(optimizer, 60, 0.5)
    with run() as (session, _):  # a scheduler that no one tells the session of
        train(optimizer, 130, scheduler, {70: {"name": "momentum", "value": 0.5}}, session=session)
        saved = copy.deepcopy(optimizer.state_dict())
        saved["param_groups"][0].update(momentum=0.3, weight_decay=0.2)
        optimizer.load_state_dict(saved)
        train(optimizer, 70, session=session)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.025)
    assert drifts(session) == []


# --- state -----------------------------------------------------------------------------------


def test_modes_and_held_values_are_saved_and_brought_back() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = lrs.ExponentialLR(optimizer, 0.9)
    session = Session(directory=None)
    session.bind(optimizers=[optimizer], schedulers=[scheduler])
    add_optimizer_knobs(session, optimizer, name="opt")
    steering = session.bound.stateful["schedules"]
    with session.run():
        session.submit(
            {"type": "set_knob", "payload": {"name": "lr", "value": 0.03, "mode": "hold"}}
        )
        session.pump()
        saved = copy.deepcopy(steering.state_dict())
        session.submit({"type": "set_mode", "payload": {"name": "lr", "mode": "release"}})
        session.pump()
        assert session.knobs["lr"].value == 0.1
        steering.load_state_dict(saved)
        assert session.knobs["lr"].value == 0.03
        view = session.knobs["lr"].view()
    assert view.mode == "hold"
    assert [name for name, kept in saved["opt"].items() if kept] == ["lr"]


def test_release_after_going_back_still_finds_the_value_from_before_the_edit() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    session = Session(directory=None)
    session.bind(optimizers=[optimizer])
    add_optimizer_knobs(session, optimizer, name="opt")
    steering = session.bound.stateful["schedules"]
    with session.run():
        for edit in ({"value": 0.2}, {"value": 0.3}):
            session.submit({"type": "set_knob", "payload": {"name": "lr", **edit}})
            session.pump()
            gradients(optimizer)
            optimizer.step()
            if edit["value"] == 0.2:
                saved = copy.deepcopy((optimizer.state_dict(), steering.state_dict()))
        optimizer.load_state_dict(saved[0])
        steering.load_state_dict(saved[1])
        assert session.knobs["lr"].value == 0.2
        session.submit({"type": "set_mode", "payload": {"name": "lr", "mode": "release"}})
        session.pump()
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_a_batch_in_which_one_knob_is_refused_is_rejected_and_changes_nothing() -> None:
    groups = [{"params": parameters(), "lr": lr} for lr in (0.001, 0.5)]
    optimizer = torch.optim.SGD(groups, lr=0.001)
    with run() as (session, _):
        optimizer.step()
        add_optimizer_knobs(session, optimizer)
        asked = {"weight_decay": 0.1, "lr": 0.9}
        handle = session.submit({"type": "batch", "payload": {"set": asked}})
        gradients(optimizer)
        optimizer.step()
        result = handle.result(0)
    assert result.status == "rejected"
    assert "group 1 would get" in str(result.reason)
    assert [group["lr"] for group in optimizer.param_groups] == [0.001, 0.5]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0, 0]


def test_a_mode_is_shown_only_where_something_drives_the_knob() -> None:
    def modes(session: Session) -> dict[str, str | None]:
        return {each.name: each.mode for each in session.knobs.views() if each.modes}

    sgd = make("SGD", lr=0.1, momentum=0.9, weight_decay=0.01)
    session = Session(directory=None)
    session.bind(optimizers=[sgd])
    add_optimizer_knobs(session, sgd)
    assert set(modes(session).values()) == {None}
    schedule = lrs.StepLR(sgd, 10)
    session.bound.schedulers.append(schedule)
    driven = modes(session)
    assert driven.pop("lr") == "rescale"
    assert set(driven.values()) <= {None}
    # A mode that was picked holds against whoever comes.
    session.start()
    session.submit({"type": "set_mode", "payload": {"name": "weight_decay", "mode": "hold"}})
    session.pump()
    assert modes(session)["weight_decay"] == "hold"
    session.end()
