"""Interrupts beside a run: they reach none of its processes, and an idle kernel's is answered.

A front end sends SIGINT to the kernel's whole process group. It is there to end what a cell does;
the run in the background is none of that.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

_here = threading.local()


def shield() -> None:
    """Keep SIGINT from this thread, and from the processes that it starts.

    Processes inherit which signals are blocked. A worker of a DataLoader that was started while a
    cell ran would end at an interrupt of that cell, and the training with it.
    """
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        _here.is_shielded = True
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})


def _before_fork() -> None:
    # Python 3.11's multiprocessing unblocks SIGINT when it starts its tracker of shared memory,
    # whatever was blocked before: `ResourceTracker.ensure_running`.
    if getattr(_here, "is_shielded", False):
        shield()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork)


class IdleInterrupts:
    """Answers an interrupt that comes while no cell runs.

    An idle ipykernel ignores SIGINT: for each message it puts Python's own handler in its place,
    keeps what was there before, and puts that back afterwards. So what is put back is replaced
    while a run lives. Where something else than "ignore" was there it is somebody's, and stays.

    Parameters
    ----------
    kernel : Kernel or None
    say : callable
        Called on the main thread, between two messages.
    """

    def __init__(self, kernel: Any, say: Callable[[], object]) -> None:
        self._kernel = kernel
        self._say = say
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> None:
        """From the end of the message under way on. In a cell; does nothing elsewhere."""
        if threading.current_thread() is not threading.main_thread():
            return
        if getattr(self._kernel, "saved_sigint_handler", None) is not signal.SIG_IGN:
            return
        with suppress(RuntimeError):  # no loop runs: no kernel that we know
            self._loop = asyncio.get_running_loop()
            self._kernel.saved_sigint_handler = self._note

    def end(self) -> None:
        """Let the kernel ignore it again. Any thread, idempotent."""
        self._post(self._put_back)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # Between any two instructions of the main thread, which may hold any lock: nothing is
        # printed here.
        self._post(self._say)

    def _post(self, call: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the kernel has ended
                self._loop.call_soon_threadsafe(call)

    def _put_back(self) -> None:
        # A cell may be under way, which awaits something: then it is the kernel that holds it.
        if self._kernel.saved_sigint_handler == self._note:
            self._kernel.saved_sigint_handler = signal.SIG_IGN
        if signal.getsignal(signal.SIGINT) == self._note:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
