"""What all routes of one server share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket

from it2nb.core.faults import Fault, guard
from it2nb.core.queue import ActionHandle
from it2nb.server.auth import Keys
from it2nb.server.bell import Bell
from it2nb.server.feed import Chunk, Feed
from it2nb.server.limits import Bucket, Limits

#: Seconds that streams get to send the end of a run before the server goes.
FAREWELL_S = 0.5


class Serving:
    """One session on one loop. The loop's thread only, unless said otherwise.

    Parameters
    ----------
    session : Session or the like
    keys : Keys
    limits : Limits
    """

    def __init__(self, session: Any, keys: Keys, limits: Limits) -> None:
        self.session = session
        self.keys = keys
        self.limits = limits
        self.feed = Feed(session.journal)
        #: Set when the server goes.
        self.closing = asyncio.Event()
        self.loop = asyncio.get_running_loop()
        self.bell = Bell(self.loop)
        #: The pages that show the panel; set with their routes.
        self.pages: Any = None
        #: Sockets that follow the journal.
        self.streams = 0
        self._pace = Bucket(limits.stream_share, 0.05)
        # A type that no row has: nothing is ever fetched, the bell rings all the same.
        self._last: list[Callable[[], object]] = []
        self._following = session.journal.subscribe(types=(), maxlen=1, wake=self.bell.ring)

    def report(self, fault: Fault) -> None:
        """Record a fault of the server; the training goes on. Any thread."""
        self.session.report(fault)

    def when_closed(self, call: Callable[[], object]) -> None:
        """Call `call` when the server goes."""
        self._last.append(call)

    async def farewell(self) -> None:
        """Give streams a moment to send how the run ended."""
        end = self.loop.time() + FAREWELL_S
        while self.streams and self.loop.time() < end:
            await asyncio.sleep(0.005)

    def close(self) -> None:
        """Let go of the journal, and tell everything that waits."""
        self.closing.set()
        self._following.close()
        for call in self._last:
            with guard("closing the server", self.report):
                call()

    async def any_of(self, *events: asyncio.Event, wait_s: float | None = None) -> None:
        """Wait until one of these is set, the server goes, or the time is over."""
        if wait_s is not None and wait_s <= 0:
            return
        waiting = [asyncio.ensure_future(each.wait()) for each in (*events, self.closing)]
        try:
            await asyncio.wait(waiting, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()

    async def result(self, handle: ActionHandle, wait_s: float) -> None:
        """Wait until a request has its result."""
        wait_s = min(wait_s, self.limits.wait_s)
        if handle.done() or wait_s <= 0:
            return
        done = asyncio.Event()
        handle.when_done(lambda _: self.loop.call_soon_threadsafe(done.set))
        await self.any_of(done, wait_s=wait_s)

    async def events(self, seq: int, types: frozenset[str], limit: int, wait_s: float) -> Chunk:
        """Return events from `seq` on, after waiting for the first one if there are none."""
        until = self.loop.time() + min(wait_s, self.limits.wait_s)
        while True:
            stroke = self.bell.next
            # A whole page takes long enough to hold up the others.
            if types:
                chunk = await run_in_threadpool(self.feed.only, seq, types, limit)
            else:
                chunk = await run_in_threadpool(self.feed.page, seq, limit)
            left = until - self.loop.time()
            if chunk.lines or chunk.gap is not None or left <= 0:
                return chunk
            if self.feed.is_closed or self.closing.is_set():
                return chunk
            seq = chunk.next
            await self.any_of(stroke, wait_s=left)

    async def breathe(self, since: float) -> None:
        """Pause after streaming, so that the run is not slowed down.

        Parameters
        ----------
        since : float
            `time.thread_time` before.
        """
        pause_s = self._pace.spend(time.thread_time() - since)
        if pause_s > 0 and self.session.status == "running":
            await self.any_of(wait_s=min(pause_s, 5.0))
        else:
            await asyncio.sleep(0)

    async def converse(
        self,
        socket: WebSocket,
        write: Callable[[], Awaitable[None]],
        hear: Callable[[str | bytes], object],
        messages_per_s: float,
    ) -> None:
        """Serve an accepted socket: `write` until it returns, while `hear` gets what comes.

        The other end may vanish at any time, take nothing, or talk too much; the server may go.
        """
        reading = asyncio.ensure_future(self._listen(socket, hear, messages_per_s))
        writing = asyncio.ensure_future(write())
        leaving = asyncio.ensure_future(self.closing.wait())
        tasks = (reading, writing, leaving)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            elif reading.done() and (said := reading.result()) is not None:
                await socket.close(1008, said)
            elif leaving.done():
                await socket.close(1001, "the server is closing")
        except TimeoutError:
            abort(socket)
        finally:
            for task in tasks:
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _listen(
        self, socket: WebSocket, hear: Callable[[str | bytes], object], messages_per_s: float
    ) -> str | None:
        """Take what comes; returns what is wrong with it, None when the other end left."""
        bucket = Bucket(messages_per_s, 4 * messages_per_s)
        while True:
            message = await socket.receive()
            if message["type"] == "websocket.disconnect":
                return None
            if bucket.take():
                return f"more than {messages_per_s:g} messages a second"
            text = message.get("text")
            hear(text if text is not None else message.get("bytes") or b"")


def abort(socket: WebSocket) -> None:
    """Cut a connection whose other end takes nothing: what it was sent is thrown away."""
    cut = socket.scope.get("extensions", {}).get("it2nb.abort")
    if cut is not None:
        cut["call"]()
