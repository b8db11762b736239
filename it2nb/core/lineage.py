"""Lineage: a branch and those that it came from, and what was last recorded on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from it2nb.core.wire import Branch, Event

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: How the reason of a trial's branch begins: it was trained and taken back.
TRIAL = "fork "


def lineage(branches: Sequence[Branch], branch_id: int) -> Iterator[tuple[int, float]]:
    """List a branch and its ancestors, newest first.

    Yields
    ------
    id : int
    last : float
        The last step of that branch that belongs to the line; inf for the branch itself.
    """
    by_id = {each.id: each for each in branches}
    last = float("inf")
    branch = by_id.get(branch_id)
    while branch is not None:
        yield branch.id, last
        last = min(last, branch.step)
        branch = by_id.get(branch.parent) if branch.parent is not None else None


def forked(forks: Iterable[Event]) -> list[Branch]:
    """Return the branches that a journal tells of, from its ``branch_forked`` rows."""
    return [Branch(id=0), *(Branch.model_validate(each.payload) for each in forks)]


def is_trial(branch: Branch) -> bool:
    """Whether a branch was a trial's."""
    return branch.reason.startswith(TRIAL)


class LiveLine:
    """The newest values of the branch that is trained: none of a branch that was left.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        # Rows of the store when the branch was entered, and what its line had by then.
        self._entered: tuple[int, dict[str, tuple[int, float]]] = 0, {}

    def enter(self) -> None:
        """Look up what the branch that is entered begins with. Training thread."""
        session = self._session
        ends = dict(lineage(session.branches, session.branch_id))
        kept = session.metrics.latest_on(ends, session.round)
        self._entered = len(session.metrics), kept

    def latest(self) -> dict[str, tuple[int, float] | None]:
        """Return step and value of each metric; None where the line has none. Any thread."""
        since, kept = self._entered
        metrics = self._session.metrics
        fresh = metrics.latest(since=since)
        return {name: fresh.get(name, kept.get(name)) for name in metrics.names()}
