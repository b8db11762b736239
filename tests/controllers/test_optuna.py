"""A search that can't begin says so where it was asked for."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import it2nb

pytest.importorskip("optuna")


def searched(*names: str, rounds: int = 3) -> tuple[list[dict[str, Any]], list[str]]:
    """Run rounds of a search; the records, and what Python was warned of."""
    session = it2nb.TrainingSession("val_loss", directory=None, run_id="r")
    session.attach(it2nb.OptunaController(list(names)))

    def train(session: Any, ctx: Any) -> None:
        held = {"lr": 0.1, "name": "a"}
        session.register_knob(
            "lr", lambda: held["lr"], lambda value: held.update(lr=value), min=0.01, max=1.0
        )
        session.register_knob(
            "name", lambda: held["name"], lambda value: held.update(name=value), choices=["a"]
        )
        for _ in range(3):
            session.step({"val_loss": held["lr"]})

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records = session.run_rounds(train, rounds)
    return records, [str(each.message) for each in caught]


def test_an_unknown_knob_is_told_in_the_baseline_with_what_was_meant() -> None:
    _, said = searched("lrr", rounds=1)
    (line,) = said
    assert "optuna is to set 'lrr', and no knob has that name; did you mean 'lr'?" in line


def test_a_planner_that_fails_is_told_once() -> None:
    _, said = searched("name")
    (line,) = said
    assert "optuna has no plan for round 1, which is trained as the baseline was" in line
    assert "name has no range that could be searched" in line


def test_a_search_of_a_known_knob_says_nothing() -> None:
    records, said = searched("lr")
    assert said == []
    assert len({each["settings"]["lr"] for each in records}) == 3
