"""Momentum, weight decay and tensors under schedules, and loops without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lrs

from it2nb.core.session import Session
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.schedules import Make, optimizer_of
from tests.pytorch.steering import parameters, record, rows, run, statuses, train


@pytest.mark.parametrize("kind", ["momentum", "betas[0]"])
@pytest.mark.parametrize("mode", ["rescale", "hold", "release"])
@pytest.mark.parametrize(
    "make",
    [
        lambda o: lrs.OneCycleLR(o, 0.1, total_steps=40),
        lambda o: lrs.CyclicLR(o, 0.01, 0.1, 6, 9),
    ],
    ids=["OneCycleLR", "CyclicLR"],
)
def test_momentum_under_a_cycle_obeys_the_same_laws(make: Make, mode: str, kind: str) -> None:
    def fresh() -> tuple[torch.optim.Optimizer, Any]:
        weights = parameters()
        optimizer: torch.optim.Optimizer
        if kind == "momentum":
            optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
        else:
            optimizer = torch.optim.AdamW(weights, lr=0.1)
        return optimizer, make(optimizer)

    def momenta(used: list[Any]) -> list[float]:
        return [each if kind == "momentum" else each[0] for each in used]

    key = kind.partition("[")[0]
    optimizer, scheduler = fresh()
    plain = record(optimizer, key)
    for _ in range(30):
        optimizer.step()
        scheduler.step()
    optimizer, scheduler = fresh()
    with run([scheduler]) as (session, _):
        used = record(optimizer, key)
        edit = {"name": kind, "value": 0.5, "mode": mode}
        train(optimizer, 30, scheduler, {5: edit}, session=session)

    want = momenta(plain)
    if mode == "hold":
        want[5:] = [0.5] * 25
    elif mode == "release":
        want[5] = 0.5
    else:
        want[5:] = [each * 0.5 / want[5] for each in want[5:]]
    assert statuses(session) == ["applied"]
    assert momenta(used) == pytest.approx(want, rel=1e-6)
    if kind == "betas[0]":
        assert all(each[1] == 0.999 for each in used)


def test_momentum_whose_cycle_would_reach_1_is_rejected_with_the_largest_that_can_be() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1, momentum=0.9)
    scheduler = lrs.OneCycleLR(optimizer, 0.1, total_steps=40)
    with run([scheduler]) as (session, _):
        used = record(optimizer, "momentum")
        train(optimizer, 40, scheduler, {5: {"name": "momentum", "value": 0.99}}, session=session)

    assert statuses(session) == ["rejected"]
    assert "or pick mode hold" in rows(session, "action_result")[0]["reason"]
    assert max(used) <= 0.95


def test_mode_is_shown_and_an_edit_after_release_rescales_again() -> None:
    optimizer = optimizer_of()
    scheduler = lrs.ExponentialLR(optimizer, 0.9)
    modes: list[str | None] = []
    with run([scheduler]) as (session, _):
        used = record(optimizer)
        train(
            optimizer, 9, scheduler,
            {
                2: {"name": "lr", "value": 0.01, "mode": "hold"},
                4: {"name": "lr", "mode": "release"},
                6: {"name": "lr", "value": 0.02},
            },
            session=session,
            after=lambda step: modes.append(session.knobs["lr"].view().mode),
        )  # fmt: skip

    assert modes == ["rescale", "hold", "hold", "release", "release", *["rescale"] * 4]
    want = [0.1, 0.09, 0.01, 0.01, 0.1 * 0.9**4, 0.1 * 0.9**5]
    assert used == pytest.approx([*want, 0.02, 0.018, 0.0162], rel=1e-6)


def test_a_tensor_lr_under_a_scheduler_stays_the_same_object() -> None:
    lr = torch.tensor(0.1)
    optimizer = torch.optim.Adam(parameters(), lr=lr)
    scheduler = lrs.CosineAnnealingLR(optimizer, 10)
    with run([scheduler]) as (session, _):
        used = record(optimizer)
        train(optimizer, 10, scheduler, {5: {"name": "lr", "value": 0.01}}, session=session)

    assert optimizer.param_groups[0]["lr"] is lr
    tail = [0.01, 0.00690983, 0.00412215, 0.00190983, 0.000489435]
    assert used[5:] == pytest.approx(tail, rel=1e-5)


@pytest.mark.parametrize("mode", ["rescale", "hold", "release"])
def test_edit_after_the_scheduler_moved_is_in_force_at_the_next_step(mode: str) -> None:
    """The paper's loop: the control point comes after scheduler.step()."""
    optimizer = optimizer_of()
    scheduler = lrs.LambdaLR(optimizer, lambda e: 1 - e / 10)
    session = Session(directory=None)
    session.bind(optimizers=[optimizer], schedulers=[scheduler])
    add_optimizer_knobs(session, optimizer)
    used = record(optimizer)
    with session.run():
        for step in range(10):
            optimizer.step()
            scheduler.step()
            if step == 4:
                session.submit(
                    {"type": "set_knob", "payload": {"name": "lr", "value": 0.01, "mode": mode}}
                )
            session.step({"loss": 1.0})

    tails = {
        "rescale": [0.01, 0.008, 0.006, 0.004, 0.002],
        "hold": [0.01] * 5,
        "release": [0.01, 0.04, 0.03, 0.02, 0.01],
    }
    assert used == pytest.approx([0.1, 0.09, 0.08, 0.07, 0.06, *tails[mode]], rel=1e-6)


@pytest.mark.parametrize("mode", ["rescale", "hold", "release"])
def test_without_a_scheduler_an_edit_stays_and_release_takes_it_back(mode: str) -> None:
    optimizer = optimizer_of()
    with run() as (session, _):
        used = record(optimizer)
        edits: dict[int, dict[str, Any]] = {
            2: {"name": "lr", "value": 0.02, "mode": mode},
            4: {"name": "lr", "mode": "release"},
        }
        train(optimizer, 6, None, edits, session=session)
    kept = 0.1 if mode == "release" else 0.02
    assert used == [0.1, 0.1, 0.02, kept, 0.1, 0.1]


def test_a_held_value_wins_over_a_loop_that_begins_to_write_lr_and_that_is_told() -> None:
    optimizer = optimizer_of()

    def by_loop(step: int) -> None:
        if step >= 4:
            optimizer.param_groups[0]["lr"] = 0.01 * step

    with run() as (session, _):
        used = record(optimizer)
        edits: dict[int, dict[str, Any]] = {
            1: {"name": "lr", "value": 0.02, "mode": "hold"},
            7: {"name": "lr", "mode": "release"},
        }
        train(optimizer, 9, None, edits, session=session, before=by_loop)
    assert used == pytest.approx([0.1, *[0.02] * 6, 0.08, 0.09])
    drifted = rows(session, "knob_drifted")
    assert [(each["found"], each["kept"], each["mode"]) for each in drifted] == [
        (0.04, True, "hold")
    ]


def test_weight_decay_that_the_loop_schedules_is_rescaled() -> None:
    """As self-supervised training does: weight_decay rises step by step."""
    optimizer = torch.optim.AdamW(parameters(), lr=0.1)

    def by_loop(step: int) -> None:
        optimizer.param_groups[0]["weight_decay"] = 0.01 * step

    with run() as (session, _):
        used = record(optimizer, "weight_decay")
        edits = {3: {"name": "weight_decay", "value": 0.4}}
        train(optimizer, 8, None, edits, session=session, before=by_loop)
    assert used == pytest.approx([0.01, 0.02, 0.03, 0.4, 0.5, 0.6, 0.7, 0.8])


def test_a_scheduler_that_moves_once_an_epoch_is_rescaled_from_the_edit_on() -> None:
    optimizer = optimizer_of()
    scheduler = lrs.StepLR(optimizer, 1, 0.5)
    with run([scheduler]) as (session, _):
        used = record(optimizer)
        for epoch in range(3):
            edits = {2: {"name": "lr", "value": 0.3}} if epoch == 1 else {}
            train(optimizer, 4, None, edits, session=session)
            scheduler.step()
    assert used == pytest.approx([0.1] * 4 + [0.05] * 2 + [0.3] * 2 + [0.15] * 4)
    assert rows(session, "knob_drifted") == []


def test_edits_of_an_optimizer_whose_gradients_were_skipped_wait_for_its_next_step() -> None:
    """An epoch without a step in between: the schedule moved on, the edit holds all the same."""
    optimizer = optimizer_of()
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    with run([scheduler]) as (session, _):
        used = record(optimizer)
        train(optimizer, 2, scheduler, {2: {"name": "lr", "value": 0.3}}, session=session)
        scheduler.step()
        scheduler.step()
        train(optimizer, 2, scheduler, session=session)
    assert used == pytest.approx([0.1, 0.05, 0.3, 0.15])


@pytest.mark.parametrize("mode", ["rescale", "hold"])
@pytest.mark.parametrize(
    "second",
    [
        lambda o: lrs.LambdaLR(o, lambda e: 1 / (1 + e)),
        lambda o: lrs.CosineAnnealingLR(o, 9, 0.004),
        lambda o: lrs.OneCycleLR(o, 0.2, total_steps=30, cycle_momentum=False),
    ],
    ids=["LambdaLR", "CosineAnnealingLR", "OneCycleLR"],
)
def test_C01_an_edit_under_a_scheduler_of_a_second_phase_is_kept(second: Make, mode: str) -> None:
    """The first phase's is known and still there; nobody tells us of the second one."""

    def used_with(edits: dict[int, Any]) -> list[float]:
        optimizer = optimizer_of()
        schedulers = [lrs.StepLR(optimizer, 1, 0.9)]
        used = record(optimizer)
        with run(schedulers) as (session, _):
            # One edit in the first phase, so that the scheduler has been looked for.
            train(optimizer, 4, schedulers[0], {2: {"name": "lr", "value": 0.1}}, session=session)
            schedulers.append(second(optimizer))
            train(optimizer, 8, schedulers[1], edits, session=session)
        return used

    plain = used_with({})
    used = used_with({3: {"name": "lr", "value": 0.01, "mode": mode}})
    rest = plain[7:]
    expected = [0.01] * 5 if mode == "hold" else [each * 0.01 / rest[0] for each in rest]
    assert used == pytest.approx([*plain[:7], *expected])
