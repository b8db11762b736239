"""From the threads that write a journal to the coroutines that pass it on."""

from __future__ import annotations

import asyncio
from contextlib import suppress

#: Seconds between two strokes: readers look at most a hundred times a second.
CALM_S = 0.01


class Bell:
    """Wakes coroutines of one loop; ringing costs next to nothing while nobody has looked yet.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._rung = False
        self._stroke = asyncio.Event()
        self._struck_at = -CALM_S

    def ring(self) -> None:
        """Something is new. Any thread; returns at once."""
        if not self._rung:
            self._rung = True
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                self._loop.call_soon_threadsafe(self._heard)

    @property
    def next(self) -> asyncio.Event:
        """Set at the next stroke; take it before looking, then wait for it. The loop's thread."""
        return self._stroke

    def _heard(self) -> None:
        wait_s = self._struck_at + CALM_S - self._loop.time()
        if wait_s > 0:
            self._loop.call_later(wait_s, self._strike)
        else:
            self._strike()

    def _strike(self) -> None:
        # First the flag: what is written from here on rings again.
        self._rung = False
        self._struck_at = self._loop.time()
        stroke, self._stroke = self._stroke, asyncio.Event()
        stroke.set()
