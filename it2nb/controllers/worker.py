"""The one thread on which a controller thinks, and that nobody ever has to wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from it2nb.core.faults import Fault, guard

T = TypeVar("T")


class Worker:
    """Runs one job after another on a daemon thread, which is started by the first one.

    A job that hangs keeps its thread for ever; nothing waits for it, and the process ends
    without it. What a job raises, whatever it is, is reported, and the next one is run.
    """

    def __init__(self, name: str, report: Callable[[Fault], object] | None = None) -> None:
        self._name = name
        self._report = report
        self._jobs: SimpleQueue[tuple[Callable[[], object], threading.Event] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._open = 0
        self._lock = threading.Lock()
        #: When the oldest job that is not over was posted, in the poster's seconds.
        self.since = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a job is not over. Any thread."""
        return self._open > 0

    @property
    def is_here(self) -> bool:
        """Whether the caller is its thread."""
        return threading.current_thread() is self._thread

    def post(self, job: Callable[[], object], t: float) -> threading.Event:
        """Give it a job; the event is set when it is over, whatever it raised. Any thread."""
        over = threading.Event()
        with self._lock:
            if self._open == 0:
                self.since = t
            self._open += 1
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        self._jobs.put((job, over))
        return over

    def close(self) -> None:
        """Let the thread go after the job under way. Any thread, idempotent."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, over = item
            try:
                with guard(self._name, self._report, passes=()):
                    job()
            finally:
                with self._lock:
                    self._open -= 1
                over.set()


def within(limit_s: float, name: str, call: Callable[[], T]) -> T:
    """Call something foreign that has to be quick, and give it up where it is not. Any thread.

    It runs on a daemon thread of its own, which one that hangs keeps for ever: whoever thinks may
    hold a lock that it needs.

    Raises
    ------
    TimeoutError
        If it is not back in time.
    Exception
        What it raised; as a RuntimeError what is no Exception.
    """
    found: list[T] = []
    raised: list[Exception] = []
    over = threading.Event()
    fault = guard(name, passes=())

    def work() -> None:
        with fault:
            try:
                found.append(call())
            # The controller's own code, on a thread of its own: what it raises belongs to the
            # thread that asked, where it is a row.
            except Exception as error:  # noqa: BLE001 - raised again by whoever waits
                raised.append(error)
        over.set()

    threading.Thread(target=work, name=name, daemon=True).start()
    if not over.wait(limit_s):
        raise TimeoutError(f"{name} is not back after {limit_s:g} s")
    if raised:
        raise raised[0]
    if fault:
        raise RuntimeError(fault.error)
    return found[0]
