"""Edits of all groups of an optimizer at once: their ratios are kept, and can be restored."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import MAX_EMAX, MIN_EMIN, Context
from typing import Any

#: Edits that can be taken back exactly.
KEPT = 32
#: Not the thread's own: whoever trains may have set its precision or its traps.
_DECIMAL = Context(prec=34, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


class Edits:
    """What was set for all groups together, newest last. Training thread."""

    def __init__(self) -> None:
        self._kept: list[tuple[list[Any], list[Any]]] = []
        #: How the groups stand to each other where neither values nor edits tell it.
        self.assumed: list[float] = []

    def note(self, before: list[Any], after: list[Any]) -> None:
        """Remember one edit."""
        self._kept = [*self._kept[1 - KEPT :], (before, after)]

    def clear(self) -> None:
        """Forget them: the values come from elsewhere now."""
        self._kept.clear()

    def originals(self, value: Any, now: list[Any]) -> list[Any] | None:
        """Return the exact values from before an edit that is taken back; None if it is none."""
        for before, after in reversed(self._kept):
            if after == now and before[first_nonzero(before)] == value:
                return list(before)
        return None

    def shares(self, count: int, first: Sequence[float] = ()) -> list[float]:
        """Say how the groups stand to each other when all are 0 now.

        Parameters
        ----------
        count : int
            Groups.
        first : sequence of float
            Values that count before those of earlier edits: the initial ones of a schedule.
        """
        seen = [first, *(each for edit in reversed(self._kept) for each in reversed(edit))]
        seen.append(self.assumed)
        return next((list(s) for s in seen if len(s) == count and any(s)), [1.0] * count)


def spread(value: float, shares: Sequence[float]) -> list[float]:
    """Give the first group that is not 0 `value`, and the others theirs in proportion."""
    first = first_nonzero(shares)
    return [
        value if i == first else in_proportion(value, v, shares[first])
        for i, v in enumerate(shares)
    ]


def in_proportion(value: float, share: float, whole: float) -> float:
    """Return ``value * share / whole`` as somebody would write it down; `whole` is not 0.

    Worked out in decimal and rounded once: with 0.03 for 0.07 a group at 0.007 gets 0.003, and
    one at 0.07 gets 0.03. In binary both would be off by a bit, and equal groups would part.
    """
    if share == whole:
        return value
    number = _DECIMAL.create_decimal
    product = _DECIMAL.multiply(number(repr(float(value))), number(repr(float(share))))
    return float(_DECIMAL.divide(product, number(repr(float(whole)))))


def first_nonzero(values: Sequence[Any]) -> int:
    """Return the index of the first value that is not 0; 0 when all are."""
    return next((at for at, each in enumerate(values) if each), 0)
