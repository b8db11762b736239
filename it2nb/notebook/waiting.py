"""Waiting in a cell with the panel alive.

While a cell runs, the kernel reads no message for the main shell, so that a panel whose front end
sends its messages there (ipykernel 6, VS Code, a client without subshells) is dead, and a cell that
waits for its answer waits for ever (ipykernel#646, #1510). So a wait reads the main shell's own
socket: comm messages are dispatched with their busy and idle status, everything else is kept and
given back in order. That needs private attributes of ipykernel; where they are missing, the wait
says so and is a plain one.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from it2nb.core.errors import It2nbError
from it2nb.core.faults import Fault, guard
from it2nb.core.session import Session, until_ended

_COMM = frozenset({"comm_open", "comm_msg", "comm_close"})
#: How often a wait looks whether it is over when nobody wakes it, seconds.
LOOK_S = 0.05


class NoShellSocket(It2nbError):
    """The kernel does not let us read the messages of its main shell."""


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

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

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


class ShellMessages:
    """The messages of a kernel's main shell, taken while a cell waits. Main thread only."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._stream = _shell_stream(kernel)
        if not hasattr(self._stream, "_recv_callback"):
            raise NoShellSocket("its stream has no _recv_callback")
        for name in ("shell_handlers", "session", "set_parent", "get_parent", "iopub_socket"):
            if not hasattr(kernel, name):
                raise NoShellSocket(f"the kernel has no {name}")
        self._socket = self._stream.socket
        self._deferred: list[Any] = []
        self._taken: set[str] = set()

    @property
    def socket(self) -> Any:
        """For pollers."""
        return self._socket

    def receive(self) -> None:
        """Read what is there: dispatch comm messages, keep the rest."""
        import zmq

        while True:
            try:
                frames = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            if not self.dispatch_comm(frames):
                self._deferred.append(frames)

    def dispatch_comm(self, frames: Any, *, queued: bool = False) -> bool:
        """Dispatch a comm message; False when it is none.

        Parameters
        ----------
        queued : bool
            The kernel holds it too and comes to it later; then it is skipped there.
        """
        kernel, session = self._kernel, self._kernel.session
        try:
            idents, parts = session.feed_identities(frames, copy=False)
            message = session.deserialize(parts, content=False, copy=False)
        except (ValueError, TypeError, KeyError, IndexError):
            return False
        kind = message["header"]["msg_type"]
        if kind not in _COMM:
            return False
        if queued:
            # Not deserialize: it would take the kernel's own reading for a replay.
            message["content"] = session.unpack(message["content"])
            self._skip_later(message["header"]["msg_id"])
        else:
            message = session.deserialize(parts, content=True, copy=False)
        with self._as_parent(idents, message):
            self._status("busy", message)
            try:
                with guard(f"comm message {kind}", _print_fault):
                    _drive(kernel.shell_handlers[kind](self._stream, idents, message))
            finally:
                # Widgets hold back trait updates until they see idle.
                self._status("idle", message)
        self._status("busy", kernel.get_parent("shell"))
        return True

    def take_queued(self) -> None:
        """Dispatch comm messages that the kernel had read before the cell began."""
        for frames in _queued_frames(self._kernel):
            self.dispatch_comm(frames, queued=True)

    def give_back(self) -> None:
        """Hand what was kept to the kernel, in order, and let it read for itself again."""
        deferred, self._deferred = self._deferred, []
        for frames in deferred:
            self._stream._run_callback(self._stream._recv_callback, frames)
        # The socket's signal is edge-triggered: what came meanwhile would wait for the next.
        self._stream.io_loop.add_callback(self._stream.flush)

    @contextmanager
    def passing_comms(self) -> Iterator[None]:
        """Let the running event loop dispatch comm messages at once, for an ``await``."""
        original = self._stream._recv_callback

        def on_recv(frames: Any) -> Any:
            return None if self.dispatch_comm(frames) else original(frames)

        self._stream.on_recv(on_recv, copy=False)
        try:
            yield
        finally:
            if self._stream._recv_callback is on_recv:
                self._stream.on_recv(original, copy=False)

    @contextmanager
    def _as_parent(self, idents: Any, message: Any) -> Iterator[None]:
        kernel = self._kernel
        before = kernel.get_parent("shell")
        before_idents = kernel._parent_ident["shell"]
        kernel.set_parent(idents, message, channel="shell")
        try:
            yield
        finally:
            kernel.set_parent(before_idents, before, channel="shell")

    def _status(self, state: str, parent: Any) -> None:
        kernel = self._kernel
        kernel.session.send(
            kernel.iopub_socket,
            "status",
            {"execution_state": state},
            parent=parent,
            ident=f"kernel.{kernel.ident}.status".encode(),
        )

    def _skip_later(self, msg_id: str) -> None:
        """When the kernel comes to a message that was dispatched here, it does nothing."""
        if not self._taken:
            for kind in _COMM:
                self._kernel.shell_handlers[kind] = self._once(
                    kind, self._kernel.shell_handlers[kind]
                )
        self._taken.add(msg_id)

    def _once(self, kind: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        def handle(stream: Any, idents: Any, message: Any) -> Any:
            msg_id = message["header"]["msg_id"]
            if msg_id not in self._taken:
                return handler(stream, idents, message)
            self._taken.discard(msg_id)
            if not self._taken:
                for each, before in originals.items():
                    self._kernel.shell_handlers[each] = before
            return None

        originals = self._originals = {**getattr(self, "_originals", {}), kind: handler}
        return handle


def _shell_stream(kernel: Any) -> Any:
    """Return the ZMQStream from which the main thread reads."""
    if kernel is None:
        raise NoShellSocket("there is no kernel")
    channel = getattr(kernel, "shell_channel_thread", None)
    if channel is not None:  # ipykernel 7: a thread reads the shell socket and passes it on
        pair = getattr(channel.manager, "_shell_channel_to_main", None)
        stream = getattr(pair, "to_stream", None)
    else:
        stream = getattr(kernel, "shell_stream", None)
    if stream is None or getattr(stream, "socket", None) is None:
        raise NoShellSocket("the kernel has no shell stream that we know")
    return stream


def _queued_frames(kernel: Any) -> list[Any]:
    """Find messages that the kernel has read, but not come to: they wait for this cell's end."""
    queue = getattr(getattr(kernel, "msg_queue", None), "_queue", None)
    if queue is not None:  # ipykernel 6: (number, function, arguments)
        return [args[0] for _, _, args in list(queue) if args and isinstance(args[0], list)]
    try:
        tasks = asyncio.all_tasks()
    except RuntimeError:
        return []  # no running loop
    found: list[tuple[int, Any]] = []
    for task in tasks:
        frames = _frames_of(task.get_coro())
        if frames is not None:
            number = task.get_name().rpartition("-")[2]
            found.append((int(number) if number.isdigit() else 0, frames))
    return [frames for _, frames in sorted(found, key=lambda each: each[0])]


def _frames_of(coroutine: Any) -> Any:
    """Return the message that an ipykernel 7 task is about to dispatch, if it is one."""
    frame = getattr(coroutine, "cr_frame", None)
    name = getattr(coroutine, "__name__", "")
    if frame is None or inspect.getcoroutinestate(coroutine) == inspect.CORO_RUNNING:
        return None
    if name == "shell_main":
        return frame.f_locals.get("msg")
    if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
        return None  # it has made the task that is found by itself
    args = frame.f_locals.get("args")
    return args[-1] if args and isinstance(args[-1], list) else None


def _drive(result: Any) -> None:
    """Run a handler that turns out to be a coroutine, as far as it goes without waiting."""
    if inspect.iscoroutine(result):
        try:
            result.send(None)
        except StopIteration:
            return
        result.close()


def _print_fault(fault: Fault) -> None:
    print(f"it2nb: {fault.where}: {fault.error}\n{fault.traceback}", file=sys.__stderr__)


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
    outer = _Turn.messages
    messages = outer or shell_messages(kernel)
    own_wake = wake or Wake()
    _Turn.messages = messages
    try:
        with Interrupts(own_wake) as interrupts:
            if messages is not None:
                messages.take_queued()
            while not done():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return False
                look = left if wake is not None else LOOK_S if left is None else min(left, LOOK_S)
                _poll(messages, own_wake, look)
                interrupts.check()
                if messages is not None:
                    messages.receive()
            interrupts.check()
            return True
    finally:
        _Turn.messages = outer
        if messages is not None and outer is None:
            messages.give_back()
        if wake is None:
            own_wake.close()


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


def wait_for_end(session: Session, timeout: float | None, kernel: Any = None) -> None:
    """Wait until a session has ended, for `session.waiter`. Any thread but the training one.

    Raises
    ------
    KeyboardInterrupt
        When the wait was interrupted; its message says that the run goes on.
    """
    if session.is_ended:
        return
    if not in_main_shell():
        over = threading.Event()
        remove = session.when_ended(over.set)
        try:
            over.wait(timeout)
        finally:
            remove()
        return
    wake = Wake()
    remove = session.when_ended(wake)
    try:
        serve_until(lambda: session.is_ended, timeout=timeout, wake=wake, kernel=kernel)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(still_running(session)) from None
    finally:
        remove()
        wake.close()


def still_running(session: Session) -> str:
    """Say what an interrupted wait leaves behind, and how to end that."""
    return (
        f"the wait is over, the run is not: {session.run_id} is {session.status} at step "
        f"{session.step_count}. %it2 pause holds it, %it2 stop ends it, %it2 wait waits again"
    )


async def await_end(session: Session, kernel: Any = None) -> None:
    """Wait in an event loop until a session has ended, for `session.awaiter`."""
    messages = shell_messages(kernel) if kernel is not None and in_main_shell() else None
    try:
        if messages is None:
            await until_ended(session)
            return
        messages.take_queued()
        with messages.passing_comms():
            await until_ended(session)
    except asyncio.CancelledError:
        if not session.is_ended:
            print(f"it2nb: {still_running(session)}", file=sys.stderr)
        raise
