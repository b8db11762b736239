"""One curve: the values of one metric in one line of steps, and views of it in few points."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from it2nb.core.pyramid import BASE, Pyramid, points
from it2nb.core.table import Table
from it2nb.core.thinning import thin

Floats = NDArray[np.float64]

#: Rows read at once while a pyramid is built.
_SLICE = 256 * BASE


@dataclass(frozen=True, slots=True)
class CurveView:
    """A stretch of one curve, reduced to few points. The arrays are the caller's own.

    Attributes
    ----------
    name : str
        The metric.
    round, branch_id : int
        The line of steps.
    steps, t, values : array of float64, shape (n,)
        In the order in which they were recorded; t in seconds since the session was made.
        Minimum, maximum, first and last point are as recorded; a stretch with non-finite
        values holds at least one of them, so that the gap shows.
    thinned : bool
        Whether points were left out.
    end : int
        Rows of the curve up to the end of the view: pass it as `start` to get what came since.
    """

    name: str
    round: int
    branch_id: int
    steps: Floats
    t: Floats
    values: Floats
    thinned: bool
    end: int

    def __len__(self) -> int:
        return len(self.steps)


class Curve:
    """Where the rows of one curve lie, and a pyramid over them.

    Not thread-safe: the store's reading lock stands around it.
    """

    def __init__(self, name: str, round: int, branch_id: int) -> None:
        self.name = name
        self.round = round
        self.branch_id = branch_id
        self.rows = 0
        #: Rows of the store that were looked at.
        self.seen = 0
        self._starts: list[int] = []
        self._places: list[tuple[Table, int]] = []
        self._pyramid = Pyramid()
        self._ordered = [True, True]
        self._checked = 0
        self._last = [-np.inf, -np.inf]

    def take(self, table: Table, start: int, stop: int) -> None:
        """Know of the rows ``[start, stop)`` of `table`, which belong to this curve."""
        if self._places:
            last, first = self._places[-1]
            if last is table and first + (self.rows - self._starts[-1]) == start:
                self.rows += stop - start
                return
        self._starts.append(self.rows)
        self._places.append((table, start))
        self.rows += stop - start

    def read(self, start: int, stop: int) -> Floats:
        """Copy step, t, value of the rows ``[start, stop)``, shape (3, n)."""
        parts: list[Floats] = []
        index = bisect_right(self._starts, start) - 1
        while start < stop:
            table, first = self._places[index]
            begins = self._starts[index]
            ends = self._starts[index + 1] if index + 1 < len(self._starts) else self.rows
            last = min(stop, ends)
            parts.append(table.column(self.name, first + start - begins, first + last - begins))
            start, index = last, index + 1
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts, axis=1) if parts else np.empty((3, 0))

    def view(
        self, lo: float | None, hi: float | None, most: int, axis: str, start: int
    ) -> CurveView:
        """See `MetricStore.view`."""
        self._grow()
        column = 0 if axis == "step" else 1
        left, right = min(max(start, 0), self.rows), self.rows
        if self._ordered[column] or (lo is None and hi is None):
            if lo is not None:
                left = max(left, self._edge(lo, column, bisect_left))
            if hi is not None:
                right = min(right, self._edge(hi, column, bisect_right))
            right = max(left, right)
            thinned = right - left > most
            rows = self._reduce(left, right, most) if thinned else self.read(left, right)
        else:  # steps that went back inside one branch: look at all of them
            rows = self.read(left, right)
            low, high = -np.inf if lo is None else lo, np.inf if hi is None else hi
            rows = rows[:, (rows[column] >= low) & (rows[column] <= high)]
            thinned = rows.shape[1] > most
            if thinned:
                rows = _with_ends(_few(rows, most), rows[:, :1], rows[:, -1:])
        return CurveView(
            self.name,
            self.round,
            self.branch_id,
            rows[0],
            rows[1],
            rows[2],
            thinned,
            right,
        )

    def _edge(self, bound: float, column: int, bisect: Callable[..., int]) -> int:
        return bisect(range(self.rows), bound, key=lambda row: self._at(row, column))

    def _at(self, row: int, column: int) -> float:
        index = bisect_right(self._starts, row) - 1
        table, first = self._places[index]
        return float(table.row(first + row - self._starts[index])[column])

    def _reduce(self, left: int, right: int, most: int) -> Floats:
        """Reduce a window to about `most` points."""
        buckets = max(1, (most - 2) // 2)
        if right - left <= buckets // 2 * BASE:
            inner = _few(self.read(left, right), most)
        else:
            covered, first, last = self._pyramid.cover(left, right, buckets)
            edges = [self.read(left, first), self.read(last, right)]
            before, after = (thin(edge, 2 * -(-edge.shape[1] // BASE)) for edge in edges)
            inner = np.concatenate([before, points(covered), after], axis=1)
        return _with_ends(inner, self.read(left, left + 1), self.read(right - 1, right))

    def _grow(self) -> None:
        """Take in the rows that came since; at most `BASE` - 1 stay outside of the pyramid."""
        whole = self.rows // BASE * BASE
        while self._pyramid.rows < whole:
            stop = min(whole, self._pyramid.rows + _SLICE)
            rows = self.read(self._pyramid.rows, stop)
            self._pyramid.extend(rows)
            self._check_order(rows, stop)
        if self._checked < self.rows:
            self._check_order(self.read(self._checked, self.rows), self.rows)

    def _check_order(self, rows: Floats, stop: int) -> None:
        """Note whether steps and times never went back; windows are found by bisection then."""
        rows = rows[:, max(0, rows.shape[1] - (stop - self._checked)) :]
        for column in range(2):
            marks = np.append(self._last[column], rows[column])
            if self._ordered[column] and not (marks[1:] >= marks[:-1]).all():
                self._ordered[column] = False
            self._last[column] = marks[-1]
        self._checked = stop

    @property
    def nbytes(self) -> int:
        """Memory beyond the rows themselves."""
        return self._pyramid.nbytes


def _few(rows: Floats, most: int) -> Floats:
    """Reduce rows in memory to about `most` points."""
    inner = thin(rows, most - 2)
    if inner.shape[1] > most - 2:  # non-finite values came on top
        inner = thin(rows, (most - 2) * 2 // 3)
    return inner


def _with_ends(inner: Floats, first: Floats, last: Floats) -> Floats:
    """Put the first and the last row around `inner`, unless they are there."""
    parts = [inner]
    if not _same(inner[:, :1], first):
        parts.insert(0, first)
    if not _same(inner[:, -1:], last):
        parts.append(last)
    return np.concatenate(parts, axis=1) if len(parts) > 1 else inner


def _same(one: Floats, other: Floats) -> bool:
    # By their bytes: NaN is the same as NaN here.
    return one.tobytes() == other.tobytes()
