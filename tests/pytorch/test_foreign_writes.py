"""An lr that another cell wrote now and then: no schedule, so a request is simply in force."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from it2nb.core.session import Session
from it2nb.panel.rows import mark_of
from tests.pytorch.schedules import optimizer_of
from tests.pytorch.steering import parameters, record, rows, run, train


def notes(session: Session, level: str = "info") -> list[str]:
    return [each["text"] for each in rows(session, "note") if each["level"] == level]


@pytest.mark.parametrize("group", [0, 1])
def test_a_value_that_nobody_asked_for_and_that_stays_is_told_once(group: int) -> None:
    optimizer = torch.optim.SGD(
        [{"params": parameters(), "lr": lr} for lr in (0.002, 0.004)], momentum=0.5
    )

    def by_hand(step: int) -> None:
        if step in (11, 80):
            optimizer.param_groups[group].update(lr=0.5, momentum=0.25)
        if step == 60:
            optimizer.param_groups[group]["lr"] = 0.6

    with run() as (session, _):
        train(optimizer, 200, session=session, before=by_hand)
        shown = [each for each in session.warnings if "no request asked" in each]
    lr, momentum = notes(session, "warning")
    assert shown == [lr, momentum]
    old = 0.002 * (group + 1)
    assert lr.startswith(f"lr[{group}] is 0.5 since step 10, and no request asked for it: the loop")
    assert f"wrote it over {old};" in lr
    assert momentum.startswith(f"momentum[{group}] is 0.25 since step 64")
    drifts = session.journal.tail(900, ("knob_drifted",))
    marks = [mark for mark in map(mark_of, drifts) if mark is not None]
    name = "lr" if group == 0 else "lr[1]"
    assert [(each.step, each.label) for each in marks if "lr" in each.label] == [
        (10, f"{name} 0.5, not asked")
    ]


@pytest.mark.parametrize("every", [1, 4])
def test_a_schedule_of_the_loop_is_a_row_and_no_warning(every: int) -> None:
    optimizer = optimizer_of()

    def by_loop(step: int) -> None:
        if step > 1 and step % every == 0:
            optimizer.param_groups[0]["lr"] = 0.1 * 0.99**step

    with run() as (session, _):
        train(optimizer, 100, session=session, before=by_loop)
        assert session.warnings == []
    assert len(rows(session, "knob_drifted")) == 1
    assert notes(session, "warning") == []


@pytest.mark.parametrize("writes", [(3,), (3, 8), (2, 8, 9)], ids=str)
@pytest.mark.parametrize("mode", ["rescale", "hold"])
def test_a_request_after_somebody_wrote_lr_by_hand_stands_where_it_is_shown(
    writes: tuple[int, ...], mode: str
) -> None:
    optimizer = optimizer_of()
    stood: list[float] = []

    def by_hand(step: int) -> None:
        if step in writes:
            optimizer.param_groups[0]["lr"] = 0.01 * step

    with run() as (session, _):
        used = record(optimizer)
        train(
            optimizer, 20, None, {11: {"name": "lr", "value": 0.002, "mode": mode}},
            session=session, before=by_hand,
            after=lambda step: stood.append(optimizer.param_groups[0]["lr"]),
        )  # fmt: skip
        assert session.knobs["lr"].value == 0.002
    assert used[11:] == stood[11:] == [0.002] * 9
    assert notes(session) == []


def test_what_is_written_by_hand_after_a_request_is_in_force_as_it_is() -> None:
    optimizer = optimizer_of()

    def by_hand(step: int) -> None:
        if step in (3, 14):
            optimizer.param_groups[0]["lr"] = 0.01 * step

    with run() as (session, _):
        used = record(optimizer)
        edits = {8: {"name": "lr", "value": 0.002}}
        train(optimizer, 20, None, edits, session=session, before=by_hand)
        assert session.knobs["lr"].value == 0.14
    assert used[8:] == [0.002] * 5 + [0.14] * 7
    (_, after_edit) = rows(session, "knob_drifted")
    assert (after_edit["before"], after_edit["found"], after_edit["kept"]) == (0.002, 0.14, False)


def test_what_is_written_by_hand_while_a_request_waits_is_told_and_multiplies_nothing() -> None:
    """As in a pause: a request, then another cell, then the step that both are meant for."""
    optimizer = optimizer_of()

    def by_hand(step: int) -> None:
        if step == 9:
            optimizer.param_groups[0]["lr"] = 0.5

    with run() as (session, _):
        used = record(optimizer)
        edits: dict[int, Any] = {8: {"name": "lr", "value": 0.002}}
        train(optimizer, 20, None, edits, session=session, before=by_hand)
    assert used[8:] == [0.002] * 12
    assert optimizer.param_groups[0]["lr"] == 0.002
    (told,) = rows(session, "knob_drifted")
    assert (told["before"], told["found"], told["kept"]) == (0.002, 0.5, True)
    assert notes(session) == []


@pytest.mark.parametrize("after", [1, 2, 8])
def test_a_loop_that_writes_one_constant_before_each_step_keeps_no_request_out(after: int) -> None:
    """As ``param_group["lr"] = lr`` does with an lr that stays: the very same object each time."""
    optimizer, lr = optimizer_of(), 0.1

    def by_loop(step: int) -> None:
        optimizer.param_groups[0]["lr"] = lr if step < 15 else lr / 2

    with run() as (session, _):
        used = record(optimizer)
        edits = {after: {"name": "lr", "value": 0.002}}
        train(optimizer, 20, None, edits, session=session, before=by_loop)
    assert used[after:] == pytest.approx([0.002] * (14 - after) + [0.001] * 6)


def test_a_write_before_the_first_step_is_no_schedule() -> None:
    optimizer = optimizer_of()

    def before(step: int) -> None:
        if step == 1:
            optimizer.param_groups[0]["lr"] = 0.05

    with run() as (session, _):
        session.pump()
        used = record(optimizer)
        edits = {4: {"name": "lr", "value": 0.002}}
        train(optimizer, 8, None, edits, session=session, before=before)
        assert optimizer.param_groups[0]["lr"] == 0.002
    assert used == [0.05] * 4 + [0.002] * 4


@pytest.mark.parametrize("ended_before", [1, 3, 30])
def test_a_warm_up_of_the_loop_is_rescaled_while_it_lasts(ended_before: int) -> None:
    optimizer = optimizer_of()
    edit_after = 20 + ended_before

    def by_loop(step: int) -> None:
        if step <= 20:
            optimizer.param_groups[0]["lr"] = 0.005 * step

    with run() as (session, _):
        used = record(optimizer)
        edits = {10: {"name": "lr", "value": 0.01}, edit_after: {"name": "lr", "value": 0.002}}
        train(optimizer, 60, None, edits, session=session, before=by_loop)
    factor = 0.01 / 0.055
    assert used[10:20] == pytest.approx([0.005 * step * factor for step in range(11, 21)])
    assert used[edit_after:] == pytest.approx([0.002] * (60 - edit_after))


def test_a_warm_up_of_the_loop_that_is_over_drives_nothing() -> None:
    optimizer = optimizer_of()

    def by_loop(step: int) -> None:
        if step <= 20:
            optimizer.param_groups[0]["lr"] = 0.005 * step

    with run() as (session, _):
        edits = {25: {"name": "lr", "value": 0.002}}
        train(optimizer, 30, None, edits, session=session, before=by_loop)
        assert optimizer.param_groups[0]["lr"] == 0.002
    assert notes(session) == []


def test_a_loop_that_writes_once_an_epoch_is_rescaled() -> None:
    optimizer = optimizer_of()
    decays = itertools.count(1)

    def by_loop(step: int) -> None:
        if step > 1 and (step - 1) % 10 == 0:
            optimizer.param_groups[0]["lr"] = 0.1 * 0.5 ** next(decays)

    with run() as (session, _):
        used = record(optimizer)
        edits = {25: {"name": "lr", "value": 0.002}}
        train(optimizer, 50, None, edits, session=session, before=by_loop)
    assert used[25:] == pytest.approx([0.002] * 5 + [0.001] * 10 + [0.0005] * 10)
    (said,) = (each for each in notes(session) if "stays" not in each)
    assert "0.002 is in force" in said
