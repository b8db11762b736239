"""Questions to a journal: what was asked, by whom, what was applied, what it did to the goal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from it2nb.core.errors import It2nbError
from it2nb.core.goals import Goal
from it2nb.core.session import Session
from it2nb.recorded import open as open_run

if TYPE_CHECKING:
    import pandas as pd

    from it2nb.core.history import History

#: A run that is asked about: ``it2nb.open(path)``, the path itself, a session or its journal.
Asked: TypeAlias = "History | Session | str | Path"

#: Statuses of requests that changed something.
DONE = ("applied", "clamped")


def goal_of(run: Asked) -> Goal:
    """Return the goal that a run's journal tells of.

    Parameters
    ----------
    run : it2nb.open(path), path, Session or its journal

    Raises
    ------
    It2nbError
        If it tells of none: say ``Goal(metric, direction)`` where one is asked for.
    """
    journal = _journal(run)
    for event in journal.since(0):
        told: Any = None
        if event.type == "environment":
            told = (event.payload.get("run") or {}).get("goal")
        elif event.type == "round_started":
            told = event.payload.get("goal")
        if isinstance(told, Mapping):
            return Goal(told["metric"], told.get("direction"), told.get("target"))
    raise It2nbError(f"the journal of {journal.run} tells of no goal; give one, Goal('val_loss')")


def asked(run: Asked) -> pd.DataFrame:
    """Return how often each actor asked for what, and what became of it.

    Parameters
    ----------
    run : it2nb.open(path), path, Session or its journal

    Returns
    -------
    DataFrame
        One row per source, actor, type and name, one column per status.
    """
    frame = _journal(run).requests()
    frame["name"] = frame["name"].fillna("")
    frame["actor"] = frame["actor"].fillna("")
    keys = ["source", "actor", "type", "name"]
    counts = frame.groupby([*keys, "status"]).size().unstack("status", fill_value=0)
    return counts.reset_index()


def outcomes(run: Asked, goal: Goal | None = None) -> pd.DataFrame:
    """Return each change of the run with the goal around it.

    Parameters
    ----------
    run : it2nb.open(path), path, Session or its journal
    goal : Goal, optional
        The journal's own by default.

    Returns
    -------
    DataFrame
        One row per knob that an applied or clamped request changed: ``round, branch_id, step,
        source, actor, name, requested, before, after``, and ``goal_before, goal_next,
        goal_last``: the newest value of the goal at that step, the next one, and the last of
        that branch.
        ``helped`` says whether the next one is better than the one before: a fact, and no proof
        that the change did it.
    """
    import pandas

    journal = _journal(run)
    goal = goal or goal_of(journal)
    asked_for = journal.requests().set_index("action_id").to_dict("index")
    rows = []
    for event in journal.since(0):
        request = asked_for.get(event.action_id) if event.type == "knob_changed" else None
        if request is None or request["status"] not in DONE:
            continue
        alone = request["type"] == "set_knob"
        row = {
            "round": event.round, "branch_id": event.branch_id, "step": event.step,
            "source": request["source"], "actor": request["actor"],
            "name": event.payload["name"],
            "requested": request["requested"] if alone else event.payload["value"],
            "before": event.payload["before"], "after": event.payload["value"],
        }  # fmt: skip
        steps, values = journal.metrics.series(goal.metric, row["branch_id"], row["round"])
        known = ~np.isnan(values)
        steps, values = steps[known], values[known]
        past, future = values[steps <= row["step"]], values[steps > row["step"]]
        before, after, last = (
            float(each[place]) if len(each) else float("nan")
            for each, place in ((past, -1), (future, 0), (values, -1))
        )
        both = not (np.isnan(before) or np.isnan(after))
        helped = goal.better(after, before) if both and goal.direction else None
        rows.append(
            row | {"goal_before": before, "goal_next": after, "goal_last": last, "helped": helped}
        )
    columns = [*_TOLD, "goal_before", "goal_next", "goal_last", "helped"]
    found: pd.DataFrame = pandas.DataFrame(rows, columns=columns)
    return found


def scores(run: Asked, goal: Goal | None = None) -> pd.DataFrame:
    """Return the goal by round and branch: first, best, last value, and where the best was.

    Parameters
    ----------
    run : it2nb.open(path), path, Session or its journal
    goal : Goal, optional
        The journal's own by default.
    """
    import pandas

    journal = _journal(run)
    goal = goal or goal_of(journal)
    frame = journal.metrics.frame()
    rows = []
    if goal.metric in frame:
        for (number, branch), part in frame.groupby(["round", "branch_id"]):
            known = part.dropna(subset=[goal.metric])
            if not len(known):
                continue
            values = known[goal.metric].to_numpy(float)
            best = int(values.argmax() if goal.direction == "max" else values.argmin())
            rows.append(
                {
                    "round": number, "branch_id": branch, "evaluations": len(values),
                    "first": float(values[0]), "best": float(values[best]),
                    "best_step": int(known["step"].to_numpy()[best]), "last": float(values[-1]),
                }
            )  # fmt: skip
    found: pd.DataFrame = pandas.DataFrame(rows, columns=_SCORES)
    return found


def _journal(run: Asked) -> History:
    if isinstance(run, str | os.PathLike):
        return open_run(run)
    return run.journal if isinstance(run, Session) else run


_TOLD = (
    "round", "branch_id", "step", "source", "actor", "name", "requested", "before", "after",
)  # fmt: skip
_SCORES = ["round", "branch_id", "evaluations", "first", "best", "best_step", "last"]
