"""The events of a run in memory, in order, and every way to read them one by one."""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from it2nb.core.chain import PACK, event_json, pack_stem, payload_of, whole
from it2nb.core.subscription import Gap
from it2nb.core.wire import Event

if TYPE_CHECKING:
    from it2nb.core.metrics import Block, MetricStore

T = TypeVar("T")


class Record:
    """Events seq 0, 1, 2...: rows as the bytes of their line, metrics as rows of the store.

    Metrics event number s with k other rows before it is row s - k of the store. Nothing else
    is kept, so a row costs its line, and a metrics event nothing.

    Readers may be on any thread. They take no lock: they look at the first `head` events and
    the first `count` lines, which no longer change.
    """

    def __init__(self, metrics: MetricStore) -> None:
        self.metrics = metrics
        self._stems: list[bytes | None] = []
        self._seqs = array("q")
        self._types: list[str] = []
        self._lines: dict[str, array[int]] = {}
        #: Rows of the store from which on t counts from this Unix time.
        self._epochs: list[tuple[int, float]] = []
        #: Events before this one were dropped.
        self.oldest = 0

    # ------------------------------------------------------------- what a subclass fills in

    def _extent(self) -> tuple[int, int]:
        """Return `head` and `count`: events and lines that may be read."""
        raise NotImplementedError

    def _refresh(self) -> None:
        """Make what was recorded meanwhile readable."""

    def _is_durable(self, seq: int) -> bool:
        return True

    # ------------------------------------------------------------------------------- taking in

    def take_line(self, seq: int, type: str, stem: bytes) -> None:
        """Take in a row. The one thread that fills the record."""
        line = len(self._stems)
        self._stems.append(stem)
        self._seqs.append(seq)
        self._types.append(type)
        lines = self._lines.get(type)
        if lines is None:
            lines = self._lines[type] = array("q")
        lines.append(line)

    def give_back(self, count: int) -> None:
        """Forget the lines from number `count` on, which nobody has seen."""
        del self._stems[count:], self._seqs[count:], self._types[count:]
        for lines in self._lines.values():
            while lines and lines[-1] >= count:
                lines.pop()

    def take_rows(
        self,
        names: Sequence[str],
        rows: NDArray[np.float64],
        *,
        epoch: float,
        branch_id: int,
        round: int,
    ) -> None:
        """Take in a pack of metrics events: step, t and values of each."""
        if not self._epochs or self._epochs[-1][1] != epoch:
            self.metrics.interrupt()
            self._epochs.append((len(self.metrics), epoch))
        self.metrics.extend(names, rows, branch_id=branch_id, round=round)

    # --------------------------------------------------------------------------------- reading

    @property
    def next_seq(self) -> int:
        """The seq that the next event gets. Any thread."""
        return self._extent()[0]

    def __len__(self) -> int:
        return self.next_seq

    def row_types(self) -> list[str]:
        """Return the types of the rows other than metrics, in the order of their first ones."""
        self._refresh()
        return list(self._lines)

    def since(self, seq: int = 0, *, after: bool = False, limit: int | None = None) -> list[Event]:
        """Return the events from `seq` on. Any thread; as fast as the result is short.

        Parameters
        ----------
        seq : int
            The first one; may lie inside a pack. Events older than `oldest` are gone.
        after : bool
            Begin after `seq` instead.
        limit : int, optional
            At most that many.
        """
        return self._read(*self._range(seq, after, limit), self._line_event, self._row_event)

    def lines(self, seq: int = 0, *, after: bool = False, limit: int | None = None) -> list[bytes]:
        """Return the same as `since`, each event as the strict JSON that travels."""
        return self._read(*self._range(seq, after, limit), whole, _row_json)

    def packed(self, seq: int = 0, *, limit: int = 8 * PACK) -> list[bytes]:
        """Return the same as `lines`, but consecutive metrics events in packs, as in the file."""
        start, stop, count = self._range(seq, False, limit)
        made: list[bytes] = []
        line = bisect_left(self._seqs, start, 0, count)
        while start < stop:
            edge = min(stop, self._seqs[line]) if line < count else stop
            if edge == start:
                stem = self._stems[line]
                made.extend([] if stem is None else [whole(stem)])
                line, edge = line + 1, start + 1
            else:
                for block in self.metrics.blocks(start - line, edge - line):
                    place = self._epoch(block.first), block.names, block.round, block.branch_id
                    for at in range(0, len(block), PACK):
                        rows = block.rows[at : at + PACK]
                        made.append(whole(pack_stem(block.first + line + at, *place, rows)))
            start = edge
        return made

    def gap(self, seq: int) -> Gap | None:
        """Tell what is missing when one asks for the events from `seq` on; None for nothing."""
        return Gap(max(0, seq), self.oldest - 1) if seq < self.oldest else None

    def tail(self, n: int, types: Collection[str] | None = None) -> list[Event]:
        """Return the newest `n` events, of these types, oldest first. Any thread.

        Its cost does not grow with the run.
        """
        self._refresh()
        head, count = self._extent()
        if n <= 0:
            return []
        if types is None:
            start = max(self.oldest, head - n)
            return self._read(start, head, count, self._line_event, self._row_event)
        wanted = frozenset(types)
        if "metrics" not in wanted:
            return self._line_events(self._lines_of(wanted, 0, count, newest=n))
        # The newest n of all lie behind the n-th newest metrics event, if there are so many.
        start = max(self.oldest, self._seq_of(max(0, head - count - n), count))
        return self._read(start, head, count, self._line_event, self._row_event, wanted)[-n:]

    def follow(
        self, start: int, types: frozenset[str] | None, maxlen: int, limit: int
    ) -> tuple[Gap | None, list[Event], int]:
        """Return the gap, the next events and the next position for a subscription."""
        head, count = self._extent()
        if types is None or "metrics" in types:
            first = max(start, self.oldest, head - maxlen)
            gap = Gap(start, first - 1) if first > start else None
            stop = max(first, min(head, first + limit))
            events = self._read(first, stop, count, self._line_event, self._row_event, types)
            return gap, events, stop
        line = bisect_left(self._seqs, start, 0, count)
        fitting = self._lines_of(types, line, count)
        lost = max(0, len(fitting) - maxlen)
        while lost < len(fitting) and self._seqs[fitting[lost]] < self.oldest:
            lost += 1
        gap = Gap(self._seqs[fitting[0]], self._seqs[fitting[lost - 1]]) if lost else None
        chosen = fitting[lost : lost + limit]
        stop = self._seqs[chosen[-1]] + 1 if len(chosen) == limit else head
        return gap, self._line_events(chosen), max(start, stop)

    # ---------------------------------------------------------------------------------- inside

    def _range(self, seq: int, after: bool, limit: int | None) -> tuple[int, int, int]:
        self._refresh()
        head, count = self._extent()
        start = max(self.oldest, seq + 1 if after else seq)
        return start, head if limit is None else min(head, start + max(0, limit)), count

    def _read(
        self,
        start: int,
        stop: int,
        count: int,
        of_line: Callable[[bytes], T],
        of_row: Callable[[int, Block, list[float], float], T],
        types: frozenset[str] | None = None,
    ) -> list[T]:
        """Make something of each event in ``[start, stop)``: of its line, or of its row."""
        made: list[T] = []
        seq, line = start, bisect_left(self._seqs, start, 0, count)
        while seq < stop:
            edge = min(stop, self._seqs[line]) if line < count else stop
            if edge == seq:
                stem = self._stems[line]
                if stem is not None and (types is None or self._types[line] in types):
                    made.append(of_line(stem))
                line += 1
            elif types is None or "metrics" in types:
                for block in self.metrics.blocks(seq - line, edge - line):
                    epoch = self._epoch(block.first)
                    for at, row in enumerate(block.rows.tolist(), block.first + line):
                        made.append(of_row(at, block, row, epoch))
            seq = max(edge, seq + 1)
        return made

    def _line_events(self, lines: Sequence[int]) -> list[Event]:
        stems = [self._stems[line] for line in lines]
        return [self._line_event(stem) for stem in stems if stem is not None]

    def _line_event(self, stem: bytes) -> Event:
        row = orjson.loads(whole(stem))
        seq = row["seq"]
        return Event(
            seq=seq, type=row["type"], payload=payload_of(row), ts=row["ts"], t=row["t"],
            step=row["step"], branch_id=row["branch_id"], round=row["round"],
            source=row["source"], action_id=row["action_id"], durable=self._is_durable(seq),
        )  # fmt: skip

    def _row_event(self, seq: int, block: Block, row: list[float], epoch: float) -> Event:
        return Event(
            seq=seq, type="metrics", payload=dict(zip(block.names, row[2:], strict=True)),
            ts=epoch + row[1], t=row[1], step=int(row[0]), branch_id=block.branch_id,
            round=block.round, durable=self._is_durable(seq),
        )  # fmt: skip

    def _epoch(self, row: int) -> float:
        """Return the Unix time at t = 0 of a row of the store."""
        return next(epoch for first, epoch in reversed(self._epochs) if first <= row)

    def _seq_of(self, row: int, count: int) -> int:
        """Return the seq of the metrics event that is this row of the store."""
        # Line k has seqs[k] - k rows of the store before it.
        return row + bisect_right(range(count), row, key=lambda k: self._seqs[k] - k)

    def _lines_of(
        self, types: Collection[str], start: int, count: int, newest: int | None = None
    ) -> list[int]:
        """Return the numbers of the lines of these types among ``[start, count)``, in order."""
        found: list[list[int]] = []
        for type in types:
            lines = self._lines.get(type)
            if lines is not None:
                stop = bisect_left(lines, count)
                first = bisect_left(lines, start, 0, stop)
                if newest is not None:
                    first = max(first, stop - newest)
                found.append(lines[first:stop].tolist())
        merged = list(heapq.merge(*found))
        return merged if newest is None else merged[-newest:]

    def _rows_of(self, types: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the parsed rows of these types, their payloads as they were."""
        _, count = self._extent()
        for line in self._lines_of(types, 0, count):
            stem = self._stems[line]
            if stem is not None:
                row = orjson.loads(whole(stem))
                row["payload"] = payload_of(row)
                yield row


def _row_json(seq: int, block: Block, row: list[float], epoch: float) -> bytes:
    return event_json(seq, epoch, block.names, block.round, block.branch_id, row)
