"""An lr that is edited while a schedule or the loop itself drives it: single cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lrs

from it2nb.core.session import Session
from tests.pytorch.schedules import NEW, SCHEDULES, STEPS, Make, optimizer_of
from tests.pytorch.steering import parameters, record, rows, run, statuses, train


def test_C01_lists_of_the_report() -> None:
    """The numbers as they stand in the report."""
    table: list[tuple[Make, Sequence[float]]] = [
        (lambda o: lrs.LambdaLR(o, lambda e: 1 - e / 10), [0.01, 0.008, 0.006, 0.004, 0.002]),
        (
            lambda o: lrs.CosineAnnealingLR(o, 10),
            [0.01, 0.00690983, 0.00412215, 0.00190983, 0.000489435],
        ),
    ]
    for make, tail in table:
        optimizer = optimizer_of()
        scheduler = make(optimizer)
        with run([scheduler]) as (session, _):
            used = record(optimizer)
            train(optimizer, 10, scheduler, {5: {"name": "lr", "value": 0.01}}, session=session)
        assert used[5:] == pytest.approx(tail, rel=1e-6)


def test_C03_edit_while_paused_reaches_the_first_step_after_resume() -> None:
    """While paused the knob shows the edit, and the next step uses it, also with a scheduler."""
    optimizer = optimizer_of()
    scheduler = lrs.LambdaLR(optimizer, lambda e: 1 - e / 10)
    shown: list[float] = []
    with run([scheduler]) as (session, _):
        used = record(optimizer)

        def meanwhile(session: Session) -> None:
            session.submit({"type": "pause"})
            session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.01}})
            session.action("look", replace=True)(
                lambda payload, session: shown.append(session.knobs["lr"].value)
            )
            session.submit({"type": "look"})
            session.submit({"type": "resume"})

        train(optimizer, 6, scheduler, {3: meanwhile}, session=session)

    assert shown == [0.01]
    assert used == pytest.approx([0.1, 0.09, 0.08, 0.01, 0.01 * 6 / 7, 0.01 * 5 / 7], rel=1e-6)


@pytest.mark.parametrize("every", [1, 4])
def test_a_loop_that_writes_lr_itself_is_rescaled_and_told(every: int) -> None:
    def by_loop(step: int) -> None:
        if (step - 1) % every == 0:
            optimizer.param_groups[0]["lr"] = 0.1 * 0.95 ** (step - 1)

    plain = [0.1 * 0.95 ** ((step // every) * every) for step in range(STEPS)]
    for mode in ("rescale", "hold"):
        optimizer = optimizer_of()
        with run() as (session, _):
            used = record(optimizer)
            edit = {"name": "lr", "value": NEW, "mode": mode}
            train(optimizer, STEPS, None, {9: edit}, session=session, before=by_loop)
        factor = NEW / plain[9]
        tail = [NEW] * (STEPS - 9) if mode == "hold" else [each * factor for each in plain[9:]]
        assert used == pytest.approx(plain[:9] + tail, rel=1e-6)
        if mode == "rescale":
            (drifted,) = rows(session, "knob_drifted")
            assert (drifted["by"], drifted["before"]) == ("the loop", 0.1)
            assert drifted["found"] < 0.1 and "kept" not in drifted
            said = [each["text"] for each in rows(session, "note") if "left" not in each]
            assert len(said) == 1 and f"{NEW!r} is in force in the place of" in said[0]


@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_loop_that_writes_lr_from_the_first_step_on(after: int) -> None:
    """There is no history yet from which it could be told that the loop writes lr."""
    for decay in (lambda lr: lr * 0.95, None):
        optimizer = optimizer_of()

        def by_loop(step: int, decay: Any = decay, optimizer: Any = optimizer) -> None:
            group = optimizer.param_groups[0]
            if decay is not None and step > 1:
                group["lr"] = decay(group["lr"])
            elif decay is None:
                group["lr"] = 0.1 * 0.95 ** (step - 1)

        with run() as (session, _):
            used = record(optimizer)
            edit = {"name": "lr", "value": NEW}
            train(optimizer, STEPS, None, {after: edit}, session=session, before=by_loop)
        plain = [0.1 * 0.95**step for step in range(STEPS)]
        tail = [each * NEW / plain[after] for each in plain[after:]]
        assert used == pytest.approx(plain[:after] + tail, rel=1e-6)


def test_a_schedule_at_0_says_that_the_edit_lasts_one_step() -> None:
    optimizer = optimizer_of()
    scheduler = lrs.LambdaLR(optimizer, lambda e: max(0.0, 1 - e / 5))
    with run([scheduler]) as (session, _):
        used = record(optimizer)
        train(optimizer, 10, scheduler, {7: {"name": "lr", "value": 0.01}}, session=session)

    assert used[7:] == [0.01, 0.0, 0.0]
    assert "mode hold keeps 0.01" in rows(session, "note")[0]["text"]


def test_a_schedule_that_ended_at_0_goes_on_from_the_edit() -> None:
    optimizer = optimizer_of()
    scheduler = lrs.PolynomialLR(optimizer, 5)
    with run([scheduler]) as (session, _):
        used = record(optimizer)
        train(optimizer, 10, scheduler, {7: {"name": "lr", "value": 0.01}}, session=session)

    assert used[4:] == pytest.approx([0.02, 0, 0, 0.01, 0.01, 0.01])


def test_cosine_does_not_explode_after_an_edit_at_its_trough() -> None:
    """CosineAnnealingLR reckons from the lr in the group: a value left there at 0 would grow."""
    optimizer = optimizer_of()
    scheduler = lrs.CosineAnnealingLR(optimizer, 10)
    with run([scheduler]) as (session, _):
        used = record(optimizer)
        train(optimizer, 21, scheduler, {10: {"name": "lr", "value": 0.01}}, session=session)

    wave = [0.01 * (1 + math.cos(math.pi * step / 10)) / 2 for step in range(21)]
    assert used[10:] == pytest.approx([0.01, *wave[11:]], rel=1e-6)


def test_an_edit_that_scales_the_schedule_far_up_is_warned_of() -> None:
    optimizer = optimizer_of()
    scheduler = lrs.LambdaLR(optimizer, lambda e: (e + 1) / 1000)
    with run([scheduler]) as (session, _):
        train(optimizer, 3, scheduler, {1: {"name": "lr", "value": 0.05}}, session=session)

    assert "its largest lr becomes 25" in rows(session, "note")[0]["text"]


@pytest.mark.parametrize("then", ["release", "edit"])
@pytest.mark.parametrize("name", ["LambdaLR", "CosineAnnealingLR", "ExponentialLR", "the loop"])
def test_an_lr_set_to_0_comes_back(name: str, then: str) -> None:
    (weight,) = parameters()
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scheduler = SCHEDULES[name](optimizer) if name in SCHEDULES else None
    schedule: list[float] = []

    def write(step: int) -> None:
        if scheduler is None:
            optimizer.param_groups[0]["lr"] = 0.1 - 0.001 * step
        schedule.append(optimizer.param_groups[0]["lr"])

    back = {"name": "lr", "value": NEW} if then == "edit" else {"name": "lr", "mode": "release"}
    with run([scheduler] if scheduler else []) as (session, _):
        used = record(optimizer)
        edits = {5: {"name": "lr", "value": 0.0}, 10: back}
        train(optimizer, 20, scheduler, edits, session=session, before=write)

    assert statuses(session) == ["applied", "applied"]
    assert used[5:10] == [0.0] * 5
    assert used[10] == pytest.approx(NEW if then == "edit" else schedule[10], rel=1e-9)
    assert all(used[10:])
    if name == "the loop":
        assert used[10:] == pytest.approx([used[10] / schedule[10] * lr for lr in schedule[10:]])
