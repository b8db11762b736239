"""A loss that is NaN or infinite, and stays so, is told of in every run, whoever records it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from it2nb.core.guards import NonFinite

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: The metric that is looked at. Others may be NaN for a reason: nothing was measured.
NAME = "loss"


class OddLoss:
    """Looks at the newest loss four times a second, on the journal's own thread, and at the end.

    The training pays nothing for it. A loss that is NaN once and finite at the next step may go
    by unseen; a guard, `it2nb.NonFinite`, looks at each step and can pause the run.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told: set[int] = set()

    def look(self) -> None:
        """Tell once a round. Any thread."""
        session = self._session
        newest = session.metrics.newest(NAME)
        if newest is None or math.isfinite(newest[1]) or session.round in self._told:
            return
        self._told.add(session.round)
        turns = session.turns.kept()[0]
        if any(isinstance(getattr(each.function, "condition", None), NonFinite) for each in turns):
            return  # a guard tells of it
        steps, values = session.metrics.series(NAME, session.branch_id, session.round)
        finite = np.flatnonzero(np.isfinite(values))
        first = int(finite[-1]) + 1 if len(finite) else 0
        if first < len(values):
            step, value = int(steps[first]), float(values[first])
            session.warn(f"non-finite {NAME} at step {step}: {value!r}")
