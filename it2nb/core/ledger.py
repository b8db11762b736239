"""The writing half of the journal: giving seqs, chaining lines, and a disk that may refuse."""

from __future__ import annotations

import contextlib
import errno
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from it2nb.core.chain import GENESIS, PACK, link, pack_stem, shared_fields, stem_of, whole
from it2nb.core.errors import JournalError
from it2nb.core.history import History
from it2nb.core.journal_file import JournalFile
from it2nb.core.opened import load
from it2nb.core.walk import Walk

if TYPE_CHECKING:
    from it2nb.core.metrics import MetricStore

#: Bytes written at once when the disk is back.
_SLICE = 1 << 20


class Ledger(History):
    """Events that are still being written. The journal's lock stands around every method.

    What readers may see is one tuple, `_state`, put in place last. So no reader needs the lock,
    and an interrupt in the midst of a write leaves nothing behind: the next one takes back what
    was not finished, in memory and in the file.

    When the disk refuses, the file stays at its last whole line and events go on in memory,
    which holds them anyway; when the disk is back, what is missing is written from there.
    """

    def __init__(
        self, path: Path | None, metrics: MetricStore, run: str, clock: Any = time
    ) -> None:
        super().__init__(metrics, run)
        self.path = path
        #: Monotonic seconds at t = 0, and the Unix time then.
        self.t0: float = clock.monotonic()
        self._epoch0: float = clock.time()
        self._monotonic = clock.monotonic
        self._retain: int | None = None
        self._freed = 0
        #: Step, branch and round of the newest row.
        self._place = (0, 0, 0)
        self._trouble = ""
        self._caught_up = 0
        # Events; lines; events on disk; hash of the last line on disk; bytes of the file.
        self._state: tuple[int, int, int, bytes, int] = (0, 0, 0, GENESIS, 0)
        self._unfinished = False
        #: Told in words of what somebody else did to the file. Called under the journal's lock.
        self.on_harm: Callable[[str], object] | None = None
        #: What was done to it, until there is a new one; not looked at again before a moment.
        self._harm = ""
        self._anew_from = float("-inf")
        self._anew_wait_s = 0.25
        self._file: JournalFile | None = None
        #: Whether another process had begun it.
        self.was_taken_up = False
        torn = 0
        if path is not None:
            self._file = JournalFile(path)
            try:
                torn = self._take_up(path, self._file)
            except BaseException:
                self._file.close()
                raise
        metrics.interrupt()
        self._epochs.append((len(metrics), self._epoch0))
        if torn:
            self._recovered(torn, self._state[0])

    def place_of_newest(self) -> tuple[int, int, int]:
        """Return step, branch and round of the newest row other than metrics. Any thread."""
        return self._place

    def put(
        self,
        rows: Sequence[tuple[str, Mapping[str, Any]]],
        step: int,
        branch_id: int,
        round: int,
        source: str | None = None,
        action_id: str | None = None,
        stop: int | None = None,
    ) -> bool:
        """Give pending metrics, up to the store's row `stop`, and then `rows` their seqs.

        Returns
        -------
        bool
            Whether all of it is on disk, or there is none.
        """
        if self._unfinished:
            self._take_back()
        self._unfinished = True
        head, count, written, prev, size = self._state
        file = self._file if written == head else None
        chunks: list[bytes] = []
        pending = (len(self.metrics) if stop is None else stop) - (head - count)
        if pending > 0:
            if file is not None:
                for stem, _ in self._packs(head, head - count, head - count + pending):
                    line, prev = link(stem, prev)
                    chunks.append(line)
            head += pending
        if rows:
            t = self._monotonic() - self.t0
            shared = shared_fields(self._epoch0 + t, t, step, branch_id, round, source, action_id)
            for type, payload in rows:
                stem = stem_of(head, type, payload, shared)
                self.take_line(head, type, stem)
                if file is not None:
                    line, prev = link(stem, prev)
                    chunks.append(line)
                head += 1
            count += len(rows)
            self._place = step, branch_id, round
        refused: OSError | None = None
        if file is not None and chunks:
            data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            try:
                file.write(data, size)
            except OSError as err:
                refused, prev = err, self._state[3]
            else:
                written, size = head, size + len(data)
        self._state = head, count, written, prev, size
        self._unfinished = False
        if refused is not None:
            self._degrade(refused)
        if self._retain is not None:
            self._drop(head - self._retain)
        return written == head or self._file is None

    def seal_some(self, packs: int) -> bool:
        """Seal at most so many packs of pending metrics, or write some of what was kept.

        Returns
        -------
        bool
            Whether there is more to do.
        """
        if self._unfinished:
            self._take_back()
        if self._file is not None:
            self._look_after(self._file)
        head, count, *_ = self._state
        stop = min(len(self.metrics), head - count + packs * PACK)
        if stop > head - count:
            self.put([], *self._place, stop=stop)
        if self._file is not None and self._state[2] < self._state[0]:
            return self._catch_up()
        return stop < len(self.metrics)

    # ------------------------------------------------------------------------------ inside

    def _packs(self, seq: int, start: int, stop: int) -> Iterator[tuple[bytes, int]]:
        """Yield the packs of the store's rows ``[start, stop)``, and the seq after each."""
        for block in self.metrics.blocks(start, stop):
            epoch = self._epoch(block.first)
            for at in range(0, len(block), PACK):
                rows = block.rows[at : at + PACK]
                stem = pack_stem(seq, epoch, block.names, block.round, block.branch_id, rows)
                seq += len(rows)
                yield stem, seq

    def _take_back(self) -> None:
        """Undo an append that an interrupt left unfinished: nobody was told of it."""
        _, count, _, _, size = self._state
        self.give_back(count)
        if self._file is not None:
            with contextlib.suppress(OSError):  # then it is cut before the next write
                self._file.cut(size)
        self._unfinished = False

    def _degrade(self, refused: OSError) -> None:
        """The disk refused: keep rows in memory, say so once, and try again later."""
        if self._trouble:
            return
        self._trouble = f"the disk refused the journal ({refused.strerror or refused})"
        self.put(
            [("journal_degraded", {"error": self._trouble, "from": self._state[2]})], *self._place
        )

    def _catch_up(self) -> bool:
        """Write a slice of what was kept in memory, in order; tell if there is more."""
        assert self._file is not None
        head, count, written, prev, size = self._state
        chunks: list[bytes] = []
        for stem, after in self._backlog(written, head, count):
            line, prev = link(stem, prev)
            chunks.append(line)
            written = after
            if sum(map(len, chunks)) >= _SLICE:
                break
        data = b"".join(chunks)
        self._unfinished = True
        try:
            self._file.write(data, size)
        except OSError:
            self._unfinished = False
            return False
        kept = written - self._state[2]
        self._state = head, count, written, prev, size + len(data)
        self._unfinished = False
        self._caught_up += kept
        if written < head:
            return True
        self._trouble = ""
        kept, self._caught_up = self._caught_up, 0
        self._recovered(0, kept)
        return True

    def _recovered(self, cut_bytes: int, kept: int) -> None:
        payload = {"cut_bytes": cut_bytes, "kept_events": kept}
        self.put([("recovered", payload)], *self._place)

    def _backlog(self, seq: int, head: int, count: int) -> Iterator[tuple[bytes, int]]:
        """Yield the stems of the lines of the events ``[seq, head)``, and the seq after each."""
        line = bisect_left(self._seqs, seq, 0, count)
        while seq < head:
            edge = min(head, self._seqs[line]) if line < count else head
            if edge > seq:
                yield from self._packs(seq, seq - line, edge - line)
            else:
                edge = seq + 1
                yield self._stems[line] or b"{", edge
                line += 1
            seq = edge

    def _drop(self, oldest: int) -> None:
        """Forget the rows before `oldest`; what stays of one is its place."""
        if oldest <= self.oldest:
            return
        self.oldest = oldest
        while self._freed < self._state[1] and self._seqs[self._freed] < oldest:
            self._stems[self._freed] = None
            self._freed += 1

    def _look_after(self, file: JournalFile) -> None:
        """Write all of it again, from memory, when somebody else took or changed the file."""
        now = self._monotonic()
        if now < self._anew_from:
            return
        self._harm = self._harm or file.harm(self._state[4])
        if not self._harm:
            return
        # A program that replaces it again and again is not fought four times a second.
        self._anew_wait_s *= 2
        self._anew_from = now + self._anew_wait_s
        head, count, *_ = self._state
        self._state = head, count, 0, GENESIS, 0
        said = f"the journal's file {self._harm}"
        try:
            aside = file.put_aside()
            self._file, self._harm = JournalFile(file.path), ""
        except (OSError, JournalError) as err:
            self._degrade(OSError(errno.ESTALE, f"{said}, and no new one could be made: {err}"))
            return
        if aside is not None:
            said += f"; what was found there is {aside.name} now"
        self._degrade(OSError(errno.ESTALE, said))
        file.close()
        if self.on_harm is not None:
            self.on_harm(f"{said}; the whole record is written anew")

    def _take_up(self, path: Path, file: JournalFile) -> int:
        """Read what a killed run left, cut off the line that it did not finish; return its size."""
        walk = Walk(path)
        for line in walk:
            load(self, line)
        if walk.is_sealed:
            raise JournalError(
                f"the journal {str(path)!r} is that of a finished run; read it with "
                f"it2nb.open(...), or give this run another run_id"
            )
        if walk.torn:
            file.cut(walk.end)
        self._state = walk.next_seq, len(self._stems), walk.next_seq, walk.hash, walk.end
        self.was_taken_up = walk.next_seq > 0
        if self._stems:
            last = orjson.loads(whole(self._stems[-1] or b"{"))
            self._place = last["step"], last["branch_id"], last["round"]
        return walk.torn
