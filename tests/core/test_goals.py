"""Goals: a direction is stated or known, and never guessed."""

from __future__ import annotations

import math

import pytest

from it2nb.core.errors import It2nbError
from it2nb.core.expected import missed
from it2nb.core.goals import Accuracy, AverageReward, Goal, ValidationLoss
from it2nb.core.session import Session


@pytest.mark.parametrize(
    ("metric", "direction"),
    [
        ("val_loss", "min"), ("eval_loss", "min"), ("loss", "min"), ("perplexity", "min"),
        ("accuracy", "max"), ("acc", "max"), ("reward", "max"), ("eval/f1", "max"),
        ("macro_f1", "max"), ("objective", None), ("floss", None), ("loss_accuracy", None),
    ],
)  # fmt: skip
def test_the_direction_is_known_only_where_the_name_leaves_no_doubt(
    metric: str, direction: str | None
) -> None:
    assert Goal(metric).direction == direction


def test_comparing_without_a_direction_raises_with_the_remedy() -> None:
    with pytest.raises(It2nbError, match=r"Goal\('objective', 'min'\)"):
        Goal("objective").better(1.0, 2.0)
    session = Session(goal="objective", directory=None)
    assert any("objective" in text for text in session.warnings)


def test_nan_is_never_better() -> None:
    for goal in (ValidationLoss(), AverageReward(), Accuracy()):
        assert not goal.better(math.nan, 1.0)
        assert goal.better(1.0, math.nan)
    assert ValidationLoss().best([3.0, 1.0, math.nan, 2.0]) == 1.0
    assert Accuracy().best([0.5, 0.9]) == 0.9
    assert Accuracy().best([]) is None


def test_a_wrong_direction_is_refused() -> None:
    with pytest.raises(It2nbError, match="'min' or 'max'"):
        Goal("loss", "up")  # type: ignore[arg-type]


def test_no_other_goal_is_guessed_before_the_evaluator_has_run() -> None:
    session = Session("val_loss", directory=None)
    session.on_evaluate(lambda: {"loss_on_val": 1.0})
    with session.run():
        session.step({"loss": 1.0})
        said = missed(session, "metric", "val_loss")
        assert said == (
            "no metric 'val_loss' so far, the evaluator has not run yet, and may record it"
        )
        session.evaluate_now()
        assert "did you mean 'loss" in missed(session, "metric", "val_loss")
