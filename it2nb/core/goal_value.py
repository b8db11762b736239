"""What a goal came to in one round of a run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from it2nb.core.goals import Goal
from it2nb.core.lineage import is_trial, lineage

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Which value of a round counts: the one it ended with, or its best.
Score = Literal["last", "best"]


def values_of(goal: Goal, session: Session, round: int, branch_id: int) -> list[float]:
    """Return all values of the goal's metric on the line of steps that a round ended on.

    Branches that the line does not come from are left out: what was undone, and trials.

    Parameters
    ----------
    goal : Goal
    session : Session
    round, branch_id : int
        Where the round ended.

    Returns
    -------
    list of float
        Oldest first; NaN and infinities as they are.
    """
    found: list[float] = []
    branches = session.branches
    trials = {each.id for each in branches if is_trial(each)}
    for branch, last in lineage(branches, branch_id):
        if branch in trials:
            continue
        steps, values = session.metrics.series(goal.metric, branch, round)
        found = values[steps <= last].tolist() + found
    return found


def value_of(
    goal: Goal, session: Session, round: int, branch_id: int, score: Score = "last"
) -> float | None:
    """Return what counts as the goal's value of a round; None where it was not recorded.

    A round whose last value is NaN has NaN as its value, also where the best counts: training
    that fell apart is no success.

    Raises
    ------
    It2nbError
        With ``score="best"``, if the goal's direction is not known.
    """
    values = values_of(goal, session, round, branch_id)
    if not values:
        return None
    if score == "last" or not math.isfinite(values[-1]):
        return values[-1]
    return goal.best(values)
