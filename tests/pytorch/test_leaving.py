"""What stands in the parameter groups after a run, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.optim import Optimizer
from torch.optim import lr_scheduler as lrs

from it2nb.core.session import Session
from tests.pytorch.hyper import both
from tests.pytorch.steering import parameters, record, rows, run, statuses, train


def left(session: Session) -> list[dict[str, Any]]:
    """Return the notes about what was left."""
    return [each for each in rows(session, "note") if "left" in each]


def writes_1(optimizer: Optimizer) -> Callable[[int], None]:
    """Return a loop's line: it writes 1.0 before each step."""

    def line(step: int) -> None:
        optimizer.param_groups[0]["lr"] = 1.0

    return line


def halves(optimizer: Optimizer) -> Callable[[int], None]:
    """Return a loop's line: it halves the lr of every group before each step but the first."""

    def line(step: int) -> None:
        for group in optimizer.param_groups if step > 1 else ():
            group["lr"] *= 0.5

    return line


@pytest.mark.parametrize("make", [float, torch.tensor], ids=["float", "tensor"])
@pytest.mark.parametrize("loop", [writes_1, halves])
def test_the_lr_in_force_at_the_end_stays_where_no_scheduler_drives_it(
    loop: Callable[[Optimizer], Callable[[int], None]], make: Callable[[float], Any]
) -> None:
    optimizer = torch.optim.SGD(parameters(), lr=make(0.1))
    with run() as (session, _):
        used = record(optimizer)
        edits = {4: {"name": "lr", "value": 0.002}}
        train(optimizer, 6, None, edits, session=session, before=loop(optimizer))
        shown = session.knobs["lr"].value
    last = used[-1]
    assert statuses(session) == ["applied"] and last < 0.01
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(last, rel=1e-6)
    assert session.knobs["lr"].value == pytest.approx(shown, rel=1e-6)
    optimizer.step()
    assert used[-1] == pytest.approx(last, rel=1e-6)
    (told,) = left(session)
    assert told["level"] == "info" and "no known scheduler drives it" in told["text"]
    assert told["left"][0]["param_groups"] == pytest.approx(last, rel=1e-6)
    assert told["text"] not in session.warnings
    with run() as (second, _):
        used = record(optimizer)
        train(optimizer, 1, session=second)
    assert used == pytest.approx([last], rel=1e-6) and not left(second)


def test_a_request_that_no_step_used_stays_too() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, _):
        edits = {5: {"name": "lr", "value": 0.002}}
        train(optimizer, 5, None, edits, session=session, before=halves(optimizer))
    assert optimizer.param_groups[0]["lr"] == 0.002


def test_a_held_value_without_a_scheduler_stays() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, _):
        edits = {3: {"name": "lr", "value": 0.03, "mode": "hold"}}
        train(optimizer, 6, None, edits, session=session, before=halves(optimizer))
    assert optimizer.param_groups[0]["lr"] == 0.03


def test_a_value_held_under_a_scheduler_is_given_back_and_told() -> None:
    optimizer = torch.optim.SGD(
        [{"params": parameters(), "lr": lr} for lr in (0.1, 0.01)], lr=0.1, momentum=0.9
    )
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    with run([scheduler]) as (session, _):
        edits = {2: {"name": "lr[1]", "value": 0.03, "mode": "hold"}}
        train(optimizer, 4, scheduler, edits, session=session)
    assert both(optimizer, "lr") == pytest.approx((0.1 / 16, 0.01 / 16))
    (told,) = left(session)
    assert told["level"] == "warning" and told["text"] in session.warnings
    assert told["text"].startswith("lr[1] was 0.03 (held), and param_groups holds 0.000625 now")
    assert "ExponentialLR has" in told["text"]
    assert told["name"] == "lr"
    assert told["left"] == [{"group": 1, "how": "held", "in_force": 0.03, "param_groups": 0.000625}]


def test_a_schedule_that_was_scaled_leaves_its_own_value_and_nothing_to_tell() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    with run([scheduler]) as (session, _):
        train(optimizer, 4, scheduler, {2: {"name": "lr", "value": 0.01}}, session=session)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01 / 4)
    assert left(session) == [] and session.warnings == []


def test_groups_beyond_four_are_counted() -> None:
    optimizer = torch.optim.SGD([{"params": parameters(), "lr": 0.1} for _ in range(6)])
    with run() as (session, _):
        edits = {3: {"name": "lr", "value": 0.01}}
        train(optimizer, 5, None, edits, session=session, before=halves(optimizer))
    assert both(optimizer, "lr") == pytest.approx((0.005,) * 6)
    (told,) = left(session)
    assert "lr[3]" in told["text"] and "lr[4]" not in told["text"]
    assert "; 2 more groups" in told["text"] and len(told["left"]) == 6
