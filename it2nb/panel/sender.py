"""The one thread that sends: whatever goes to the browser goes through it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from it2nb.core.faults import Fault, guard
from it2nb.core.switching import switch_interval

#: Seconds between two batches of numbers alone: each costs the page a frame and the kernel a turn.
INTERVAL_S = 0.25
#: Between two batches when somebody waits for a result.
URGENT_S = 0.055
#: Between two looks at a run that stands still, or at pages that don't keep up.
SLOW_S = 1.0


class Sender:
    """Runs `turn` on a daemon thread, now and then or when woken, for as long as needed.

    While it does, threads of this process take turns often, also where the loop runs in a thread
    of the user's own.

    Parameters
    ----------
    turn : callable
        Does what is to be done and returns the seconds until it wants to be called again; None
        when there is nothing left, until the next `wake`.
    report : callable
        Called with the Fault of a turn.
    name : str
        Of the thread.
    """

    def __init__(
        self,
        turn: Callable[[], float | None],
        report: Callable[[Fault], object],
        name: str = "it2nb-panel",
    ) -> None:
        self._turn = turn
        self._report = report
        self._name = name
        self._woken = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def wake(self) -> None:
        """See to it that a turn comes soon. Any thread; never waits for the browser."""
        with self._lock:
            self._woken.set()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()

    def _run(self) -> None:
        with switch_interval:
            self._turns()

    def _turns(self) -> None:
        wait_s: float | None = 0.0
        while True:
            self._woken.wait(wait_s)
            self._woken.clear()
            if self._closed:
                break
            wait_s = SLOW_S
            with guard("panel sender", self._report):
                wait_s = self._turn()
            if wait_s is None and self._rest():
                return

    def _rest(self) -> bool:
        """End the thread, unless it was woken meanwhile."""
        with self._lock:
            if self._woken.is_set() and not self._closed:
                return False
            self._thread = None
            return True

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread and wait for it. Any thread but its own."""
        with self._lock:
            self._closed = True
            thread = self._thread
        self._woken.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)
        self._thread = None
