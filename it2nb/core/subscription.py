"""Following a journal: a bounded mailbox that costs its writer nothing."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard

if TYPE_CHECKING:
    from it2nb.core.history import History
    from it2nb.core.wire import Event

#: Events fetched at once.
_FETCH = 256


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that a slow subscriber did not get, both ends included."""

    first: int
    last: int

    def as_dict(self) -> dict[str, int]:
        """Return ``{"from": first, "to": last}``, as it travels."""
        return {"from": self.first, "to": self.last}


class Subscription:
    """A place in a journal from which somebody reads on, in order.

    It holds no events of its own: it is a position, and what lies more than `maxlen` events
    behind the newest is skipped, with a `Gap` in its place. A subscriber that never reads costs
    nothing, and one that reads again gets the newest state at once.

    Parameters
    ----------
    history : History
    types : sequence of str, optional
        Only events of these types; all by default.
    maxlen : int
        Events that may wait.
    since : int
        The first seq that is wanted.
    wake : callable, optional
        Called without arguments on the writing thread whenever something may be new; must
        return at once. What it raises is dropped.
    """

    def __init__(
        self,
        history: History,
        types: Sequence[str] | None,
        maxlen: int,
        since: int,
        wake: Callable[[], Any] | None = None,
    ) -> None:
        if maxlen < 1:
            raise ValueError(f"maxlen={maxlen}: a mailbox holds at least one event")
        self.types = None if types is None else frozenset(types)
        self.maxlen = maxlen
        self._history = history
        self._next = since
        self._wake = wake
        self._fetched: deque[Event | Gap] = deque()
        self._news = threading.Event()
        self._reading = threading.Lock()
        self.closed = False

    def notify(self) -> None:
        """Tell that the journal has grown. The writing thread, outside of the journal's lock."""
        if not self._news.is_set():
            self._news.set()
        if self._wake is not None:
            with guard("wake of a subscriber"):
                self._wake()

    def get(self, timeout: float | None = None) -> Event | Gap | None:
        """Wait for the next event, or for the gap in the place of those that were skipped.

        Parameters
        ----------
        timeout : float, seconds, optional
            Waits without end by default; 0 does not wait.

        Returns
        -------
        Event, Gap or None
            None when the time is over, or when the subscription or the journal is closed and
            everything was read.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._news.clear()
            over = self.closed or self._history.is_closed
            with self._reading:
                if not self._fetched and not self.closed:
                    self._fetch()
                if self._fetched:
                    return self._fetched.popleft()
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if over or not self._news.wait(left):
                return None

    def drain(self) -> tuple[list[Event], Gap | None]:
        """Take everything that is there, without waiting; at least `maxlen` if there is more.

        Returns
        -------
        events : list of Event
        gap : Gap or None
            What was skipped before them.
        """
        events: list[Event] = []
        gap: Gap | None = None
        self._news.clear()
        with self._reading:
            while not self.closed and len(events) < self.maxlen:
                if not self._fetched:
                    self._fetch()
                if not self._fetched:
                    break
                while self._fetched:
                    item = self._fetched.popleft()
                    if isinstance(item, Gap):
                        gap = Gap(item.first if gap is None else gap.first, item.last)
                    else:
                        events.append(item)
        return events, gap

    def __iter__(self) -> Iterator[Event | Gap]:
        """Iterate until the subscription or the journal is closed."""
        while (item := self.get()) is not None:
            yield item

    def close(self) -> None:
        """Stop following; wakes whoever waits. Any thread, idempotent."""
        self.closed = True
        self._history.unsubscribe(self)
        self._news.set()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _fetch(self) -> None:
        """Read on from the position, skipping what is too old."""
        gap, events, self._next = self._history.follow(self._next, self.types, self.maxlen, _FETCH)
        if gap is not None:
            self._fetched.append(gap)
        self._fetched.extend(events)
