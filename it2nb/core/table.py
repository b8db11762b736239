"""The numbers of one set of metric names, row by row, in chunks that are never moved."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Rows of a full chunk. The first ones are smaller, so that a name set used once costs little.
CHUNK = 4096
_FIRST = 64
_FIRST_BITS = _FIRST.bit_length() - 1
_SMALL_CHUNKS = (CHUNK // _FIRST).bit_length()  # 64, 64, 128, ..., 2048: 4,096 rows together


class Table:
    """Rows ``step, t, value, value, ...`` as float64.

    Only the training thread writes, and only behind the rows that a reader may look at; the
    store publishes their number. A chunk is a bytearray that never grows: a numpy view of a
    growing buffer would make the trainer's next append a BufferError.

    Attributes
    ----------
    names : tuple of str
        The metrics, in the order of the columns.
    width : int
        Bytes of a row.
    rows, end : int
        Rows of this table, and rows of the whole store, when the trainer last left this table
        for another one. Stale while it is the current one.
    lines : dict
        ``(round, branch_id)`` of its rows, in the order of their first.
    """

    __slots__ = (
        "_unpack", "chunks", "end", "lines", "names", "pack", "positions", "rows", "width",
    )  # fmt: skip

    def __init__(self, names: tuple[str, ...]) -> None:
        self.names = names
        self.positions = {name: 2 + index for index, name in enumerate(names)}
        # One C call converts and stores a row; whatever has __float__ will do. Native layout:
        # "=" would take the portable, slower way to the same bytes.
        row = struct.Struct(f"{2 + len(names)}d")
        self.pack: Callable[..., None] = row.pack_into
        self._unpack = row.unpack_from
        self.width = row.size
        self.chunks: list[bytearray] = []
        self.rows = 0
        self.end = 0
        self.lines: dict[tuple[int, int], None] = {}

    def place(self, row: int) -> tuple[bytearray, int]:
        """Return chunk and byte offset at which row number `row` is to be written."""
        index, first, capacity = _chunk_of(row)
        if index == len(self.chunks):
            self.chunks.append(bytearray(capacity * self.width))
        return self.chunks[index], (row - first) * self.width

    def fill(self, row: int, block: Floats) -> None:
        """Write many rows at once, from row number `row` on. Shape (n, 2 + names)."""
        done = 0
        while done < len(block):
            chunk, offset = self.place(row + done)
            count = min(len(block) - done, (len(chunk) - offset) // self.width)
            target = np.frombuffer(chunk, np.float64).reshape(-1, self.width // 8)
            start = offset // self.width
            target[start : start + count] = block[done : done + count]
            done += count

    def views(self, start: int, stop: int) -> Iterator[Floats]:
        """Yield the rows of ``[start, stop)`` as arrays that alias the store: copy them."""
        while start < stop:
            index, first, capacity = _chunk_of(start)
            last = min(stop, first + capacity)
            grid = np.frombuffer(self.chunks[index], np.float64).reshape(-1, self.width // 8)
            yield grid[start - first : last - first]
            start = last

    def read(self, start: int, stop: int) -> Floats:
        """Copy the rows of ``[start, stop)``. Any thread, for rows that were published."""
        views = list(self.views(start, stop))
        if len(views) == 1:
            return views[0].copy()
        return np.concatenate(views) if views else np.empty((0, self.width // 8))

    def column(self, name: str, start: int, stop: int) -> Floats:
        """Copy ``step, t, value`` of one metric, shape (3, n). Any thread."""
        out = np.empty((3, stop - start))
        done = 0
        for view in self.views(start, stop):
            part = out[:, done : done + len(view)]
            part[0], part[1], part[2] = view[:, 0], view[:, 1], view[:, self.positions[name]]
            done += len(view)
        return out

    def row(self, row: int) -> tuple[float, ...]:
        """Read one row: step, t, values."""
        index, first, _ = _chunk_of(row)
        return self._unpack(self.chunks[index], (row - first) * self.width)

    def step(self, row: int) -> float:
        """Read the step of one row."""
        return self.row(row)[0]

    @property
    def nbytes(self) -> int:
        """Memory of the chunks."""
        return sum(map(len, self.chunks))


def _chunk_of(row: int) -> tuple[int, int, int]:
    """Tell index, first row and capacity of the chunk that holds a row."""
    if row >= CHUNK:
        index, first = divmod(row, CHUNK)
        return _SMALL_CHUNKS - 1 + index, row - first, CHUNK
    if row < _FIRST:
        return 0, 0, _FIRST
    index = (row >> _FIRST_BITS).bit_length()
    first = _FIRST << (index - 1)
    return index, first, first
