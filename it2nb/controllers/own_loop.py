"""An event loop on a thread of its own, for async clients under synchronous callers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from it2nb.core.errors import AgentError

T = TypeVar("T")


class OwnLoop:
    """Runs coroutines for callers on any thread, also inside of a running loop (Jupyter).

    The thread starts with the first call, so that nothing runs that nobody uses, and after a
    fork the child starts its own.

    Parameters
    ----------
    name : str
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run the coroutine that `make` returns, and wait for what it returns. Any other thread.

        Raises
        ------
        AgentError
            If the loop is closed before it is done.
        """
        with self._lock:
            # Before the lock is free, so that `close` finds what it has to cancel.
            future = asyncio.run_coroutine_threadsafe(self._made(make), self._running())
        try:
            return future.result()
        except (CancelledError, asyncio.CancelledError):
            raise AgentError(f"{self._name} was closed while it waited for an answer") from None

    @staticmethod
    async def _made(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return await make()

    def close(self, last: Callable[[], Coroutine[Any, Any, Any]] | None = None) -> None:
        """Cancel what runs, run `last`, end the thread; a later call starts another one.

        Any other thread, idempotent.
        """
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
            if loop is None or thread is None or not thread.is_alive():
                return
            kept: list[asyncio.Task[None]] = []  # the loop itself holds tasks weakly
            loop.call_soon_threadsafe(lambda: kept.append(loop.create_task(self._end(loop, last))))
        thread.join(5.0)

    @staticmethod
    async def _end(
        loop: asyncio.AbstractEventLoop, last: Callable[[], Coroutine[Any, Any, Any]] | None
    ) -> None:
        mine = asyncio.current_task()
        others = [each for each in asyncio.all_tasks() if each is not mine]
        for each in others:
            each.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        if last is not None:
            await last()
        await loop.shutdown_asyncgens()
        loop.stop()

    def _running(self) -> asyncio.AbstractEventLoop:
        """The loop, started where there is none. Under the lock."""
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(
                target=self._serve, args=(self._loop,), name=self._name, daemon=True
            )
            self._thread.start()
        return self._loop

    @staticmethod
    def _serve(loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()
