"""The line between the ranks of one run: messages in order, answers, and signs of life.

It goes through the key-value store of the process group (with ``torchrun`` a `TCPStore`), on a
connection of its own, and uses no collective: nothing of it can be mixed up with the training's
collectives, whatever their backend, and no timeout of theirs runs while a rank waits here.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import orjson
import torch.distributed as dist
from torch.distributed import distributed_c10d

from it2nb.core.errors import It2nbError
from it2nb.core.faults import guard

#: Seconds between two signs of life of a rank.
BEAT_EVERY_S = 1.0

_serial = 0


class RankLost(It2nbError):
    """A rank gave no sign of life for too long, or the store is gone."""


class Line:
    """One rank's end of the line. Training thread, unless a method says otherwise.

    Rank 0 tells, the others read what it told, each message once and in order, and answer.
    Telling does not wait for anybody.

    Parameters
    ----------
    store : torch.distributed.Store
        Which no other thread waits in.
    beating : torch.distributed.Store
        The same one on another connection, for the thread that gives signs of life.
    rank, size : int
    lost_after_s : float, seconds
        Without a sign of life a rank counts as lost.
    """

    def __init__(
        self, store: Any, beating: Any, rank: int, size: int, lost_after_s: float = 60.0
    ) -> None:
        self.rank = rank
        self.size = size
        self.lost_after_s = lost_after_s
        self._store = store
        self._store.set_timeout(timedelta(seconds=lost_after_s / 2))
        self._next = 0
        #: Messages that were read and are still in the store.
        self._read: deque[int] = deque()
        self._seen: dict[int, tuple[bytes, float]] = {}
        self._over = threading.Event()
        self._beating = beating
        self._thread = threading.Thread(target=self._beat, name=f"it2nb-rank-{rank}", daemon=True)
        beating.set(f"beat/{rank}", b"0")
        self._thread.start()

    # --- rank 0 ----------------------------------------------------------------------------

    def tell(self, message: Mapping[str, Any]) -> int:
        """Send a message to all other ranks; returns its number.

        Raises
        ------
        RankLost
            If the store is gone.
        """
        number = self._next
        self._next += 1
        self._do("set", f"told/{number}", orjson.dumps(message))
        return number

    def collect(self, number: int) -> dict[int, dict[str, Any]]:
        """Wait for the answers of all other ranks to a message, by rank.

        Raises
        ------
        RankLost
            If one of them gives no sign of life for `lost_after_s`.
        """
        answers = {}
        for rank in range(1, self.size):
            key = f"answer/{number}/{rank}"
            answers[rank] = orjson.loads(self._wait(key, rank))
            self._do("delete_key", key)
        return answers

    def check(self) -> None:
        """Look for signs of life of all others.

        Raises
        ------
        RankLost
            If one of them has given none for `lost_after_s`.
        """
        for rank in range(1, self.size):
            self._check_beat(rank)

    def has_joined(self, rank: int) -> bool:
        """Whether a rank has come to the line at all."""
        return bool(self._do("check", [f"beat/{rank}"]))

    # --- the others ------------------------------------------------------------------------

    def read(self) -> tuple[int, dict[str, Any]]:
        """Wait for the next message of rank 0; returns its number and itself.

        Raises
        ------
        RankLost
            If rank 0 gives no sign of life for `lost_after_s`.
        """
        number = self._next
        key = f"told/{number}"
        message = orjson.loads(self._wait(key, 0))
        self._next += 1
        self._read.append(number)
        return number, message

    def answer(self, number: int, message: Mapping[str, Any]) -> None:
        """Answer a message; see `tell`."""
        self._do("set", f"answer/{number}/{self.rank}", orjson.dumps(message))

    # --- both ------------------------------------------------------------------------------

    def close(self) -> None:
        """Give no more signs of life. Any thread, idempotent."""
        self._over.set()

    def _wait(self, key: str, rank: int) -> bytes:
        while True:
            try:
                return bytes(self._store.get(key))
            except dist.DistStoreError:  # nothing came in time
                self._check_beat(rank)
            except dist.DistNetworkError as error:
                raise RankLost(f"the ranks can't reach each other any more: {error}") from error

    def _check_beat(self, rank: int) -> None:
        now = time.monotonic()
        beat = bytes(self._do("get", f"beat/{rank}"))
        last, since = self._seen.get(rank, (b"", now))
        if beat != last:
            self._seen[rank] = (beat, now)
        elif now - since > self.lost_after_s:
            raise RankLost(f"rank {rank} gave no sign of life for {self.lost_after_s:g} s")

    def _do(self, operation: str, *arguments: Any) -> Any:
        try:
            return getattr(self._store, operation)(*arguments)
        except (dist.DistNetworkError, dist.DistStoreError) as error:
            raise RankLost(f"the ranks can't reach each other any more: {error}") from error

    def _beat(self) -> None:
        count = 0
        with guard("sign of life of a rank"):
            while not self._over.wait(BEAT_EVERY_S):
                count += 1
                self._beating.set(f"beat/{self.rank}", str(count).encode())
                self.take_away()

    def take_away(self) -> None:
        """Delete what was read. The beating thread: the training would wait for the answers."""
        while self._read:
            number = self._read.popleft()
            # The last one to read it takes it away.
            if self.size == 2 or self._beating.add(f"read/{number}", 1) == self.size - 1:
                self._beating.delete_key(f"told/{number}")
                if self.size > 2:
                    self._beating.delete_key(f"read/{number}")


def connect(lost_after_s: float) -> Line:
    """Join the line of the ranks of this process group; every rank calls it equally often.

    Raises
    ------
    It2nbError
        If the process group has no store that can be reached a second time.
    """
    global _serial
    _serial += 1
    name = f"it2nb/{_serial}"
    return Line(
        _connection(name), _connection(name), dist.get_rank(), dist.get_world_size(), lost_after_s
    )


def _connection(prefix: str) -> Any:
    c10d: Any = dist  # its stores come without types
    store: Any = distributed_c10d._get_default_store()
    while isinstance(store, c10d.PrefixStore):
        store = store.underlying_store
    if isinstance(store, c10d.TCPStore):
        # Of its own: a rank that waits in it must not keep the training's own users waiting.
        store = c10d.TCPStore(
            store.host, store.port, is_master=False, wait_for_workers=False,
            timeout=timedelta(seconds=60),
        )  # fmt: skip
    elif isinstance(store, c10d.HashStore):
        raise It2nbError(
            "the process group keeps its keys in this process alone (HashStore): several ranks "
            "need one that they share, as torchrun makes it"
        )
    return c10d.PrefixStore(prefix, store)
