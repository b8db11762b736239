"""Values that something else changes, and modes that are saved and brought back."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim import Optimizer
from torch.optim import lr_scheduler as lrs

from it2nb.core.session import Session
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.hyper import make
from tests.pytorch.steering import gradients, parameters, rows, run, train


def test_a_value_that_something_else_changed_is_told_for_50_steps() -> None:
    for step, told in ((20, 1), (49, 1), (60, 0)):
        optimizer = torch.optim.SGD(parameters(), lr=0.1, weight_decay=0.1)

        def by_hand(now: int, step: int = step, optimizer: Optimizer = optimizer) -> None:
            if now == step:
                optimizer.param_groups[0]["weight_decay"] = 0.7

        with run() as (session, _):
            train(
                optimizer, 70, None, {2: {"name": "weight_decay", "value": 0.2}},
                session=session, before=by_hand,
            )  # fmt: skip
        drifted = rows(session, "knob_drifted")
        assert len(drifted) == told
        if told:
            assert drifted[0]["name"] == "weight_decay" and drifted[0]["by"] == "the loop"
            assert (drifted[0]["expected"], drifted[0]["found"]) == (0.2, 0.7)


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
