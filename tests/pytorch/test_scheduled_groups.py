"""Groups under schedules: ratios, and edits of one of them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lrs

from tests.pytorch.schedules import NEW, SCHEDULES
from tests.pytorch.steering import advance, parameters, record, run, statuses, train


@pytest.mark.parametrize("name", SCHEDULES)
def test_C18_groups_keep_their_ratios_under_every_schedule(name: str) -> None:
    def fresh() -> tuple[torch.optim.Optimizer, Any]:
        groups = [{"params": parameters(), "lr": lr} for lr in (0.1, 0.017)]
        optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9)
        return optimizer, SCHEDULES[name](optimizer)

    optimizer, scheduler = fresh()
    plain = record(optimizer, at=None)
    for _ in range(30):
        optimizer.step()
        advance(scheduler)
    optimizer, scheduler = fresh()
    with run([scheduler]) as (session, _):
        used = record(optimizer, at=None)
        edits: dict[int, dict[str, Any]] = {
            5: {"name": "lr", "value": NEW},
            12: {"name": "lr[1]", "value": 0.002, "mode": "hold"},
            20: {"name": "lr", "mode": "release"},
        }
        train(optimizer, 30, scheduler, edits, session=session)

    factor = NEW / plain[5][0]
    want = (
        plain[:5]
        + [[a * factor, b * factor] for a, b in plain[5:12]]
        + [[a * factor, 0.002] for a, _ in plain[12:20]]
        + plain[20:]
    )
    for step, (got, expect) in enumerate(zip(used, want, strict=True)):
        assert got == pytest.approx(expect, rel=1e-6), step


@pytest.mark.parametrize("scheduled", [True, False])
def test_all_groups_after_one_at_the_same_control_point_keep_the_ratios_that_are_shown(
    scheduled: bool,
) -> None:
    groups = [{"params": parameters(), "lr": lr} for lr in (0.1, 0.02)]
    optimizer = torch.optim.SGD(groups)
    scheduler = lrs.ExponentialLR(optimizer, 0.9) if scheduled else None
    with run([scheduler] if scheduled else []) as (session, _):
        used = record(optimizer, at=None)
        one_then_all = [{"name": "lr[1]", "value": 0.5}, {"name": "lr", "value": 0.2}]
        shown: list[float] = []

        def look(step: int) -> None:
            if step == 3:
                shown[:] = [session.knobs[name].value for name in ("lr[0]", "lr[1]")]

        train(optimizer, 3, scheduler, {2: one_then_all}, session=session, before=look)

    assert statuses(session) == ["applied", "applied"]
    ratio = 0.5 / (0.1 * 0.9 if scheduled else 0.1)
    assert used[2] == shown == pytest.approx([0.2, 0.2 * ratio], rel=1e-12)


def test_groups_held_apart_go_on_from_the_values_that_are_shown() -> None:
    groups = [{"params": parameters(), "lr": lr} for lr in (0.1, 0.02)]
    optimizer = torch.optim.SGD(groups)
    scheduler = lrs.ExponentialLR(optimizer, 0.9)
    with run([scheduler]) as (session, _):
        used = record(optimizer, at=None)
        edits: dict[int, Any] = {
            2: {"name": "lr", "mode": "hold"},
            3: [{"name": "lr[1]", "value": 0.5}, {"name": "lr", "value": 0.2}],
            6: {"name": "lr", "mode": "rescale"},
        }
        train(optimizer, 8, scheduler, edits, session=session)

    held = pytest.approx([0.2, 0.5 * 0.2 / 0.09])
    assert used[3] == held
    assert used[6] == held
    assert used[7] == pytest.approx([0.9 * each for each in used[6]])


@pytest.mark.parametrize("mode", ["rescale", "hold"])
@pytest.mark.parametrize("name", ["CosineAnnealingLR", "OneCycleLR", "unknown subclass"])
def test_weights_are_to_the_bit_those_of_a_loop_that_sets_each_lr_by_hand(
    name: str, mode: str
) -> None:
    def fresh() -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        weight = torch.nn.Parameter(torch.linspace(-1, 1, 6).reshape(2, 3))
        return weight, torch.optim.AdamW([weight], lr=0.1)

    def step(weight: torch.nn.Parameter, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        (weight**4).sum().backward()
        optimizer.step()

    weight, optimizer = fresh()
    scheduler = SCHEDULES[name](optimizer)
    with run([scheduler]) as (session, _):
        lrs_used, betas_used = record(optimizer), record(optimizer, "betas")
        for number in range(30):
            if number == 6:
                payload = {"name": "lr", "value": NEW, "mode": mode}
                session.submit({"type": "set_knob", "payload": payload})
            step(weight, optimizer)
            scheduler.step()
    other, reference = fresh()
    for lr, betas in zip(lrs_used, betas_used, strict=True):
        reference.param_groups[0].update(lr=lr, betas=betas)
        step(other, reference)

    assert lrs_used[7] == NEW
    assert torch.equal(weight, other)


def test_groups_of_a_cosine_with_a_floor_can_be_scaled_apart() -> None:
    """eta_min is one number for all groups; an edit of one group leaves the others alone."""
    groups = [{"params": parameters(), "lr": 0.1}, {"params": parameters(), "lr": 0.05}]
    optimizer = torch.optim.SGD(groups)
    scheduler = lrs.CosineAnnealingLR(optimizer, 30, 0.01)
    plain = [
        [0.01 + (base - 0.01) * (1 + math.cos(math.pi * step / 30)) / 2 for base in (0.1, 0.05)]
        for step in range(30)
    ]
    with run([scheduler]) as (session, _):
        used = record(optimizer, at=None)
        edits: dict[int, dict[str, Any]] = {
            5: {"name": "lr[1]", "value": 0.02},
            9: {"name": "lr", "value": 0.05},
            15: {"name": "lr", "mode": "release"},
        }
        train(optimizer, 30, scheduler, edits, session=session)

    f1 = 0.02 / plain[5][1]
    f2 = 0.05 / plain[9][0]
    want = (
        plain[:5]
        + [[a, b * f1] for a, b in plain[5:9]]
        + [[a * f2, b * f1 * f2] for a, b in plain[9:15]]
        + plain[15:]
    )
    for got, expect in zip(used, want, strict=True):
        assert got == pytest.approx(expect, rel=1e-6)


def test_groups_with_different_schedules_keep_theirs() -> None:
    groups = [{"params": parameters(), "lr": 0.1}, {"params": parameters(), "lr": 0.02}]
    optimizer = torch.optim.SGD(groups)
    scheduler = lrs.LambdaLR(optimizer, [lambda e: 1 - e / 20, lambda e: 0.9**e])
    with run([scheduler]) as (session, _):
        used = record(optimizer, at=None)
        train(optimizer, 12, scheduler, {5: {"name": "lr", "value": 0.03}}, session=session)

    factor = 0.03 / (0.1 * (1 - 5 / 20))
    for step in range(5, 12):
        want = [0.1 * (1 - step / 20) * factor, 0.02 * 0.9**step * factor]
        assert used[step] == pytest.approx(want, rel=1e-6)
