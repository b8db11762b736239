"""Recording metrics: the training thread's half of the store."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from it2nb.core.faults import ENDING, guard
from it2nb.core.table import Table

Floats = NDArray[np.float64]

#: Numbers of a segment: first row in the store, table, first row in the table, round, branch.
SEGMENT = 5
#: Names of which it is noted that their value was no number; more are not told apart.
MOST_REFUSED = 50


class Recorder:
    """Takes in one row after another, without a lock.

    A row's numbers are in place before `_count` counts it, so that a reader on another thread
    sees whole rows only. Every method is for the training thread alone.

    Attributes
    ----------
    refused : dict of str to str
        Per metric, why its first value that is no number was left out; the first 50 names.
    on_refused : callable or None
        Called with name and reason when a name comes into `refused`.
    """

    __slots__ = (
        "_branch_id",
        "_buffer",
        "_count",
        "_current",
        "_has_arrays",
        "_names",
        "_pack",
        "_round",
        "_segments",
        "_shift",
        "_tables",
        "_width",
        "on_refused",
        "refused",
    )

    def __init__(self) -> None:
        self.refused: dict[str, str] = {}
        self.on_refused: Callable[[str, str], object] | None = None
        self._count = 0
        self._tables: dict[frozenset[str], Table] = {}
        self._segments = array("q")
        #: Table, first row in the store, first row in the table: of the newest segment.
        self._current: tuple[Table, int, int] | None = None
        # Where the next row goes.
        self._names: tuple[str, ...] | None = None
        self._has_arrays = False
        self._branch_id = self._round = 0
        self._pack: Any = None
        self._buffer = bytearray()
        self._width = self._shift = 0

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
                row: Iterable[Any] = values.values()
                if self._has_arrays:
                    # Packing a tensor that carries a graph would warn, and so would an array.
                    row = [each.item() if hasattr(each, "item") else each for each in row]
                self._pack(self._buffer, place, step, t, *row)
                self._count += 1
                return
        except ENDING:
            raise
        except BaseException:  # noqa: BLE001 - the careful way reads all again, behind its guard:
            pass  # the chunk is full, it is no mapping, a value is no number or can't be read
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
        if isinstance(values, dict) and not values:
            return
        self._names = None  # nothing goes the fast way while its parts are exchanged
        given: Any = values
        if not isinstance(given, Mapping) and not hasattr(given, "items"):
            self._refuse("", "" if "" in self.refused else f"{shown(given)} is no mapping")
            return
        with guard("metrics", lambda fault: self._refuse("", fault.error)):
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
            self._has_arrays = any(map(_is_array, values.values()))
            self._names = table.names
            self._count += 1

    def _number(self, name: object, value: Any) -> float | None:
        number, error = number_of(value)
        if number is None:
            text = _text(name)
            if text not in self.refused:
                self._refuse(text, f"{shown(value)} is no number{error}")
        return number

    def _refuse(self, name: str, why: str) -> None:
        if name in self.refused or len(self.refused) >= MOST_REFUSED:
            return
        self.refused[name] = why
        if self.on_refused is not None:
            with guard(f"warning of {name}"):
                self.on_refused(name, why)

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


def number_of(value: Any) -> tuple[float | None, str]:
    """Read a metric's value.

    Returns
    -------
    number : float or None
        None for what is no number.
    error : str
        What reading it raised, in brackets; empty where nothing was.
    """
    if isinstance(value, (str, bytes)):
        return None, ""
    number: float | None = None
    with guard("value of a metric") as fault:
        # float() of a one-element array is deprecated in NumPy, and of a tensor that carries a
        # graph it warns in PyTorch.
        if _is_array(value):
            value = value.item()
        number = float(value)
    return number, f" ({fault.error})" if fault else ""


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or hasattr(value, "detach")


def shown(value: Any) -> str:
    """Say what a value is that is no number: its text for a short one, its type, its shape."""
    kind = type(value).__name__
    if value is None:
        return "None"
    if isinstance(value, (str, bytes)):
        return f"{value[:40]!r}, a text,"
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"a {kind} of shape {tuple(shape)}"
    text = ""
    if isinstance(value, (int, float, complex, list, tuple, dict)) and _is_short(value):
        text = f"{value!r:.60}, "
    return f"{text}a {kind},"


def _is_short(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        inner = value.values() if isinstance(value, dict) else value
        return len(value) <= 4 and all(type(each) in (int, float, str) for each in inner)
    return not isinstance(value, int) or value.bit_length() < 200


def _text(name: object) -> str:
    # A lone surrogate has no UTF-8 form, and names go into the journal.
    return str(name).encode("utf-8", "replace").decode("utf-8")
