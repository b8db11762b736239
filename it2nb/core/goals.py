"""What a run is after: a metric and the direction in which it is better."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from it2nb.core.errors import It2nbError

Direction = Literal["min", "max"]

#: Words in a metric's name that leave no doubt.
_LESS = re.compile(
    r"(^|[_./-])(loss|error|err|perplexity|ppl|nll|mse|mae|rmse|wer|cer|regret)\d*($|[_./-])"
)
_MORE = re.compile(
    r"(^|[_./-])(acc|accuracy|reward|return|f1|auc|auroc|bleu|rouge|iou|map|precision|recall|"
    r"score|r2|psnr|ssim)\d*($|[_./-])"
)


@dataclass(frozen=True, slots=True)
class Goal:
    """A metric and its direction.

    Parameters
    ----------
    metric : str
    direction : {"min", "max"}, optional
        May be left out where the name leaves no doubt: ``"val_loss"``, ``"accuracy"``. Where
        it does not, comparing raises: a direction is never guessed.
    target : float, optional
        Reached is good enough.

    Raises
    ------
    It2nbError
        If `direction` is neither of the two.
    """

    metric: str
    direction: Direction | None = None
    target: float | None = None

    def __post_init__(self) -> None:
        if self.direction not in (None, "min", "max"):
            raise It2nbError(f"direction={self.direction!r} has to be 'min' or 'max'")
        if self.direction is None:
            object.__setattr__(self, "direction", known_direction(self.metric))

    @classmethod
    def parse(cls, goal: str | Goal | None) -> Goal | None:
        """Take a metric's name or a goal."""
        return cls(goal) if isinstance(goal, str) else goal

    def undecided(self) -> str:
        """Ask for the direction that is neither given nor known."""
        return (
            f"is a smaller or a larger {self.metric!r} better? It can't be told from the "
            f"name; say Goal({self.metric!r}, 'min') or Goal({self.metric!r}, 'max')"
        )

    def better(self, one: float, other: float) -> bool:
        """Whether `one` is better than `other`; a NaN never is.

        Raises
        ------
        It2nbError
            If the direction is not known.
        """
        if self.direction is None:
            raise It2nbError(self.undecided())
        if math.isnan(one):
            return False
        if math.isnan(other):
            return True
        return one < other if self.direction == "min" else one > other

    def best(self, values: Iterable[float]) -> float | None:
        """The best of some values; None when there is none."""
        best: float | None = None
        for value in values:
            if best is None or self.better(value, best):
                best = value
        return best

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {"metric": self.metric, "direction": self.direction, "target": self.target}


def known_direction(metric: str) -> Direction | None:
    """The direction that a metric's name leaves no doubt about; None otherwise."""
    less, more = _LESS.search(metric.lower()), _MORE.search(metric.lower())
    if bool(less) == bool(more):
        return None
    return "min" if less else "max"


class ValidationLoss(Goal):
    """Goal: a small validation loss."""

    def __init__(self, metric: str = "val_loss", target: float | None = None) -> None:
        super().__init__(metric, "min", target)


class AverageReward(Goal):
    """Goal: a large average reward."""

    def __init__(self, metric: str = "reward", target: float | None = None) -> None:
        super().__init__(metric, "max", target)


class Accuracy(Goal):
    """Goal: a large accuracy."""

    def __init__(self, metric: str = "accuracy", target: float | None = None) -> None:
        super().__init__(metric, "max", target)
