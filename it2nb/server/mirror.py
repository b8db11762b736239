"""The journal of a run elsewhere, as far as it has arrived here."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from it2nb.core.chain import pack_rows
from it2nb.core.history import History
from it2nb.core.metrics import MetricStore
from it2nb.core.subscription import Subscription


class Mirror(History):
    """A journal that is filled from a server; reads like any other. Any thread reads.

    Parameters
    ----------
    run : str
        The run's name.
    """

    def __init__(self, run: str) -> None:
        super().__init__(MetricStore(), run)
        # Events and lines that may be read; replaced as a whole, last.
        self._state = (0, 0)
        self._over = False
        self._lock = threading.Lock()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._news = threading.Condition()

    def take(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in rows as a server sends them, without a gap. The following thread only."""
        head, count = self._state
        for row in rows:
            if isinstance(row["seq"], list):
                self.take_rows(
                    tuple(row["columns"]),
                    pack_rows(row),
                    epoch=float(row["epoch"]),
                    branch_id=int(row["branch_id"]),
                    round=int(row["round"]),
                )
                head = int(row["seq"][1]) + 1
                continue
            if row["type"] == "gap":
                count = self._skip(int(row["payload"]["to"]) + 1, head, count)
                head = self.oldest
                continue
            self.take_line(int(row["seq"]), str(row["type"]), orjson.dumps(row)[:-1])
            head, count = int(row["seq"]) + 1, count + 1
        self._state = head, count
        self._tell()

    def _skip(self, oldest: int, head: int, count: int) -> int:
        """Stand for events that are gone: each takes the place of a row that can't be read."""
        for seq in range(head, oldest):
            self._stems.append(None)
            self._seqs.append(seq)
            self._types.append("gone")
        self.oldest = oldest
        return count + max(0, oldest - head)

    def end(self) -> None:
        """No event comes any more."""
        self._over = True
        self._tell()

    def wait_for(self, seq: int, timeout: float) -> bool:
        """Wait until the events before `seq` are here; whether they are."""
        with self._news:
            return self._news.wait_for(lambda: self._state[0] >= seq or self._over, timeout)

    @property
    def is_closed(self) -> bool:
        """Whether the run is over and everything of it has arrived."""
        return self._over

    def __repr__(self) -> str:
        return f"<Mirror of {self.run}, {len(self)} events>"

    def _extent(self) -> tuple[int, int]:
        return self._state

    def _enroll(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions = (*self._subscriptions, subscription)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forget a subscription; its own `close` calls this."""
        with self._lock:
            self._subscriptions = tuple(s for s in self._subscriptions if s is not subscription)

    def _tell(self) -> None:
        with self._news:
            self._news.notify_all()
        for subscription in self._subscriptions:
            subscription.notify()
