"""Waiting in a cell with the panel alive.

While a cell runs, the kernel reads no message for the main shell, so that a panel whose front end
sends its messages there (ipykernel 6, VS Code, a client without subshells) is dead, and a cell that
waits for its answer waits for ever (ipykernel#646, #1510). So a wait reads these messages itself
(`shell_messages`). Where that can't be done, it says so and is a plain one.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType, TracebackType
from typing import Any

from it2nb.core.life import until_ended
from it2nb.core.session import Session
from it2nb.notebook.paused import PausedWatch
from it2nb.notebook.shell_messages import NoShellSocket, ShellMessages
from it2nb.notebook.static_view import settle

#: How often a wait looks whether it is over when nobody wakes it, seconds.
LOOK_S = 0.05


class Wake:
    """Wakes a wait from any thread: a socket pair that a poller can watch."""

    def __init__(self) -> None:
        self._reads, self._writes = socket.socketpair()
        self._reads.setblocking(False)
        self._writes.setblocking(False)

    def __call__(self) -> None:
        """Wake it. Any thread; also after it is closed."""
        with suppress(OSError, BlockingIOError):
            self._writes.send(b"\0")

    def fileno(self) -> int:
        """For pollers."""
        return self._reads.fileno()

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        with suppress(OSError, BlockingIOError):
            while self._reads.recv(1024):
                pass

    def close(self) -> None:
        """Free both ends."""
        self._reads.close()
        self._writes.close()


class WaitInterrupted(KeyboardInterrupt):
    """A wait was interrupted: shown as its sentence alone, and the cells behind it don't run."""

    def _render_traceback_(self) -> list[str]:
        return [f"it2nb: {self}"]


class Interrupts:
    """Keeps an interrupt from tearing a message apart: it is noted, and raised between two.

    A second one is passed on at once, for a handler that hangs. Main thread only.
    """

    def __init__(self, wake: Wake) -> None:
        self._wake = wake
        self._noted = False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.signal(signal.SIGINT, self._before)
        if kind is None:
            self.check()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._noted and callable(self._before):
            self._before(number, frame)
        self._noted = True
        self._wake()

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was one."""
        if self._noted:
            self._noted = False
            raise KeyboardInterrupt


class _Turn:
    """The wait under way in the main thread; a wait inside a comm handler joins it."""

    messages: ShellMessages | None = None
    told: set[str] = set()  # noqa: RUF012 - one for the process, on purpose


def shell_messages(kernel: Any) -> ShellMessages | None:
    """Return the main shell's messages; None, and loudly once, where they can't be had."""
    try:
        return ShellMessages(kernel)
    except NoShellSocket as err:
        if kernel is not None and str(err) not in _Turn.told:
            _Turn.told.add(str(err))
            print(
                f"it2nb: panel messages that this front end sends to the main shell wait until "
                f"this cell ends ({err}); %it2 stop in another cell can't run before either. "
                f"Interrupt the cell to end the wait: the run goes on.",
                file=sys.stderr,
            )
        return None


def serve_until(
    done: Callable[[], bool],
    *,
    timeout: float | None = None,
    wake: Wake | None = None,
    kernel: Any = None,
    look_s: float | None = None,
) -> bool:
    """Wait in the main thread until `done()`, and serve comm messages meanwhile.

    Parameters
    ----------
    done : callable
    timeout : float, optional
        Seconds.
    wake : Wake, optional
        Called when `done` may have changed; without one it is looked at every `LOOK_S`.
    kernel : Kernel, optional
    look_s : float, optional
        Look at `done` that often all the same, seconds.

    Returns
    -------
    bool
        False when the time was up.

    Raises
    ------
    KeyboardInterrupt
        After an interrupt; messages that were kept are given back first.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    own_wake = wake or Wake()
    if wake is None:
        look_s = LOOK_S
    try:
        with Interrupts(own_wake) as interrupts, _taking_messages(kernel) as messages:
            if messages is not None:
                messages.take_queued()
            while not done():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                looks = [each for each in (left, look_s) if each is not None]
                _poll(messages, own_wake, min(looks, default=None))
                interrupts.check()
                if messages is not None:
                    messages.receive()
            return True
    finally:
        if wake is None:
            own_wake.close()


@contextmanager
def _taking_messages(kernel: Any) -> Iterator[ShellMessages | None]:
    """Take the main shell's messages, and give back what was kept; a wait in a wait joins it."""
    outer = _Turn.messages
    messages = _Turn.messages = outer or shell_messages(kernel)
    try:
        yield messages
    finally:
        _Turn.messages = outer
        if messages is not None and outer is None:
            messages.give_back()


def _poll(messages: ShellMessages | None, wake: Wake, timeout: float | None) -> None:
    import zmq

    poller = zmq.Poller()
    poller.register(wake.fileno(), zmq.POLLIN)
    if messages is not None:
        poller.register(messages.socket, zmq.POLLIN)
    poller.poll(None if timeout is None else max(1, int(timeout * 1000)))
    wake.drain()


def in_main_shell() -> bool:
    """Whether the caller is where cells run: then a wait has to serve the panel itself."""
    return threading.current_thread() is threading.main_thread()


def wait_for_end(
    session: Session, timeout: float | None, kernel: Any = None, *, headless: bool = False
) -> None:
    """Wait until a session has ended, for `session.waiter`. Any thread but the training one.

    In the main shell the run's end is shown in full when this returns.

    Parameters
    ----------
    session : Session
    timeout : float or None
        Seconds.
    kernel : Kernel, optional
    headless : bool
        Nobody is at a panel: a run that stays paused ends a wait without a time limit.

    Raises
    ------
    WaitInterrupted
        When the wait was interrupted; its message says that the run goes on.
    RunStaysPaused
    """
    if not in_main_shell():
        if session.is_ended:
            return
        over = threading.Event()
        remove = session.when_ended(over.set)
        try:
            over.wait(timeout)
        finally:
            remove()
        return
    try:
        if not session.is_ended:
            _wait_in_shell(session, timeout, kernel, headless)
    finally:
        if session.is_ended or headless:
            settle(session)


def _wait_in_shell(session: Session, timeout: float | None, kernel: Any, headless: bool) -> None:
    watch = PausedWatch(session) if headless and timeout is None else None

    def done() -> bool:
        if watch is not None and not session.is_ended:
            watch.look()
        return session.is_ended

    look_s = None if watch is None else LOOK_S
    try:
        with closing(Wake()) as wake:
            remove = session.when_ended(wake)
            try:
                serve_until(done, timeout=timeout, wake=wake, kernel=kernel, look_s=look_s)
            finally:
                remove()
    except KeyboardInterrupt:
        raise WaitInterrupted(still_running(session)) from None


def still_running(session: Session) -> str:
    """Say what an interrupted wait leaves behind, and how to end that."""
    return f"the wait is over, the run is not: {untouched(session)}, %it2 wait waits again"


def untouched(session: Session) -> str:
    """Say how a run stands that an interrupt does not reach, and what does."""
    return (
        f"{session.run_id} is {session.status} at step {session.step_count}. %it2 pause holds it, "
        f"%it2 stop ends it"
    )


async def await_end(session: Session, kernel: Any = None, *, headless: bool = False) -> None:
    """Wait in an event loop until a session has ended, for `session.awaiter`.

    Raises
    ------
    RunStaysPaused
        When nobody is at a panel (`headless`) and the run stays paused.
    """
    try:
        await _await_end(session, kernel, headless)
    finally:
        if in_main_shell() and (session.is_ended or headless):
            settle(session)


async def _await_end(session: Session, kernel: Any, headless: bool) -> None:
    messages = shell_messages(kernel) if kernel is not None and in_main_shell() else None
    wait = _until_ended_or_stuck if headless else until_ended
    try:
        with _stirred(asyncio.get_running_loop()):
            if messages is None:
                await wait(session)
                return
            messages.take_queued()
            with messages.passing_comms():
                await wait(session)
    except asyncio.CancelledError:
        if not session.is_ended:
            print(f"it2nb: {still_running(session)}", file=sys.stderr)
        raise


async def _until_ended_or_stuck(session: Session) -> None:
    """Wait for the end; raises when the run stays paused, with nobody there to resume it."""
    watch = PausedWatch(session)
    ended = asyncio.ensure_future(until_ended(session))
    try:
        while not ended.done():
            await asyncio.wait([ended], timeout=LOOK_S)
            if not session.is_ended:
                watch.look()
    finally:
        ended.cancel()


@contextmanager
def _stirred(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let a loop wake now and then.

    ipykernel's handler of an interrupt adds a callback to the loop, and tornado takes its call
    for one from inside the loop: an idle loop would come to it with the next message only.
    """
    handle: asyncio.TimerHandle

    def stir() -> None:
        nonlocal handle
        handle = loop.call_later(LOOK_S, stir)

    stir()
    try:
        yield
    finally:
        handle.cancel()
