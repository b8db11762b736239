"""Every scheduler, every mode, every moment: the lr of each step, exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from it2nb.core.session import Session
from it2nb.pytorch.optimizers import add_optimizer_knobs
from it2nb.pytorch.places import leaves, places_of
from tests.pytorch.schedules import (
    NEW,
    SCHEDULES,
    STEPS,
    expected,
    optimizer_of,
    pause,
    pristine,
    resume,
    used_with,
)
from tests.pytorch.steering import advance, record, rows, run, statuses, train


@pytest.mark.parametrize(
    ("after", "paused"),
    [(0, False), (5, False), (31, False), (5, True)],
    ids=["0", "5", "31", "5 paused"],
)
@pytest.mark.parametrize("mode", ["rescale", "hold", "release"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_C01_C03_edit_is_in_force_at_the_next_step_and_then_by_its_mode(
    name: str, mode: str, after: int, paused: bool
) -> None:
    edit = {"name": "lr", "value": NEW, "mode": mode}
    asked: list[Any] = [pause, edit, resume] if paused else [edit]
    used, session = used_with(name, {after: asked})

    assert statuses(session) == ["applied"] * len(asked)
    assert used[after] == NEW
    assert used == pytest.approx(expected(name, mode, after, NEW), rel=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_C01_hold_until_released_and_then_exactly_the_schedule(name: str) -> None:
    used, _ = used_with(
        name,
        {
            5: {"name": "lr", "value": NEW, "mode": "hold"},
            9: {"name": "lr", "value": 2 * NEW},
            12: {"name": "lr", "mode": "release"},
        },
    )

    plain = list(pristine(name))
    # To the bit: the scheduler never saw what was held.
    assert used == plain[:5] + [NEW] * 4 + [2 * NEW] * 3 + plain[12:]


@pytest.mark.parametrize("name", SCHEDULES)
def test_C01_release_takes_a_rescaled_schedule_back(name: str) -> None:
    used, _ = used_with(
        name, {5: {"name": "lr", "value": NEW}, 12: {"name": "lr", "mode": "release"}}
    )

    rescaled = expected(name, "rescale", 5, NEW)
    assert used == pytest.approx([*rescaled[:12], *pristine(name)[12:]], rel=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_rescale_goes_on_from_a_held_value(name: str) -> None:
    used, _ = used_with(
        name,
        {
            5: {"name": "lr", "value": NEW, "mode": "hold"},
            9: {"name": "lr", "mode": "rescale"},
        },
    )

    rest = pristine(name)[9:]
    want = [*pristine(name)[:5], *[NEW] * 4, *(each * NEW / rest[0] for each in rest)]
    assert used == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("after", [0, 5, 31])
@pytest.mark.parametrize("name", SCHEDULES)
def test_setting_the_value_that_the_knob_shows_changes_nothing_at_all(
    name: str, after: int
) -> None:
    def as_shown(session: Session) -> None:
        optimizer = optimizers[0]
        add_optimizer_knobs(session, optimizer)
        session.submit(
            {"type": "set_knob", "payload": {"name": "lr", "value": session.knobs["lr"].value}}
        )

    optimizers = [optimizer_of()]
    scheduler = SCHEDULES[name](optimizers[0])
    with run([scheduler]) as (session, _):
        used = record(optimizers[0])

        # Asked with what is shown at the control point itself, inside of it.
        def at_control_point(session: Session) -> None:
            if session.step_count == after and not done:
                done.append(True)
                as_shown(session)

        done: list[bool] = []
        if after == 0:
            as_shown(session)
        else:
            session.every(1, at_control_point)
        train(optimizers[0], STEPS, scheduler, session=session)

    assert statuses(session) == ["applied"]
    assert used == list(pristine(name))


@pytest.mark.parametrize("name", SCHEDULES)
def test_two_edits_in_a_row_are_one_after_the_other(name: str) -> None:
    used, _ = used_with(
        name,
        {
            5: {"name": "lr", "value": NEW},
            6: {"name": "lr", "value": 0.02},
            31: {"name": "lr", "value": 0.5},
        },
    )

    rest = pristine(name)
    want = list(rest)
    want[5] = NEW
    for start, end, value in ((6, 31, 0.02), (31, STEPS, 0.5)):
        base = rest[start]
        want[start:end] = [each * value / base for each in rest[start:end]]
    assert used == pytest.approx(want, rel=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_an_edit_taken_back_before_any_step_changes_nothing_at_all(name: str) -> None:
    def there_and_back(session: Session) -> None:
        before = session.knobs["lr"].value
        for value in (NEW, 0.2, before):
            session.submit({"type": "set_knob", "payload": {"name": "lr", "value": value}})

    optimizer = optimizer_of()
    scheduler = SCHEDULES[name](optimizer)
    with run([scheduler]) as (session, _):
        used = record(optimizer)

        def at_control_point(session: Session) -> None:
            if session.step_count == 5:
                there_and_back(session)

        session.every(5, at_control_point)
        train(optimizer, STEPS, scheduler, session=session)

    assert used == list(pristine(name))


@pytest.mark.parametrize("mode", ["rescale", "hold"])
@pytest.mark.parametrize("name", SCHEDULES)
def test_a_scheduler_that_nobody_told_us_of_keeps_its_shape_too(name: str, mode: str) -> None:
    used, _ = used_with(name, {5: {"name": "lr", "value": NEW, "mode": mode}}, bound=False)

    assert used == pytest.approx(expected(name, mode, 5, NEW), rel=1e-6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_scheduler_made_after_attaching_warns_of_nothing(name: str) -> None:
    """C36, C37: warnings are errors here."""
    optimizer = optimizer_of()
    with run() as (session, _):
        add_optimizer_knobs(session, optimizer)
        scheduler = SCHEDULES[name](optimizer)
        used = record(optimizer)
        train(optimizer, STEPS, scheduler, {5: {"name": "lr", "value": NEW}}, session=session)

    assert used == pytest.approx(expected(name, "rescale", 5, NEW), rel=1e-6)
    notes = [each for each in rows(session, "note") if "left" not in each]
    assert [each["text"] for each in notes if each["level"] != "info"] == []


@pytest.mark.parametrize("name", SCHEDULES)
def test_saved_scheduler_state_carries_a_rescaled_schedule_on(name: str) -> None:
    """What is saved after an edit goes on alike without us, where the state says it all."""
    optimizer = optimizer_of()
    scheduler = SCHEDULES[name](optimizer)
    if places_of(next(leaves(scheduler))) is None:
        return_to_schedule(optimizer, scheduler)
        return
    with run([scheduler]) as (session, _):
        train(optimizer, 20, scheduler, {5: {"name": "lr", "value": NEW}}, session=session)
        saved = (optimizer.state_dict(), scheduler.state_dict())
    fresh = optimizer_of()
    again = SCHEDULES[name](fresh)
    fresh.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    used = record(fresh)
    for _ in range(STEPS - 20):
        fresh.step()
        advance(again)

    assert used == pytest.approx(expected(name, "rescale", 5, NEW)[20:], rel=1e-6)


def return_to_schedule(optimizer: torch.optim.Optimizer, scheduler: Any) -> None:
    """An unknown scheduler keeps its own world: what stands between steps is its own value."""
    with run([scheduler]) as (session, _):
        seen: list[float] = []
        train(
            optimizer, 20, scheduler, {5: {"name": "lr", "value": NEW}}, session=session,
            before=lambda step: seen.append(optimizer.param_groups[0]["lr"]),
        )  # fmt: skip
    own = optimizer_of()
    other = type(scheduler)(own)
    plain: list[float] = []
    for _ in range(20):
        plain.append(own.param_groups[0]["lr"])
        own.step()
        other.step()
    assert seen == plain
