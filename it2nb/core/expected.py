"""Metrics that a rule, a guard or the goal waits for, and that may never come."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import TYPE_CHECKING

from it2nb.core.errors import near

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Optimizer steps between two looks.
EVERY = 50
#: Rows of metrics after which a name is missed that is nearly one of those that came.
ROWS = 50
#: Rows after which any other name is missed: an evaluation may come seldom.
MANY_ROWS = 500
#: How near a name has to be to one that came, to be taken for a slip.
_SLIP = 0.8


class Expected:
    """Warns once of each metric that is watched and never recorded. Costs nothing at most steps.

    A name that is nearly one of the recorded ones is told of after 50 rows, any other after 500,
    and what has not come by then at the end of the run.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wanted: dict[str, str] = {}
        self._told: set[str] = set()
        self._remove: Callable[[], None] = lambda: None

    def add(self, metric: str, who: str) -> None:
        """Note that `who` watches a metric. Any thread."""
        if metric in self._told:
            return
        self._wanted[metric] = who
        self.look_out()

    def look_out(self) -> None:
        """Look from now on; rounds take such turns away with their trainings. Any thread."""
        self._remove()
        self._remove = self._session.turns.add(EVERY, self._look, "metrics that are waited for")

    def close(self) -> None:
        """The run ends: tell of what never came."""
        if len(self._session.metrics):
            self._tell(is_over=True)

    def _look(self, session: Session) -> None:
        if len(session.metrics) < ROWS:
            return
        if self._tell(is_over=False):
            self._remove()

    def _tell(self, *, is_over: bool) -> bool:
        """Tell of names that are missed; whether nothing is waited for any more."""
        session = self._session
        names, rows = session.metrics.names(), len(session.metrics)
        wanted = dict(self._wanted)
        if session.goal is not None and session.goal.metric not in self._told:
            wanted.setdefault(session.goal.metric, "the goal of the run")
        waiting = False
        for metric, who in wanted.items():
            if metric in names:
                self._wanted.pop(metric, None)
                continue
            slip = difflib.get_close_matches(metric, names, n=1, cutoff=_SLIP)
            if not (is_over or slip or rows >= MANY_ROWS):
                waiting = True
                continue
            self._told.add(metric)
            self._wanted.pop(metric, None)
            since = "was recorded in this run" if is_over else f"was recorded in {rows} rows"
            session.warn(f"no metric {metric!r} {since}: {who} waits for it{near(metric, names)}")
        return not waiting
