"""The messages of a kernel's main shell, read in its place while a cell there waits.

Comm messages are dispatched with their busy and idle status; everything else is kept and given
back in order. That needs private attributes of ipykernel 6 and 7 and of pyzmq's stream: each is
looked for first, and `NoShellSocket` names the one that is missing.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from it2nb.core.errors import It2nbError
from it2nb.core.faults import Fault, guard

_COMM = frozenset({"comm_open", "comm_msg", "comm_close"})


class NoShellSocket(It2nbError):
    """The kernel does not let us read the messages of its main shell."""


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
        self._later = _SkipLater.of(kernel)

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
            if not self._later.add(message["header"]["msg_id"]):
                return True  # an earlier wait of the cell has dispatched it
        else:
            message = session.deserialize(parts, content=True, copy=False)
        with self._as_parent(idents, message):
            self._status("busy", message)
            try:
                with guard(f"comm message {kind}", _print_fault):
                    _drive(self._later.handler(kind)(self._stream, idents, message))
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
        stream = self._stream
        count, original = _passing.get(id(stream), (0, stream._recv_callback))
        _passing[id(stream)] = (count + 1, original)
        if count == 0:

            def on_recv(frames: Any) -> Any:
                return None if self.dispatch_comm(frames) else original(frames)

            stream.on_recv(on_recv, copy=False)
        try:
            yield
        finally:
            count, original = _passing.pop(id(stream))
            if count > 1:  # another await of the cell still needs it
                _passing[id(stream)] = (count - 1, original)
            else:
                stream.on_recv(original, copy=False)

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


#: Streams whose comm messages pass at once: how often that was asked, and their own callback.
_passing: dict[int, tuple[int, Any]] = {}


class _SkipLater:
    """Messages that were dispatched here while the kernel still holds them: skipped once there."""

    def __init__(self, kernel: Any) -> None:
        self._handlers = kernel.shell_handlers
        self._originals: dict[str, Callable[..., Any]] = {}
        self._ids: set[str] = set()

    @classmethod
    def of(cls, kernel: Any) -> _SkipLater:
        """Return the one of this kernel: it outlives the wait that made it."""
        made = _skipped.get(id(kernel))
        if made is None:
            made = _skipped[id(kernel)] = cls(kernel)
        return made

    def handler(self, kind: str) -> Callable[..., Any]:
        """Return the kernel's own handler."""
        found: Callable[..., Any] = self._originals.get(kind) or self._handlers[kind]
        return found

    def add(self, msg_id: str) -> bool:
        """Skip a message later; False when that is known already."""
        if msg_id in self._ids:
            return False
        if not self._ids:
            for kind in _COMM:
                self._originals[kind] = self._handlers[kind]
                self._handlers[kind] = self._handle
        self._ids.add(msg_id)
        return True

    def _handle(self, stream: Any, idents: Any, message: Any) -> Any:
        msg_id = message["header"]["msg_id"]
        if msg_id not in self._ids:
            return self.handler(message["header"]["msg_type"])(stream, idents, message)
        self._ids.discard(msg_id)
        if not self._ids:
            self._handlers.update(self._originals)
            self._originals.clear()
        return None


_skipped: dict[int, _SkipLater] = {}


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
