"""The events of a journal as they travel, each written once for all who read them."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from typing import Any

import orjson

from it2nb.core.chain import row_stem, whole
from it2nb.core.subscription import Gap

#: Events that are read at once.
CHUNK = 256
#: Chunks that are kept: readers at the head of the journal ask for the same ones.
KEPT = 32


class Chunk:
    """Neighbouring events.

    Attributes
    ----------
    lines : list of bytes
        Each one strict JSON; a line may hold many metrics events when packs were asked for.
    next : int
        The seq after the last of them.
    gap : Gap or None
        What is lost before them.
    """

    def __init__(self, lines: list[bytes], next: int, gap: Gap | None = None) -> None:
        self.lines = lines
        self.next = next
        self.gap = gap

    @cached_property
    def texts(self) -> list[str]:
        """Each line as text."""
        return [line.decode() for line in self.lines]

    @cached_property
    def batch(self) -> str:
        """All of them in one message."""
        return (b'{"v":2,"events":[' + b",".join(self.lines) + b"]}").decode()


class Feed:
    """Reads a journal for sockets. The loop's thread only.

    Parameters
    ----------
    journal : Journal or History
    """

    def __init__(self, journal: Any) -> None:
        self._journal = journal
        self._kept: OrderedDict[tuple[int, bool], Chunk] = OrderedDict()

    @property
    def next_seq(self) -> int:
        """The seq that the next event gets."""
        return int(self._journal.next_seq)

    @property
    def is_closed(self) -> bool:
        """Whether no event can come any more."""
        return bool(self._journal.is_closed)

    def read(self, seq: int, *, packed: bool = False) -> Chunk:
        """Return the next events from `seq` on, none when there are none yet."""
        key = seq, packed
        chunk = self._kept.get(key)
        if chunk is None:
            lines = self._journal.packed(seq) if packed else self._journal.lines(seq, limit=CHUNK)
            chunk = self._chunk(seq, lines)
            if lines:
                self._kept[key] = chunk
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return chunk

    def only(self, seq: int, types: frozenset[str], limit: int = CHUNK) -> Chunk:
        """Return the next events of these types from `seq` on."""
        _, events, following = self._journal.follow(seq, types, _ALL, limit)
        lines = [
            whole(
                row_stem(
                    each.seq, each.type, each.payload, each.ts, each.t, each.step, each.branch_id,
                    each.round, each.source, each.action_id,
                )
            )
            for each in events
        ]  # fmt: skip
        oldest: int = self._journal.oldest
        gap = Gap(seq, oldest - 1) if oldest > seq else None
        return Chunk(lines, max(seq, following), gap)

    def page(self, seq: int, limit: int) -> Chunk:
        """Return up to `limit` events at once."""
        return self._chunk(seq, self._journal.lines(seq, limit=limit))

    def _chunk(self, seq: int, lines: list[bytes]) -> Chunk:
        # After reading: what was read may have pushed the oldest out.
        if lines:
            first, last = _ends(lines[0])[0], _ends(lines[-1])[1]
        else:
            first = max(seq, self._journal.oldest)
            last = first - 1
        return Chunk(lines, last + 1, Gap(seq, first - 1) if first > seq else None)


_ALL = 1 << 60


def _ends(line: bytes) -> tuple[int, int]:
    """Return the first and the last seq of a line."""
    seq = orjson.loads(line)["seq"]
    return (int(seq[0]), int(seq[1])) if isinstance(seq, list) else (int(seq), int(seq))


def gap_line(gap: Gap) -> bytes:
    """Write the message that stands for events that are gone; in the form of an event."""
    told = gap.as_dict()
    return orjson.dumps(
        {"v": 2, "seq": gap.last, "type": "gap", "payload": told, "gap": told, "ts": 0.0}
    )
