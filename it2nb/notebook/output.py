"""Output under its own cell: what a run prints and shows lands under the cell that started it.

A thread's prints go to the cell that ran last, unless it carries the cell's context. So the run's
thread runs in a copy of the cell's context, and while a run lives the threads that it starts
inherit the context too, as they do by themselves in free-threaded Python 3.14. ipykernel 6 keeps
the parent of a ``display`` outside of any context: a hook, registered for each of these threads,
puts it right.
"""

from __future__ import annotations

import contextlib
import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from it2nb.core.faults import guard
from it2nb.panel.heartbeat import publish
from it2nb.panel.terminal import Terminal

_output: contextvars.ContextVar[CellOutput | None] = contextvars.ContextVar(
    "it2nb_output", default=None
)


class CellOutput:
    """The place of one cell's output. Made in the cell, used by its threads.

    Parameters
    ----------
    shell : InteractiveShell
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.kernel = getattr(shell, "kernel", None)
        parent = self.kernel.get_parent() if self.kernel is not None else {}
        #: Header of the execute request, which front ends route by.
        self.header: dict[str, Any] = dict(parent.get("header") or {})
        content = parent.get("content") or {}
        #: What is printed under this cell, for panels.
        self.terminal = Terminal()
        #: False when the client can't answer, as in nbclient and papermill.
        self.allows_stdin: bool = bool(content.get("allow_stdin", True))

    @contextmanager
    def bound(self) -> Iterator[None]:
        """Route the calling thread's output to this cell."""
        token = _output.set(self)
        publisher = self._shell.display_pub
        register = getattr(publisher, "register_hook", None)
        if register is not None and self.header:
            register(self._own)
        try:
            yield
        finally:
            if register is not None and self.header:
                publisher.unregister_hook(self._own)
            _output.reset(token)

    def _own(self, message: dict[str, Any]) -> dict[str, Any]:
        message["parent_header"] = self.header
        return message

    def send(self, kind: str, content: dict[str, Any]) -> bool:
        """Publish a message under this cell; False without a kernel. Any thread."""
        return publish(self.kernel, self.header, kind, content)

    def show_error(self, name: str, text: str, lines: list[str]) -> None:
        """Show a traceback under this cell, without making the cell fail after the fact."""
        flush()
        shown = self.send("error", {"ename": name, "evalue": text, "traceback": lines})
        if not shown:
            print("\n".join(lines), file=sys.stderr)

    def show_warning(self, text: str) -> None:
        """Print to this cell's stderr, also where the interpreter is about to end. Any thread."""
        if not self.send("stream", {"name": "stderr", "text": text}):
            print(text, end="", file=sys.stderr)


def flush() -> None:
    """Send what was printed so far, so that what follows stands below it."""
    for stream in (sys.stdout, sys.stderr):
        # A stream may be closed or replaced by something that can't flush.
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()


class CaughtOutput:
    """While a run is entered, what is printed under its cell is written to its terminal too.

    It is caught where the kernel sends it: IPython wraps the streams' ``write`` for each cell
    and puts the old one back, so that nothing that wraps it meanwhile would stay. Nor does it
    cost the printing thread anything there.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._terminals: dict[str, Terminal] = {}
        self._session: Any = None
        self._send: Callable[..., Any] | None = None

    @contextmanager
    def entered(self, output: CellOutput) -> Iterator[None]:
        """Catch what is printed under this cell; nothing where there is no kernel."""
        cell = output.header.get("msg_id")
        session = getattr(output.kernel, "session", None)
        if cell is None or session is None:
            yield
            return
        with self._lock:
            self._terminals[cell] = output.terminal
            if self._session is None:
                self._install(session)
        try:
            yield
        finally:
            with self._lock:
                del self._terminals[cell]
                # Somebody may have wrapped ours meanwhile; then ours stays, and is quiet.
                if not self._terminals and vars(session).get("send") is self._send:
                    del session.send
                    self._session = self._send = None

    def _install(self, session: Any) -> None:
        send = session.send

        def send_and_hear(stream: Any, message: Any, *args: Any, **more: Any) -> Any:
            if isinstance(message, dict) and message.get("msg_type") == "stream":
                with guard("output of the run"):
                    self._hear(message)
            return send(stream, message, *args, **more)

        session.send = send_and_hear
        self._session, self._send = session, send_and_hear

    def _hear(self, message: dict[str, Any]) -> None:
        terminal = self._terminals.get(message["parent_header"].get("msg_id"))
        if terminal is not None:
            content = message["content"]
            terminal.write(content["text"], content["name"])


class InheritedContext:
    """While entered, a thread that a run's thread starts inherits its context. Counted."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = 0
        self._start: Callable[[threading.Thread], None] | None = None

    def __enter__(self) -> None:
        with self._lock:
            self._entered += 1
            if self._entered == 1:
                self._install()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._entered -= 1
            # Somebody may have wrapped ours meanwhile; then ours stays, and does nothing.
            if self._entered == 0 and threading.Thread.start is self._mine:
                threading.Thread.start = self._start  # type: ignore[method-assign,assignment]

    def _install(self) -> None:
        if threading.Thread.start is getattr(self, "_mine", None):
            return
        start = self._start = threading.Thread.start

        def start_with_context(thread: threading.Thread) -> None:
            output = _output.get()
            if output is not None and "run" not in vars(thread):
                _inherit(thread, output)
            start(thread)

        self._mine = start_with_context
        threading.Thread.start = start_with_context  # type: ignore[method-assign,assignment]


def _inherit(thread: threading.Thread, output: CellOutput) -> None:
    context = contextvars.copy_context()
    run = thread.run

    def run_in_context() -> None:
        # Gone before the thread works: it refers to itself otherwise.
        del thread.run

        def body() -> None:
            with output.bound():
                run()

        context.run(body)

    thread.run = run_in_context  # type: ignore[method-assign]


#: Shared by all runs of this process.
caught_output = CaughtOutput()
inherited_context = InheritedContext()
