"""Step numbers: none ends a training, none makes rows vanish, and a fault is told of once."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

import it2nb
from it2nb.core.session import Session


class Unreadable:
    def __int__(self) -> int:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


def steps(session: Session, given: list[Any]) -> tuple[list[int], list[int]]:
    """Run a loop that gives these numbers; return the steps and branches of the sealed record."""
    with session.run():
        for at, each in enumerate(given):
            session.step({"loss": float(at)}, step=each)
    assert session.path is not None
    record = it2nb.open(session.path)
    assert record.verify().is_sealed
    frame = record.metrics.frame()
    assert frame["loss"].tolist() == [float(at) for at in range(len(given))]
    return frame["step"].tolist(), frame["branch_id"].tolist()


@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, 2.5, "3", 10**30, 2**53, None.__class__, Unreadable(), [1, 2]]
)
def test_what_is_no_step_number_is_counted_on_and_told_of_once(bad: Any) -> None:
    session = Session()
    assert steps(session, [1, 2, bad, bad, 5]) == ([1, 2, 3, 4, 5], [0] * 5)
    [told] = session.warnings
    assert told.endswith("counted on from 3") and told.startswith("step ")


@pytest.mark.parametrize("kind", [float, np.int64, np.float32, torch.tensor, np.asarray])
def test_whole_numbers_of_other_kinds_are_step_numbers(kind: Any) -> None:
    session = Session()
    assert steps(session, [kind(10), kind(20)]) == ([10, 20], [0, 0])
    assert not session.warnings and type(session.step_count) is int


def test_a_counter_that_is_raised_in_place_is_read_at_each_step() -> None:
    session, counter = Session(), torch.tensor(0)
    with session.run():
        seen = []
        for _ in range(3):
            counter += 1
            session.step({"loss": 1.0}, step=counter)  # type: ignore[arg-type]
            seen.append(session.step_count)
    assert seen == [1, 2, 3]


def test_numbers_that_go_down_at_every_step_open_no_branch_each_time() -> None:
    session = Session()
    found, branches = steps(session, [9, 8, 7, 6, 5, 4, 3])
    assert found == [9, 8, 7, 6, 7, 8, 9]
    assert branches == [0, 1, 2, 3, 3, 3, 3]
    assert session.warnings == ["step 5 is the 4th in a row to go down; counted on from 7"]


def test_a_loop_that_begins_again_now_and_then_opens_a_branch_each_time() -> None:
    session = Session()
    found, branches = steps(session, [1, 2, 3] * 6)
    assert found == [1, 2, 3] * 6 and branches == [at // 3 for at in range(18)]
    assert not session.warnings


def test_a_control_point_without_metrics_stays_where_it_is() -> None:
    session = Session()
    with session.run():
        session.step({"loss": 1.0}, step=5)
        session.pump(step="6")  # type: ignore[arg-type]
        assert session.step_count == 5
        session.record({"extra": 1.0}, step=math.nan)  # type: ignore[arg-type]
        assert session.metrics.newest("extra") == (5, 1.0)
    assert session.warnings == ["step '6' is not a whole number; counted on from 5"]


def test_a_batch_that_is_no_mapping_is_refused_in_our_words() -> None:
    with pytest.raises(TypeError, match=r"batch takes a mapping of knobs to values.*'lr=1'"):
        Session().batch("lr=1")  # type: ignore[arg-type]
