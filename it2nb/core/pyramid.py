"""Long curves in few points, of which none that sticks out is lost.

Rows are grouped into buckets of equal length; a bucket keeps its lowest and its highest finite
point and, if it has any, its first non-finite one, each with step, time and value as recorded.
Buckets of buckets make the levels of the pyramid, so that a view of ten million rows reads a
thousand buckets.

Arrays stand on their long side: points have the shape (3, n), buckets (9, n), because numpy
finds extremes of contiguous numbers ten times as fast as of strided ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

#: Rows of a bucket of the lowest level. Nine numbers a bucket: 0.56 bytes a row with all levels.
BASE = 256

_ODD = 6  # where the non-finite point stands in a bucket: step, t, value of low, high, odd


def bucketize(rows: Floats, length: int) -> Floats:
    """Group points into buckets; the last one may hold fewer.

    Parameters
    ----------
    rows : array, shape (3, n)
        Step, time, value.
    length : int
        Points of a bucket.

    Returns
    -------
    array, shape (9, ceil(n / length))
        Step, time and value of the lowest, of the highest and of the first non-finite point;
        NaN as the step where there is none.
    """
    low, high, odd, some = _extremes(rows[2], length)
    out = np.empty((9, len(low)))
    np.take(rows, low, axis=1, out=out[0:3])
    np.take(rows, high, axis=1, out=out[3:6])
    out[_ODD:] = np.nan
    if some is not None:
        out[_ODD:, some] = rows[:, odd[some]]
        out[:_ODD, ~np.isfinite(out[2])] = np.nan  # no finite point at all
    return out


def _extremes(values: Floats, length: int) -> tuple[Indices, Indices, Indices, Flags | None]:
    """Find lowest, highest and first non-finite value of each bucket.

    Returns
    -------
    low, high, odd : array of int
        Indices into `values`; where a bucket has no finite value, `low` and `high` are its first.
    some : array of bool, or None
        Which buckets have a non-finite value; None when none has.
    """
    missing = -len(values) % length
    count = len(values)
    if missing:
        # Repeating the last value changes neither minimum nor maximum.
        values = np.append(values, np.repeat(values[-1:], missing))
    grid = values.reshape(-1, length)
    starts = np.arange(len(grid)) * length
    low, high = starts + grid.argmin(axis=1), starts + grid.argmax(axis=1)
    # NaN and -inf come out of argmin, NaN and inf out of argmax: only then look closer.
    if np.isfinite(values[low]).all() and np.isfinite(values[high]).all():
        return low, high, starts, None
    odd = ~np.isfinite(grid)
    low = starts + np.where(odd, np.inf, grid).argmin(axis=1)
    high = starts + np.where(odd, -np.inf, grid).argmax(axis=1)
    last = np.full(len(grid), count - 1)
    return (
        np.minimum(low, last),
        np.minimum(high, last),
        np.minimum(starts + odd.argmax(axis=1), last),
        np.asarray(odd.any(axis=1)),
    )


def halve(buckets: Floats) -> Floats:
    """Join each two neighbours into one bucket; their number is even."""
    pairs = buckets.reshape(9, -1, 2)
    where = np.arange(pairs.shape[1])
    out = np.empty((9, len(where)))
    # NaN means that there is no such point: then the other one is taken.
    best = (pairs[2, :, 1] < pairs[2, :, 0]) | np.isnan(pairs[2, :, 0])
    out[0:3] = pairs[0:3, where, best.astype(np.intp)]
    best = (pairs[5, :, 1] > pairs[5, :, 0]) | np.isnan(pairs[5, :, 0])
    out[3:6] = pairs[3:6, where, best.astype(np.intp)]
    best = np.isnan(pairs[_ODD, :, 0])
    out[_ODD:] = pairs[_ODD:, where, best.astype(np.intp)]
    return out


def points(buckets: Floats) -> Floats:
    """Turn buckets into points in the order in which they were recorded, shape (3, n)."""
    count = buckets.shape[1]
    low, high, odd = buckets[0:3], buckets[3:6], buckets[6:9]
    late = (low[1] > high[1]) | ((low[1] == high[1]) & (low[0] > high[0]))
    trio = np.empty((3, count, 3))
    trio[:, :, 0] = np.where(late, high, low)
    trio[:, :, 1] = np.where(late, low, high)
    trio[:, :, 2] = odd
    trio[0, (low[0] == high[0]) & (low[1] == high[1]), 1] = np.nan  # one point, not two
    some = ~np.isnan(odd[0])
    if some.any():
        # Few buckets have a non-finite point; only those are sorted.
        part = trio[:, some]
        order = np.lexsort((part[0], part[1]), axis=1)
        trio[:, some] = np.take_along_axis(part, order[None], axis=2)
    flat = trio.reshape(3, -1)
    return flat[:, ~np.isnan(flat[0])]


class Pyramid:
    """Buckets over the points of one curve, in levels of falling detail.

    Not thread-safe: the store's reading lock stands around it.

    Attributes
    ----------
    rows : int
        Points that were taken in; a multiple of `BASE`.
    """

    def __init__(self) -> None:
        self.rows = 0
        self._levels: list[_Growing] = [_Growing()]

    def extend(self, rows: Floats) -> None:
        """Take in the next points; their number must be a multiple of `BASE`."""
        if not rows.shape[1]:
            return
        self.rows += rows.shape[1]
        self._levels[0].extend(bucketize(rows, BASE))
        depth = 0
        while self._levels[depth].count >= 2:
            if depth + 1 == len(self._levels):
                self._levels.append(_Growing())
            level, above = self._levels[depth], self._levels[depth + 1]
            # Only whole pairs go up.
            above.extend(halve(level.part(2 * above.count, level.count // 2 * 2)))
            depth += 1

    def cover(self, start: int, stop: int, most: int) -> tuple[Floats, int, int]:
        """Cover whole buckets among the rows ``[start, stop)``, between half `most` and `most`.

        Returns
        -------
        buckets, first, last : array, int, int
            What is covered are the rows ``[first, last)``; the caller reads the edges.
        """
        depth = 0
        while depth + 1 < len(self._levels) and (stop - start) // (BASE << depth) >= most:
            depth += 1
        level, left, right = self._whole(depth, start, stop)
        if left >= right:
            return np.empty((9, 0)), start, start
        parts = [level.part(left, right)]
        first, last = left * (BASE << depth), right * (BASE << depth)
        for finer in range(depth - 1, -1, -1):  # at most one bucket more at either edge
            size = BASE << finer
            level, left, right = self._whole(finer, start, stop)
            parts.insert(0, level.part(left, first // size))
            parts.append(level.part(last // size, right))
            first, last = left * size, right * size
        return np.concatenate(parts, axis=1), first, last

    def _whole(self, depth: int, start: int, stop: int) -> tuple[_Growing, int, int]:
        """Return a level and the ends of its buckets that lie inside the rows."""
        level, size = self._levels[depth], BASE << depth
        return level, -(-start // size), min(stop // size, level.count)

    @property
    def nbytes(self) -> int:
        """Memory of all levels."""
        return sum(level.nbytes for level in self._levels)


class _Growing:
    """A growing array of buckets, at most an eighth of it unused."""

    def __init__(self) -> None:
        self._store = np.empty((9, 8))
        self.count = 0

    def extend(self, buckets: Floats) -> None:
        need = self.count + buckets.shape[1]
        if need > self._store.shape[1]:
            larger = np.empty((9, need + need // 8))
            larger[:, : self.count] = self._store[:, : self.count]
            self._store = larger
        self._store[:, self.count : need] = buckets
        self.count = need

    def part(self, start: int, stop: int) -> Floats:
        return self._store[:, start:stop]

    @property
    def nbytes(self) -> int:
        return self._store.nbytes
