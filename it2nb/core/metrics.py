"""Metrics: columns in memory, written by the training thread without a lock."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from it2nb.core.curve import Curve, CurveView
from it2nb.core.recorder import SEGMENT, Recorder
from it2nb.frames import metrics_frame

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Block:
    """Consecutive rows with the same metric names, round and branch.

    Attributes
    ----------
    first : int
        Number of its first row in the store.
    names : tuple of str
    round, branch_id : int
    rows : array, shape (n, 2 + names)
        Step, t, and one value for each name. The caller's own.
    """

    first: int
    names: tuple[str, ...]
    round: int
    branch_id: int
    rows: Floats

    def __len__(self) -> int:
        return len(self.rows)


class MetricStore(Recorder):
    """Every metric of a run, in the order in which it was recorded.

    One thread writes, the training thread; any thread reads, at any time, and sees whole rows
    only. Rows with the same names lie in one table (48 bytes a row for four metrics); a segment
    notes where names, round or branch change, so that the order of all rows is known.
    """

    __slots__ = ("_curves", "_reading")

    def __init__(self) -> None:
        super().__init__()
        # Readers only; the training thread never takes it.
        self._reading = threading.Lock()
        self._curves: dict[tuple[str, int, int], Curve] = {}

    def __len__(self) -> int:
        """Return the number of rows: recorded steps, counted once for each call."""
        return self._count

    def names(self) -> list[str]:
        """Return the names of all metrics, in the order of their first values."""
        return list(dict.fromkeys(n for table in self._tables.values() for n in table.names))

    def latest(self, round: int | None = None, since: int = 0) -> dict[str, tuple[int, float]]:
        """Return step and value of the newest row of each metric.

        Parameters
        ----------
        round : int, optional
            Leave out metrics that were not recorded since this round began; the newest one.
        since : int
            Look at the rows from this number on alone: what `len` gave before.
        """
        count, current = self._count, self._current
        newest: dict[str, tuple[int, int, float]] = {}
        for table in self._tables.values():
            rows, end = table.rows, table.end
            if current is not None and table is current[0] and count > current[1]:
                rows, end = current[2] + count - current[1], count
            if end <= since or (round is not None and list(table.lines)[-1][0] < round):
                continue
            step, _, *values = table.row(rows - 1)
            for name, value in zip(table.names, values, strict=True):
                if name not in newest or newest[name][0] < end:
                    newest[name] = end, int(step), value
        return {name: (newest[name][1], newest[name][2]) for name in self.names() if name in newest}

    def latest_on(self, ends: Mapping[int, float], round: int) -> dict[str, tuple[int, float]]:
        """Return step and value of each metric's newest row on a line of branches.

        Parameters
        ----------
        ends : mapping of int to float
            Of each branch of the line the last step that belongs to it.
        round : int
            The round of that line. Rows of earlier ones stand behind it.

        Notes
        -----
        From the newest row backwards, until every name is found.
        """
        found: dict[str, tuple[int, float]] = {}
        tables = list(self._tables.values())
        wanted, stop = set(self.names()), self._count
        for segment in reversed(range(self._segment_count())):
            base = segment * SEGMENT
            first, index, row, its_round, branch_id = self._segments[base : base + SEGMENT]
            table, count, stop = tables[index], stop - first, first
            names = wanted.intersection(table.positions)
            end = ends.get(branch_id, -1.0) if its_round == round else float("inf")
            if not names or end < 0:
                continue
            rows = range(row, row + count)
            within = bisect_right(rows, end, key=table.step)
            if within:
                values = table.row(rows[within - 1])
                found |= {each: (int(values[0]), values[table.positions[each]]) for each in names}
                wanted -= names
                if not wanted:
                    break
        return found

    def newest(self, name: str) -> tuple[int, float] | None:
        """Return step and value of a metric's newest row; None for one that was never recorded.

        The same as ``latest().get(name)``, and at once where it stands in the newest row.
        """
        current, count = self._current, self._count
        if current is not None:
            table, first, start = current
            position = table.positions.get(name)
            if position is not None and count > first:
                row = table.row(start + count - first - 1)
                return int(row[0]), row[position]
        return self.latest().get(name)

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Block]:
        """Yield the rows ``[start, stop)`` of the store in order, as copies."""
        stop = self._count if stop is None else min(stop, self._count)
        tables = list(self._tables.values())
        for first, last, index, row, round, branch_id in self._spans(start, stop):
            table = tables[index]
            rows = table.read(row, row + last - first)
            yield Block(first, table.names, round, branch_id, rows)

    def series(
        self, name: str, branch_id: int | None = None, round: int | None = None
    ) -> tuple[Floats, Floats]:
        """Return all values of one metric and their steps, in the order of recording.

        Parameters
        ----------
        name : str
        branch_id, round : int, optional
            Only this branch, only this round; all by default.

        Returns
        -------
        steps, values : array of float64, shape (n,)
            Private copies; empty for a name that was never recorded.
        """
        tables = list(self._tables.values())
        parts: list[Floats] = []
        for first, last, index, row, its_round, its_branch in self._spans(0, self._count):
            table = tables[index]
            if name not in table.positions:
                continue
            if branch_id not in (None, its_branch) or round not in (None, its_round):
                continue
            parts.append(table.column(name, row, row + last - first))
        rows = np.concatenate(parts, axis=1) if parts else np.empty((3, 0))
        return rows[0], rows[2]

    def lines(self, name: str) -> list[tuple[int, int]]:
        """Return ``(round, branch_id)`` of each curve of a metric, sorted."""
        return sorted(
            {
                line
                for table in self._tables.values()
                if name in table.positions
                for line in list(table.lines)
            }
        )

    def view(
        self,
        name: str,
        lo: float | None = None,
        hi: float | None = None,
        points: int = 2000,
        *,
        branch_id: int | None = None,
        round: int | None = None,
        axis: Literal["step", "t"] = "step",
        start: int = 0,
    ) -> CurveView:
        """Return one curve in few points, at a cost that hardly grows with its length.

        Parameters
        ----------
        name : str
        lo, hi : float, optional
            Ends of the window, both included, on `axis`.
        points : int
            About how many points at most, at least 4. Shorter curves come whole.
        branch_id, round : int, optional
            Which curve; by default the newest round in which the metric was recorded, and
            the newest branch in it.
        axis : {"step", "t"}
            What `lo` and `hi` are: steps, or seconds since the session was made.
        start : int
            Leave out the first `start` rows of the curve: pass `CurveView.end` of the last
            view to get what came since.

        Returns
        -------
        CurveView
            Empty for a curve that does not exist.

        Notes
        -----
        Each bucket gives its minimum and its maximum, so a spike of one step stays.
        """
        lines = [
            line
            for line in self.lines(name)
            if round in (None, line[0]) and branch_id in (None, line[1])
        ]
        line = lines[-1] if lines else (round or 0, branch_id or 0)
        return self._view(name, *line, lo, hi, points, axis, start)

    def views(
        self,
        name: str,
        lo: float | None = None,
        hi: float | None = None,
        points: int = 2000,
        *,
        axis: Literal["step", "t"] = "step",
    ) -> list[CurveView]:
        """Return all curves of one metric, one for each round and branch, as `view` does."""
        return [self._view(name, *line, lo, hi, points, axis, 0) for line in self.lines(name)]

    def frame(self) -> pd.DataFrame:
        """Return all metrics as a DataFrame: `round`, `branch_id`, `step`, `t`, one per metric.

        ``(round, branch_id, step)`` is unique: values given in several calls for one step
        share its row, the last one of a name wins, and t is the first. A metric that has the
        name of one of the four columns stands under ``"metric." + name``.
        """
        return metrics_frame(
            (block.names, block.round, block.branch_id, block.rows) for block in self.blocks()
        )

    @property
    def nbytes(self) -> int:
        """Memory of rows, segments and views."""
        return (
            sum(table.nbytes for table in self._tables.values())
            + len(self._segments) * self._segments.itemsize
            + sum(curve.nbytes for curve in list(self._curves.values()))
        )

    def _spans(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int, int, int]]:
        """Yield first and last row, table, row in it, round, branch of each segment's share."""
        segments = self._segments
        index = bisect_right(range(self._segment_count()), start, key=self._first_of) - 1
        while start < stop:
            base = index * SEGMENT
            first, table, row, round, branch_id = segments[base : base + SEGMENT]
            following = base + SEGMENT
            last = min(stop, segments[following] if following < len(segments) else stop)
            if last > start:
                yield start, last, table, row + start - first, round, branch_id
            start, index = max(start, last), index + 1

    def _segment_count(self) -> int:
        return len(self._segments) // SEGMENT

    def _first_of(self, segment: int) -> int:
        return self._segments[segment * SEGMENT]

    def _view(
        self,
        name: str,
        round: int,
        branch_id: int,
        lo: float | None,
        hi: float | None,
        points: int,
        axis: str,
        start: int,
    ) -> CurveView:
        if axis not in ("step", "t"):
            raise ValueError(f"axis={axis!r}: a view runs over 'step' or 't'")
        with self._reading:
            key = name, round, branch_id
            curve = self._curves.get(key)
            if curve is None:
                curve = Curve(*key)
                if (round, branch_id) in self.lines(name):
                    self._curves[key] = curve
            self._catch_up(curve)
            return curve.view(lo, hi, max(4, points), axis, start)

    def _catch_up(self, curve: Curve) -> None:
        """Show a curve the rows that came since its last view."""
        stop = self._count
        tables = list(self._tables.values())
        for first, last, index, row, round, branch_id in self._spans(curve.seen, stop):
            table = tables[index]
            ours = (round, branch_id) == (curve.round, curve.branch_id)
            if ours and curve.name in table.positions:
                curve.take(table, row, row + last - first)
        curve.seen = stop
