"""Every scheduler, every mode, every moment: the lr of each step, exactly."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler as lrs
from torch.optim import swa_utils
from transformers import optimization as hf

from it2nb.core.session import Session
from it2nb.pytorch.optimizers import add_optimizer_knobs
from it2nb.pytorch.places import leaves, places_of
from tests.pytorch.steering import advance, parameters, record, rows, run, statuses, train

STEPS = 50
NEW = 0.013

Make = Callable[[torch.optim.Optimizer], Any]


class OwnSchedule(lrs.LRScheduler):
    """Someone's own, with an absolute lr in an attribute that nobody knows of."""

    floor = 0.004

    def get_lr(self) -> list[Any]:
        return [
            self.floor + (base - self.floor) / (1 + 0.1 * self.last_epoch) for base in self.base_lrs
        ]


class NotEvenAScheduler:
    """Duck-typed, recursive, and not a subclass of anything."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = 0.9 * group["lr"] + 0.001


class OwnLambda(lrs.LambdaLR):
    """A subclass that adds nothing to the arithmetic."""


def _sequential(optimizer: torch.optim.Optimizer) -> lrs.SequentialLR:
    warmup = lrs.LinearLR(optimizer, 0.1, total_iters=8)
    return lrs.SequentialLR(optimizer, [warmup, lrs.CosineAnnealingLR(optimizer, 30, 0.002)], [8])


def _warm_restarts(optimizer: torch.optim.Optimizer) -> lrs.SequentialLR:
    warmup = lrs.LambdaLR(optimizer, lambda e: e / 8)
    waves = lrs.CosineAnnealingWarmRestarts(optimizer, 9, eta_min=0.001)
    return lrs.SequentialLR(optimizer, [warmup, waves], [8])


def _nested(optimizer: torch.optim.Optimizer) -> lrs.ChainedScheduler:
    early = lrs.SequentialLR(
        optimizer,
        [lrs.LinearLR(optimizer, 0.25, total_iters=4), lrs.StepLR(optimizer, 9, 0.5)],
        [4],
    )
    return lrs.ChainedScheduler([early, lrs.ExponentialLR(optimizer, 0.95)])


SCHEDULES: dict[str, Make] = {
    "LambdaLR": lambda o: lrs.LambdaLR(o, lambda e: 1 / (1 + 0.1 * e)),
    "LambdaLR from 0": lambda o: lrs.LambdaLR(o, lambda e: min(1.0, e / 40)),
    "LambdaLR subclass": lambda o: OwnLambda(o, lambda e: 0.97**e),
    "MultiplicativeLR": lambda o: lrs.MultiplicativeLR(o, lambda e: 0.95),
    "StepLR": lambda o: lrs.StepLR(o, 7, 0.5),
    "MultiStepLR": lambda o: lrs.MultiStepLR(o, [3, 6, 32, 40], 0.3),
    "ConstantLR": lambda o: lrs.ConstantLR(o, 0.2, 20),
    "LinearLR": lambda o: lrs.LinearLR(o, 0.1, 0.8, 40),
    "ExponentialLR": lambda o: lrs.ExponentialLR(o, 0.93),
    "PolynomialLR": lambda o: lrs.PolynomialLR(o, 45, 2.0),
    "CosineAnnealingLR": lambda o: lrs.CosineAnnealingLR(o, 20, 0.003),
    "CosineAnnealingLR to 0": lambda o: lrs.CosineAnnealingLR(o, 33),
    "CosineAnnealingWarmRestarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 7, 2, 0.001),
    "CyclicLR": lambda o: lrs.CyclicLR(o, 0.01, 0.2, 5, 8),
    "CyclicLR exp_range": lambda o: lrs.CyclicLR(
        o, 0.01, 0.2, 4, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "OneCycleLR": lambda o: lrs.OneCycleLR(o, 0.2, total_steps=60),
    "OneCycleLR three phases": lambda o: lrs.OneCycleLR(
        o, 0.2, total_steps=55, three_phase=True, anneal_strategy="linear"
    ),
    "ReduceLROnPlateau": lambda o: lrs.ReduceLROnPlateau(o, factor=0.6, patience=3, min_lr=0.004),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.02, anneal_epochs=20),
    "SequentialLR": _sequential,
    "SequentialLR from 0": _warm_restarts,
    "ChainedScheduler of SequentialLR": _nested,
    "ChainedScheduler": lambda o: lrs.ChainedScheduler(
        [lrs.ConstantLR(o, 0.5, 9), lrs.ExponentialLR(o, 0.96)]
    ),
    "hf constant": lambda o: hf.get_constant_schedule_with_warmup(o, 10),
    "hf linear": lambda o: hf.get_linear_schedule_with_warmup(o, 10, 70),
    "hf cosine": lambda o: hf.get_cosine_schedule_with_warmup(o, 10, 70),
    "hf cosine restarts": lambda o: hf.get_cosine_with_hard_restarts_schedule_with_warmup(
        o, 5, 64, 3
    ),
    "hf cosine min lr": lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(
        o, 5, 70, min_lr=0.01
    ),
    "hf polynomial": lambda o: hf.get_polynomial_decay_schedule_with_warmup(
        o, 10, 70, lr_end=0.001, power=2.0
    ),
    "hf inverse sqrt": lambda o: hf.get_inverse_sqrt_schedule(o, 10),
    "hf wsd": lambda o: hf.get_wsd_schedule(o, 6, 40, num_training_steps=70),
    "hf greedy": lambda o: hf.GreedyLR(o, patience=1, factor=0.8, min_lr=1e-3, max_lr=0.3),
    "unknown subclass": OwnSchedule,
    "duck-typed": NotEvenAScheduler,
}


def optimizer_of(lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters(), lr=lr, momentum=0.9)


@functools.cache
def pristine(name: str) -> tuple[float, ...]:
    """The schedule without us: no session, no hooks."""
    optimizer = optimizer_of()
    scheduler = SCHEDULES[name](optimizer)
    used = record(optimizer)
    for _ in range(STEPS):
        optimizer.step()
        advance(scheduler)
    return tuple(used)


def expected(name: str, mode: str, after: int, value: float) -> list[float]:
    """What each step uses when `value` is asked after step `after`."""
    plain = list(pristine(name))
    rest = plain[after:]
    if mode == "hold":
        rest = [value] * len(rest)
    elif mode == "rescale":
        # A step that would use 0 has no factor: the schedule goes by its initial value then.
        factor = value / rest[0] if rest[0] else value / 0.1
        rest = [value, *(each * factor for each in rest[1:])]
    else:
        rest[0] = value
    return plain[:after] + rest


def _pause(session: Session) -> None:
    session.submit({"type": "pause"})


def _resume(session: Session) -> None:
    session.submit({"type": "resume"})


def used_with(name: str, edits: Any, *, bound: bool = True) -> tuple[list[float], Session]:
    optimizer = optimizer_of()
    scheduler = SCHEDULES[name](optimizer)
    with run([scheduler] if bound else []) as (session, _):
        used = record(optimizer)
        train(optimizer, STEPS, scheduler, edits, session=session)
    return used, session


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
    asked: list[Any] = [_pause, edit, _resume] if paused else [edit]
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
    assert rows(session, "note") == []


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
            drifted = rows(session, "knob_drifted")
            assert [each["by"] for each in drifted] == ["the loop"]
            assert drifted[0]["kept"] is True


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
