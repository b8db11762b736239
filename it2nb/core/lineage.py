"""Lineage: a branch and those that it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from it2nb.core.wire import Branch, Event

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
