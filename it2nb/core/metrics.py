"""Metrics: columns in memory, written by the training thread without a lock."""

from __future__ import annotations

import struct
import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from it2nb.core.curve import Curve, CurveView
from it2nb.core.faults import guard
from it2nb.core.table import Table
from it2nb.frames import metrics_frame

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

#: What a row that can't go the fast way raises; it then goes the careful one.
_UNUSUAL = (struct.error, TypeError, AttributeError, RuntimeError, ValueError, LookupError)
#: Numbers of a segment: first row in the store, table, first row in the table, round, branch.
_SEGMENT = 5


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


class MetricStore:
    """Every metric of a run, in the order in which it was recorded.

    One thread writes, the training thread; any thread reads, at any time, and sees whole rows
    only: a row's numbers are in place before `len` counts it. Rows with the same names lie in
    one table (48 bytes a row for four metrics); a segment notes where names, round or branch
    change, so that the order of all rows is known.

    Attributes
    ----------
    refused : dict of str to str
        Per metric, why its first value that is no number was left out.
    """

    __slots__ = (
        "_branch_id",
        "_buffer",
        "_count",
        "_current",
        "_curves",
        "_names",
        "_pack",
        "_reading",
        "_round",
        "_segments",
        "_shift",
        "_tables",
        "_width",
        "refused",
    )

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self._count = 0
        self._tables: dict[frozenset[str], Table] = {}
        self._segments = array("q")
        #: Table, first row in the store, first row in the table: of the newest segment.
        self._current: tuple[Table, int, int] | None = None
        # Where the next row goes.
        self._names: tuple[str, ...] | None = None
        self._branch_id = self._round = 0
        self._pack: Any = None
        self._buffer = bytearray()
        self._width = self._shift = 0
        # Readers only; the training thread never takes it.
        self._reading = threading.Lock()
        self._curves: dict[tuple[str, int, int], Curve] = {}

    # ------------------------------------------------------------------------- training thread

    def record(
        self, step: int, values: Mapping[str, Any], t: float, branch_id: int, round: int
    ) -> None:
        """Record the metrics of one step. Training thread only; takes no lock, never raises.

        Parameters
        ----------
        step : int
            Updates completed.
        values : mapping of str to number
            Whatever `float` takes, except text. NaN and infinities are kept as they are; a
            value that is no number is left out and noted in `refused`.
        t : float
            Seconds since the session was made.
        branch_id, round : int
        """
        try:
            if (
                tuple(values) == self._names
                and branch_id == self._branch_id
                and round == self._round
            ):
                # The place follows from the count alone: an interrupt between two statements
                # must not bring them apart.
                place = self._count * self._width - self._shift
                self._pack(self._buffer, place, step, t, *values.values())
                self._count += 1
                return
        except _UNUSUAL:  # the chunk is full, a value is no number, it is no mapping
            pass
        self._record_otherwise(step, values, t, branch_id, round)

    def extend(self, names: Sequence[str], rows: Floats, *, branch_id: int, round: int) -> None:
        """Record many steps at once, as they come out of a file. Training thread only.

        Parameters
        ----------
        names : sequence of str
        rows : array, shape (n, 2 + names)
            Step, t, values.
        """
        table = self._table(names)
        if table.names != tuple(names):
            order = [0, 1, *(2 + list(names).index(name) for name in table.names)]
            rows = rows[:, order]
        row = self._enter(table, branch_id, round)
        table.fill(row, rows)
        self._count += len(rows)
        # The next record finds its place anew.
        self._names = None

    def interrupt(self) -> None:
        """Begin a new segment with the next row: from here on t counts from elsewhere."""
        if self._current is not None:
            table, first, start = self._current
            table.rows, table.end = start + self._count - first, self._count
            self._current = self._names = None

    def _record_otherwise(
        self, step: int, values: Mapping[str, Any], t: float, branch_id: int, round: int
    ) -> None:
        """Record when names, branch or round changed, a chunk is full or a value is odd."""
        self._names = None  # nothing goes the fast way while its parts are exchanged
        with guard("metrics", lambda fault: self.refused.setdefault("", fault.error)):
            clean: dict[str, float] = {}
            for name, value in values.items():
                number = self._number(name, value)
                if number is not None:
                    clean[_text(name)] = number
            if not clean:
                return
            table = self._table(tuple(clean))
            row = self._enter(table, branch_id, round)
            buffer, offset = table.place(row)
            table.pack(buffer, offset, step, t, *(clean[name] for name in table.names))
            self._buffer, self._pack, self._width = buffer, table.pack, table.width
            self._shift = self._count * table.width - offset
            self._names = table.names
            self._count += 1

    def _number(self, name: object, value: Any) -> float | None:
        number: float | None = None
        if isinstance(value, (str, bytes)):
            why = f"{value!r:.60} is text, not a number"
        else:
            with guard(f"value of {name}") as fault:
                # One-element arrays: float() of those is deprecated in NumPy.
                number = float(value.item() if isinstance(value, np.ndarray) else value)
            why = f"a {type(value).__name__} is no number ({fault.error})"
        if number is None:
            self.refused.setdefault(_text(name), why)
        return number

    def _table(self, names: Sequence[str]) -> Table:
        key = frozenset(names)
        table = self._tables.get(key)
        if table is None:
            table = Table(tuple(names))
            self._tables = {**self._tables, key: table}
        return table

    def _enter(self, table: Table, branch_id: int, round: int) -> int:
        """Begin a segment if need be; return the next row's number in its table."""
        row = table.rows
        if self._current is not None:
            current, first, start = self._current
            if current is table:
                row = start + self._count - first
                if branch_id == self._branch_id and round == self._round:
                    return row
            current.rows = start + self._count - first
            current.end = self._count
        table.lines[round, branch_id] = None
        index = list(self._tables.values()).index(table)
        self._segments.extend((self._count, index, row, round, branch_id))
        self._current = table, self._count, row
        self._branch_id, self._round = branch_id, round
        return row

    # ------------------------------------------------------------------------------ any thread

    def __len__(self) -> int:
        """Return the number of rows: recorded steps, counted once for each call."""
        return self._count

    def names(self) -> list[str]:
        """Return the names of all metrics, in the order of their first values."""
        return list(dict.fromkeys(n for table in self._tables.values() for n in table.names))

    def latest(self) -> dict[str, tuple[int, float]]:
        """Return step and value of the newest row of each metric."""
        count, current = self._count, self._current
        newest: dict[str, tuple[int, int, float]] = {}
        for table in self._tables.values():
            rows, end = table.rows, table.end
            if current is not None and table is current[0] and count > current[1]:
                rows, end = current[2] + count - current[1], count
            if not rows:
                continue
            step, _, *values = table.row(rows - 1)
            for name, value in zip(table.names, values, strict=True):
                if name not in newest or newest[name][0] < end:
                    newest[name] = end, int(step), value
        return {name: (newest[name][1], newest[name][2]) for name in self.names() if name in newest}

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
            base = index * _SEGMENT
            first, table, row, round, branch_id = segments[base : base + _SEGMENT]
            following = base + _SEGMENT
            last = min(stop, segments[following] if following < len(segments) else stop)
            if last > start:
                yield start, last, table, row + start - first, round, branch_id
            start, index = max(start, last), index + 1

    def _segment_count(self) -> int:
        return len(self._segments) // _SEGMENT

    def _first_of(self, segment: int) -> int:
        return self._segments[segment * _SEGMENT]

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


def _text(name: object) -> str:
    # A lone surrogate has no UTF-8 form, and names go into the journal.
    return str(name).encode("utf-8", "replace").decode("utf-8")
