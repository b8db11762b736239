"""session.log: metrics that are noted beside the one that steps are not lost (C13)."""

from __future__ import annotations

from typing import Any

import torch

from it2nb.core.session import Session
from it2nb.pytorch.hooks import attach


def _rows(session: Session) -> list[Any]:
    frame = session.metrics.frame()
    return [
        (int(row.step), {k: v for k, v in row.items() if k not in _OURS and v == v})
        for _, row in frame.iterrows()
    ]


_OURS = frozenset({"step", "t", "branch_id", "round"})


def test_C13_what_was_logged_is_of_the_step_that_follows() -> None:
    session = Session(directory=None)
    with session.run():
        for number in (1.0, 2.0, 3.0):
            session.log(acc=number)
            session.log({"norm": 10 * number}, loss=0.0)
            if number == 3.0:
                session.step()
            else:
                session.step({"loss": number})  # what the step itself is given counts
    assert _rows(session) == [
        (1, {"acc": 1.0, "norm": 10.0, "loss": 1.0}),
        (2, {"acc": 2.0, "norm": 20.0, "loss": 2.0}),
        (3, {"acc": 3.0, "norm": 30.0, "loss": 0.0}),
    ]


def test_C13_what_was_logged_after_the_last_step_is_of_that_step() -> None:
    session = Session(directory=None)
    with session.run():
        session.step({"loss": 1.0})
        session.log(acc=0.5)
    assert _rows(session) == [(1, {"loss": 1.0, "acc": 0.5})]


def test_what_was_logged_is_kept_where_a_step_is_given_no_mapping() -> None:
    session = Session(directory=None)
    with session.run():
        session.log(acc=0.5)
        session.step(3)  # type: ignore[arg-type]
        session.step({"acc": 0.6})
    assert _rows(session) == [(1, {"acc": 0.5}), (2, {"acc": 0.6})]


def test_C13_a_loop_whose_optimizer_steps_are_counted_may_log_too() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    session = Session(directory=None)
    with session.run():
        attach(session, metrics_fn=lambda: {"loss": 2.0})
        for number in (1.0, 2.0):
            weight.grad = torch.ones(2)
            session.log(norm=number)
            optimizer.step()
    assert _rows(session) == [(1, {"norm": 1.0, "loss": 2.0}), (2, {"norm": 2.0, "loss": 2.0})]
