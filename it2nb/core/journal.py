"""The journal: every event of a run, in order, in memory and on disk."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from it2nb.core import lifeline
from it2nb.core.errors import JournalError
from it2nb.core.ledger import Ledger
from it2nb.core.verify import VerifyReport, checked, verify_file
from it2nb.core.walk import SEAL
from it2nb.core.wire import Event

if TYPE_CHECKING:
    from it2nb.core.metrics import MetricStore
    from it2nb.core.subscription import Subscription

#: Packs written in one hold of the lock by the sealing thread.
_PACKS = 8


class Journal(Ledger):
    """The ordered record of one run. Every method may be called on any thread.

    Rows other than metrics are on disk when `append` returns, with the metrics before them.
    Metrics are recorded in the store and get their seq when they are sealed: before the next
    other row, when somebody reads, and four times a second.

    Parameters
    ----------
    path : Path, optional
        The file. None keeps the journal in memory. A file of a run that was killed is taken up
        where it ends; what was begun of its last line is cut off, and a `recovered` row says so.
    metrics : MetricStore
        Filled by the training thread.
    run : str
        The run's name.
    clock : object with time() and monotonic()
        Seconds.
    retain : int, optional
        Without a file: keep that many events.

    Raises
    ------
    JournalError
        If the file can't be written, is being written by another session, or holds a run that
        was finished.
    JournalDamaged
        If what is in the file is not what was written.
    """

    def __init__(
        self,
        path: Path | str | None,
        metrics: MetricStore,
        *,
        run: str,
        clock: Any = time,
        retain: int | None = None,
    ) -> None:
        # Absolute: it is read again later, and the program may have changed its directory.
        where = None if path is None else Path(path).absolute()
        super().__init__(where, metrics, run, clock)
        self._retain = retain if path is None else None
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._closed = False
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        #: Called four times a second, on the journal's own thread, outside of its lock.
        self.on_tick: Callable[[], object] | None = None
        lifeline.hold(self)

    # --------------------------------------------------------------------------------- writing

    def append(
        self,
        type: str,
        payload: Mapping[str, Any],
        *,
        step: int = 0,
        branch_id: int = 0,
        round: int = 0,
        source: str | None = None,
        action_id: str | None = None,
    ) -> Event:
        """Write one row; it is on disk when this returns.

        Returns
        -------
        Event
            ``event.durable`` is False when the disk refused it. In a forked child, which may
            not write, its seq is -1.

        Raises
        ------
        JournalError
            After `close`.
        """
        row = [(type, payload)]
        if os.getpid() == self._pid:
            with self._lock:
                self._write_rows(row, step, branch_id, round, source, action_id)
                line = bisect_left(self._seqs, self.next_seq) - 1
                while self._types[line] != type:  # the disk refused, and a row says so
                    line -= 1
                event = self._line_event(self._stems[line] or b"{")
            self._tell()
            return event
        return Event(
            seq=-1, type=type, payload=dict(payload), ts=time.time(), step=step,
            branch_id=branch_id, round=round, source=source, action_id=action_id, durable=False,
        )  # fmt: skip

    def append_many(
        self,
        rows: Sequence[tuple[str, Mapping[str, Any]]],
        *,
        step: int = 0,
        branch_id: int = 0,
        round: int = 0,
        source: str | None = None,
        action_id: str | None = None,
    ) -> bool:
        """Write rows with neighbouring seqs in one go; they are on disk when this returns.

        Parameters
        ----------
        rows : sequence of (type, payload)

        Returns
        -------
        bool
            False when the disk refused them: they are known in memory only.

        Raises
        ------
        JournalError
            After `close`.
        """
        if os.getpid() != self._pid:
            return False
        with self._lock:
            durable = self._write_rows(rows, step, branch_id, round, source, action_id)
        if self._subscriptions:
            self._tell()
        return durable

    def seal(self) -> None:
        """Give the metrics that were recorded since the last time their seq, and write them.

        Writes what was kept in memory, too, if the disk is back.
        """
        if os.getpid() != self._pid:
            return
        while True:
            with self._lock:
                if self._closed:
                    return
                before = self._state
                more = self.seal_some(_PACKS)
                changed = self._state is not before
            if changed:
                self._tell()
            if not more:
                return

    def close(self, seal: bool = True) -> None:
        """End the journal: pending metrics, then the row that seals the chain. Idempotent.

        Parameters
        ----------
        seal : bool
            False leaves the chain open, for a run that will be taken up again.
        """
        if os.getpid() != self._pid:
            return
        self._stop.set()
        with self._lock:
            if self._closed:
                return
            self._anew_from = float("-inf")  # it is the last time
            while self.seal_some(_PACKS):
                pass
            if seal:
                self.put([(SEAL, {"events": self._state[0]})], *self._place)
            self._closed = True
            if self._file is not None:
                self._file.close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(10.0)
        self._tell()

    # --------------------------------------------------------------------------------- looking

    @property
    def degraded(self) -> str:
        """What the disk said when it refused; empty while all is well."""
        return self._trouble

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def anchor(self) -> str | None:
        """Return the hash of the newest line, to write down or commit: a cut tail shows then.

        None for a journal without a file.
        """
        if self.path is None:
            return None
        self.seal()
        return self._state[3].decode()

    def verify(self, anchor: str | None = None) -> VerifyReport | None:
        """Check the file from the first byte to the last; None without a file.

        Raises
        ------
        JournalDamaged
            If it is not what was written, or lacks the line of the anchor.
        """
        if self.path is None:
            return None
        self.seal()
        return checked(verify_file(self.path, anchor))

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else repr(str(self.path))
        return f"<Journal of {self.run}, {len(self)} events, {where}>"

    # ---------------------------------------------------------------------- what History asks

    def _extent(self) -> tuple[int, int]:
        state = self._state
        return state[0], state[1]

    def _refresh(self) -> None:
        self.seal()

    def _is_durable(self, seq: int) -> bool:
        return self.path is None or seq < self._state[2]

    def _enroll(self, subscription: Subscription) -> None:
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription; its own `close` calls this."""
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)

    # -------------------------------------------------------------------------- for lifeline

    def tick(self) -> None:
        """What the sealing thread does four times a second."""
        self.seal()
        if self.on_tick is not None:
            self.on_tick()

    def let_go(self) -> None:
        """Become inert in a forked child: touch no lock, leave the file to the parent."""
        self._subscriptions = ()
        if self._file is not None:
            self._file.abandon()

    def _write_rows(
        self,
        rows: Sequence[tuple[str, Mapping[str, Any]]],
        step: int,
        branch_id: int,
        round: int,
        source: str | None,
        action_id: str | None,
    ) -> bool:
        if self._closed:
            raise JournalError(
                f"the journal of run {self.run!r} is closed: the run is over, and its record "
                f"takes no more rows"
            )
        if self._thread is None:
            self._thread = lifeline.start(self, self._stop)
        return self.put(rows, step, branch_id, round, source, action_id)

    def _tell(self) -> None:
        for subscription in self._subscriptions:
            subscription.notify()
