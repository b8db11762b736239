"""How much one server takes: bytes, requests a second, open sockets."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a server.

    Attributes
    ----------
    body_bytes : int
        Of one request; a longer one is refused before it is read.
    requests_per_s, burst : float
        All clients together, in the long run and at once; above it they get 429.
    sockets : int
        Open WebSockets; one more is refused with 503.
    socket_bytes : int
        Of one message that a page sends.
    stalled_s : float
        A socket whose other end takes nothing for so long is closed.
    wait_s : float
        A request that asks to wait for a result or for events is held that long at most.
    stream_share : float
        Share of one core that streaming events may take while the run is running, so that many
        readers don't slow it down; they lag instead, and lose nothing.
    """

    body_bytes: int = 1_000_000
    requests_per_s: float = 1_000.0
    burst: float = 2_000.0
    sockets: int = 200
    socket_bytes: int = 1_000_000
    stalled_s: float = 30.0
    wait_s: float = 60.0
    stream_share: float = 0.04


class Bucket:
    """A token bucket: `burst` at once, `rate` a second in the long run. One thread.

    Parameters
    ----------
    rate, burst : float
    clock : callable
        Seconds, monotonic.
    """

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left = burst
        self._at = clock()

    def take(self, cost: float = 1.0) -> float:
        """Take `cost` if it is there: return 0, else the seconds until it will be."""
        self._fill()
        if self._left >= cost:
            self._left -= cost
            return 0.0
        return (cost - self._left) / self._rate

    def spend(self, cost: float) -> float:
        """Take `cost` whether it is there or not; return the seconds until it is made up for."""
        self._fill()
        self._left -= cost
        return max(0.0, -self._left / self._rate)

    def _fill(self) -> None:
        now = self._clock()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
