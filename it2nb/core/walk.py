"""Reading a journal file line by line, each checked against the chain."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from it2nb.core.chain import GENESIS, unlink, whole
from it2nb.core.errors import JournalDamaged, JournalError

#: Type of the row that ends the chain of a finished run.
SEAL = "journal_sealed"


@dataclass(frozen=True, slots=True)
class Line:
    """One whole line, checked.

    Attributes
    ----------
    stem : bytes
        Without `prev` and `hash`.
    row : dict
        The same, parsed.
    first, last : int
        Its seq; a pack has several.
    hash : bytes
    end : int
        Offset of the byte after its newline.
    """

    stem: bytes
    row: dict[str, Any]
    first: int
    last: int
    hash: bytes
    end: int


class Walk:
    """Iterates over the whole lines of a journal, from the first one.

    After the end `torn` holds how many bytes of an unfinished line follow: what a killed writer
    leaves, or a running one is about to complete.

    Raises
    ------
    JournalError
        If there is no such file.
    JournalDamaged
        While iterating; it names the seq of the first line that is not what was written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = 0
        #: Seq that the next line must have.
        self.next_seq = 0
        self.hash = GENESIS
        self.end = 0
        self.is_sealed = False

    def __iter__(self) -> Iterator[Line]:
        try:
            file = self.path.open("rb")
        except OSError as err:
            raise JournalError(
                f"the journal {str(self.path)!r} can't be read ({err.strerror}); name the file "
                f"journal.jsonl of a run, or its folder"
            ) from err
        with file:
            # What a running writer appends meanwhile is not looked at: its last line may be
            # half there now and whole a moment later.
            left = os.fstat(file.fileno()).st_size
            while left > 0:
                raw = file.readline(left)
                left -= len(raw)
                if not raw:
                    break
                if not raw.endswith(b"\n"):
                    self._tail(raw)
                    return
                yield self._line(raw[:-1])

    def _line(self, raw: bytes) -> Line:
        if self.is_sealed:
            raise self._damage("it stands behind the row that seals the run")
        try:
            stem, digest = unlink(raw, self.hash)
            row = orjson.loads(whole(stem))
            first, last = _range(row)
            sealed = row["type"] == SEAL
        except (ValueError, KeyError, TypeError) as err:
            raise self._damage(str(err)) from err
        if first != self.next_seq:
            raise self._damage(f"it has seq {first}")
        self.hash = digest
        self.end += len(raw) + 1
        self.next_seq = last + 1
        self.is_sealed = sealed
        return Line(stem, row, first, last, digest, self.end)

    def _tail(self, raw: bytes) -> None:
        """Tell an unfinished line from a changed one."""
        if not self.is_sealed and _begins_like(raw, self.next_seq):
            try:
                unlink(raw[:-1], self.hash)
            except ValueError:
                self.torn = len(raw)
                return
        # Complete but for its last byte, or nothing that the writer can have begun.
        raise self._damage("it is no line that the writer began")

    def _damage(self, what: str) -> JournalDamaged:
        return JournalDamaged(
            f"the journal {str(self.path)!r} is damaged at seq {self.next_seq}: the line at byte "
            f"{self.end} should hold it, but {what}. What stands before it is intact",
            seq=self.next_seq,
        )


def _range(row: Any) -> tuple[int, int]:
    if row["v"] != 2:
        raise ValueError(f"it is of version {row['v']!r}, not 2")
    seq = row["seq"]
    if isinstance(seq, list):
        first, last = seq
        if not first <= last:
            raise ValueError(f"its range {seq} is empty")
        return first, last
    return int(seq), int(seq)


def _begins_like(raw: bytes, seq: int) -> bool:
    """Whether `raw` can be the beginning of the line of this seq."""
    starts = (f'{{"v":2,"seq":{seq},'.encode(), f'{{"v":2,"seq":[{seq},'.encode())
    return any(start.startswith(raw[: len(start)]) for start in starts)
