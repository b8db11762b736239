"""A slip of a script stays unread, whatever the run itself had to know of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import it2nb


def told(asked: dict[int, dict[str, Any]], *, rule: str | None = None, **given: Any) -> list[str]:
    """Train, ask on the way as a script does, and return what Python was warned of at the end."""
    session = it2nb.TrainingSession(directory=None, run_id="r", **given)
    if rule is not None:
        session.attach(rule)
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    session.bind(net, optimizers=[optimizer])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with session.run():
            for step in range(1, 31):
                net(torch.ones(1, 2)).square().mean().backward()
                optimizer.step()
                session.step()
                for name, value in asked.get(step, {}).items():
                    session.set(name, value)
    return [line for each in caught for line in str(each.message).splitlines()[1:]]


@pytest.mark.parametrize("how", ["a request", "a rule", "a typo'd second"])
def test_a_slip_is_told_though_something_was_changed_after_it(how: str) -> None:
    later: dict[int, dict[str, Any]] = {} if how == "a rule" else {20: {"lr": 0.02}}
    if how == "a typo'd second":
        later = {15: {"lrrr": 1}, 20: {"lr": 0.02}}
    lines = told({10: {"lrr": 1}, **later}, rule="at 18: lr x 0.5" if how == "a rule" else None)
    assert [line.split()[1] for line in lines] == (
        ["lrr:", "lrrr:"] if how == "a typo'd second" else ["lrr:"]
    )


def test_five_slips_between_changes_are_five() -> None:
    slips = {step: {"lrr": step, "lr": 0.02 + step / 1000} for step in range(3, 8)}
    assert [line.split()[:2] for line in told(slips)] == [["set_knob", "lrr:"]] * 5
