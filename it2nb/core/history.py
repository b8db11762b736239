"""What a journal holds in memory, and every way to read it: live or from a file."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray

from it2nb.core.chain import PACK, event_json, pack_stem, payload_of, whole
from it2nb.core.effects import changes_of, effect_columns
from it2nb.core.event_table import event_columns, metric_columns
from it2nb.core.export import write_csv, write_parquet
from it2nb.core.request_table import request_columns
from it2nb.core.subscription import Gap, Subscription
from it2nb.core.wire import Event
from it2nb.frames import events_frame, frame_of, requests_frame

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

    from it2nb.core.metrics import Block, MetricStore

T = TypeVar("T")


#: Rows that tell of a request.
REQUEST_TYPES = ("action_submitted", "approval_requested", "action_result")


class History:
    """The events of one run in order, seq 0, 1, 2...

    Rows other than metrics are kept as the bytes of their line. Metrics events are rows of the
    store: event number s with k other rows before it is row s - k. Nothing else is kept, so an
    event costs its line, and a metrics event nothing.

    Readers may be on any thread. They take no lock: they look at the first `head` events and
    the first `count` lines, which no longer change.
    """

    def __init__(self, metrics: MetricStore, run: str) -> None:
        self.metrics = metrics
        self.run = run
        self._stems: list[bytes | None] = []
        self._seqs = array("q")
        self._types: list[str] = []
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

    def _enroll(self, subscription: Subscription) -> None:
        """Tell a subscription from now on when there is more."""

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription; it calls this itself."""

    @property
    def is_closed(self) -> bool:
        """Whether no event can come any more."""
        return True

    # -------------------------------------------------------------------- taking in from a file

    def take_line(self, seq: int, type: str, stem: bytes) -> None:
        """Take in a row; while the history is being read from its file only."""
        self._stems.append(stem)
        self._seqs.append(seq)
        self._types.append(sys.intern(type))

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

    # ----------------------------------------------------------------------- events, one by one

    @property
    def next_seq(self) -> int:
        """The seq that the next event gets. Any thread."""
        return self._extent()[0]

    def __len__(self) -> int:
        return self.next_seq

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
        """Return the newest `n` events, of these types, oldest first. Any thread."""
        self._refresh()
        head, count = self._extent()
        wanted = None if types is None else frozenset(types)
        seq, line, found = head, count, 0
        while seq > self.oldest and found < n:
            # Metrics events between two lines, then the line before them.
            edge = self._seqs[line - 1] + 1 if line else 0
            if wanted is None or "metrics" in wanted:
                taken = min(seq - max(edge, self.oldest), n - found)
                found, seq = found + taken, seq - taken
                if found >= n:
                    break
            if edge <= self.oldest:
                seq = self.oldest
                break
            seq, line = edge - 1, line - 1
            found += wanted is None or self._types[line] in wanted
        return self._read(seq, head, count, self._line_event, self._row_event, wanted)

    def subscribe(
        self,
        types: Sequence[str] | None = None,
        maxlen: int = 1000,
        *,
        since: int | None = None,
        wake: Callable[[], Any] | None = None,
    ) -> Subscription:
        """Follow the journal from now on, or from the event `since` on. Any thread.

        Returns
        -------
        Subscription
            Close it when it is no longer read.
        """
        start = self.next_seq if since is None else since
        subscription = Subscription(self, types, maxlen, start, wake)
        self._enroll(subscription)
        return subscription

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
        fitting = [i for i in range(line, count) if self._types[i] in types]
        lost = max(0, len(fitting) - maxlen)
        while lost < len(fitting) and self._seqs[fitting[lost]] < self.oldest:
            lost += 1
        gap = Gap(self._seqs[fitting[0]], self._seqs[fitting[lost - 1]]) if lost else None
        chosen = fitting[lost : lost + limit]
        stop = self._seqs[chosen[-1]] + 1 if len(chosen) == limit else head
        stems = [stem for each in chosen if (stem := self._stems[each]) is not None]
        return gap, [self._line_event(stem) for stem in stems], max(start, stop)

    # ------------------------------------------------------------------------------- in tables

    def frame(self) -> pd.DataFrame:
        """Return all events as a DataFrame; the columns stand in `it2nb.frames`. Any thread."""
        self._refresh()
        head, count = self._extent()
        seqs = np.array(self._seqs[:count], np.int64)
        rows: list[Any] = [None]
        while None in rows:  # again, should the oldest ones be dropped meanwhile
            oldest = self.oldest
            kept = int(np.searchsorted(seqs, oldest))
            rows = [stem and orjson.loads(whole(stem)) for stem in self._stems[kept:count]]
        metrics = metric_columns(self.metrics, oldest - kept, head - count, self._epochs)
        return events_frame(event_columns(seqs[kept:], rows, metrics, oldest, head))

    def requests(self) -> pd.DataFrame:
        """Return all requests with their results as a DataFrame. Any thread.

        A request without a result is `pending`, or `waiting` for approval.
        """
        return requests_frame(request_columns(self._rows_of(REQUEST_TYPES)))

    def effects(self, metrics: Sequence[str] | None = None, window: int = 50) -> pd.DataFrame:
        """Estimate what each applied change did to the metrics. Any thread.

        Parameters
        ----------
        metrics : sequence of str, optional
            All by default.
        window : int
            Values before and after the change that are looked at, at most. A window ends
            where the next change begins.

        Returns
        -------
        DataFrame
            See `it2nb.core.effects`: level and slope before and after, the change with its
            95 % interval, and a verdict that is ``"unclear"`` when the interval holds 0.
        """
        changes = changes_of(self._rows_of(("knob_changed",)))
        names = self.metrics.names() if metrics is None else list(metrics)
        return frame_of("effects", effect_columns(self.metrics, changes, names, window))

    def to_csv(self, path: str | Path, table: str = "events") -> Path:
        """Write the events, requests or metrics as CSV. Any thread."""
        return write_csv(self._table(table), path)

    def to_parquet(self, path: str | Path, table: str = "events") -> Path:
        """Write the events, requests or metrics as Parquet; needs pyarrow. Any thread."""
        return write_parquet(self._table(table), path)

    def _table(self, table: str) -> pd.DataFrame:
        makers = {
            "events": self.frame,
            "requests": self.requests,
            "metrics": self.metrics.frame,
            "effects": self.effects,
        }
        if table not in makers:
            raise ValueError(f"table={table!r} is none of {', '.join(makers)}")
        return makers[table]()

    # ------------------------------------------------------------------------------------ inside

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

    def _rows_of(self, types: Collection[str]) -> Iterator[dict[str, Any]]:
        """Yield the parsed rows of these types, their payloads as they were."""
        _, count = self._extent()
        wanted = frozenset(types)
        for line in range(count):
            if self._types[line] in wanted:
                stem = self._stems[line]
                if stem is not None:
                    row = orjson.loads(whole(stem))
                    row["payload"] = payload_of(row)
                    yield row


def _row_json(seq: int, block: Block, row: list[float], epoch: float) -> bytes:
    return event_json(seq, epoch, block.names, block.round, block.branch_id, row)
