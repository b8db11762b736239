"""Requests on their way to the training thread: ordered, bounded, idempotent by id."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import QueueFull, WrongThread
from it2nb.core.faults import guard
from it2nb.core.wire import Action, ActionResult

if TYPE_CHECKING:
    from it2nb.core.wire import Status


class ActionHandle:
    """A request under way: ask whether it is done, wait for its result, cancel it.

    Every method may be called on any thread.
    """

    __slots__ = (
        "_queue", "_result", "_seen", "_then", "action", "actor", "behalf", "own", "served",
        "source", "submitted_t", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        action: Action,
        source: str,
        actor: str | None,
        submitted_t: float,
        queue: RequestQueue,
    ) -> None:
        self.action = action
        self.source = source
        self.actor = actor
        self.submitted_t = submitted_t
        self.waiting = False
        #: Whether the loop's own code or a handler asked: the same code asks again in a replay.
        self.own = False
        #: A further source whose rules hold for it: the agent's, for the plan that it made.
        self.behalf: str | None = None
        #: Where it was served; see `Session.place`.
        self.served: list[int] | None = None
        self._queue = queue
        self._result: ActionResult | None = None
        #: Whether somebody has looked what became of it.
        self._seen = False
        self._then: list[Callable[[ActionHandle], object]] | None = None

    @property
    def id(self) -> str:
        """The request's id."""
        return self.action.id

    @property
    def status(self) -> Status:
        """``"pending"``, ``"waiting"`` for approval, or the result's status."""
        if (found := self._look()) is not None:
            return found.status
        return "waiting" if self.waiting else "pending"

    @property
    def ok(self) -> bool:
        """Whether it was applied; False while there is no result."""
        found = self._look()
        return found is not None and found.ok

    @property
    def requested(self) -> Any:
        """The result's; None while there is none."""
        found = self._look()
        return None if found is None else found.requested

    @property
    def before(self) -> Any:
        """The result's; None while there is none."""
        found = self._look()
        return None if found is None else found.before

    @property
    def after(self) -> Any:
        """The result's; None while there is none."""
        found = self._look()
        return None if found is None else found.after

    @property
    def step(self) -> int | None:
        """The result's; None while there is none."""
        found = self._look()
        return None if found is None else found.step

    @property
    def data(self) -> Any:
        """The result's; None while there is none."""
        found = self._look()
        return None if found is None else found.data

    @property
    def reason(self) -> str | None:
        """The result's; None while there is none."""
        found = self._look()
        return None if found is None else found.reason

    @property
    def error(self) -> str | None:
        """The result's; None while there is none."""
        found = self._look()
        return None if found is None else found.error

    def _look(self) -> ActionResult | None:
        """Return the result for whoever asks; see `unread`."""
        self._seen = self._seen or self._result is not None
        return self._result

    @property
    def outcome(self) -> Status | None:
        """The result's status for the run's own parts: no look of whoever asked. None while
        there is no result.
        """
        return None if self._result is None else self._result.status

    def done(self) -> bool:
        """Whether the result is there."""
        return self._result is not None

    def result(self, timeout: float | None = None) -> ActionResult:
        """Wait for the result.

        Parameters
        ----------
        timeout : float, optional
            Seconds.

        Raises
        ------
        TimeoutError
            If it is not there in time. The request stays in force.
        """
        if self._result is None:
            self._queue.wait_for(self, timeout)
        result = self._look()
        if result is None:
            raise TimeoutError(
                f"{self.action.type} {self.id} has no result after {timeout} s; it is still "
                f"{self.status} and is served at the next control point"
            )
        return result

    def cancel(self) -> bool:
        """Take the request back if it was not served yet; True when that succeeded."""
        return self._queue.cancel(self)

    def when_done(self, call: Callable[[ActionHandle], object]) -> None:
        """Call `call(handle)` once the result is there, at once if it is so already.

        It runs on the thread that makes the result, mostly the training thread, and must
        return at once; what it raises is dropped.
        """
        self._seen = True  # the call is given the handle
        with self._queue._done:
            if self._then is None:
                self._then = []
            self._then.append(call)
        # The result is published before it is looked whether anybody waits, and here it is the
        # other way round: one of the two finds the other.
        if self._result is not None:
            self._tell()

    def _tell(self) -> None:
        while self._then:
            try:
                call = self._then.pop(0)
            except IndexError:  # another thread took it
                return
            with guard("waiter of a result"):
                call(self)

    def __repr__(self) -> str:
        found = self._look()
        said = f"{self.action.type}: {self.status}" if found is None else str(found)
        return f"<{said}>"


def _nobody() -> bool:
    return False


class RequestQueue:
    """First in, first out; at most `size` requests wait.

    Parameters
    ----------
    size : int
    on_cancel : callable
        Given a handle that was cancelled before it was served; makes its result.
    withdraw : callable
        Takes a handle away from those that wait for approval; False when it is none of them.
    """

    def __init__(
        self,
        size: int,
        on_cancel: Callable[[ActionHandle], None],
        withdraw: Callable[[ActionHandle], bool],
    ) -> None:
        self.size = size
        self._on_cancel = on_cancel
        self._withdraw = withdraw
        self._waiting: deque[ActionHandle] = deque()
        self._handles: dict[str, ActionHandle] = {}
        self._done = threading.Condition()
        self._waiters = 0
        #: Tells whether the caller is who the training thread waits for just now.
        self.is_awaited: Callable[[], bool] = _nobody

    def __len__(self) -> int:
        return len(self._waiting)

    def known(self, action_id: str) -> ActionHandle | None:
        """Return the handle of a used id. Any thread."""
        return self._handles.get(action_id)

    def unread(self) -> list[ActionResult]:
        """Return results of Python's requests that came to nothing, and nobody looked at."""
        return [
            each._result
            for each in list(self._handles.values())
            if each.source == "python"
            and not each._seen
            and each._result is not None
            and each._result.status in ("rejected", "failed")
            # A stop that comes too late has what it wanted.
            and not (each._result.type == "stop" and str(each._result.reason).startswith("the run"))
        ]

    def remember(self, handle: ActionHandle) -> None:
        """Make the id known without queueing it (a request that was refused at the door)."""
        self._handles[handle.id] = handle

    def put(self, handle: ActionHandle) -> None:
        """Append a request. Callers hold the session's door lock, so order is journal order.

        Raises
        ------
        QueueFull
        """
        if len(self._waiting) >= self.size:
            raise QueueFull(
                f"the queue is full: {self.size} requests wait for the next control point; "
                f"wait for results before asking for more"
            )
        self._handles[handle.id] = handle
        self._waiting.append(handle)

    def put_back(self, handles: list[ActionHandle]) -> None:
        """Let requests that were popped wait on, before all others and in their order."""
        self._waiting.extendleft(reversed(handles))

    def waits_for(self, kind: str) -> bool:
        """Whether a request of this type waits. Any thread."""
        return any(handle.action.type == kind for handle in self._waiting.copy())

    def waiting(self) -> list[ActionHandle]:
        """Return the requests that wait, oldest first. Any thread."""
        return list(self._waiting.copy())

    def pop(self) -> ActionHandle | None:
        """Take the oldest request. Training thread (or whoever ends the session)."""
        try:
            return self._waiting.popleft()
        except IndexError:
            return None

    def cancel(self, handle: ActionHandle) -> bool:
        """Remove a waiting request. Any thread."""
        try:
            # One atomic step: whoever removes it from the deque owns its result.
            self._waiting.remove(handle)
        except ValueError:
            if not self._withdraw(handle):
                return False
        self._on_cancel(handle)
        return True

    def resolve(self, handle: ActionHandle, result: ActionResult) -> None:
        """Publish the result. Only after its row was written (DESIGN section 3, rule 7)."""
        handle._result = result
        if handle._then is not None:
            handle._tell()
        if self._waiters:
            with self._done:
                self._done.notify_all()

    def wait_for(self, handle: ActionHandle, timeout: float | None) -> None:
        """Block until the handle has its result, or for `timeout` seconds.

        Raises
        ------
        WrongThread
            If the training waits for the caller: neither would ever go on.
        """
        if handle._result is None and self.is_awaited():
            raise WrongThread(
                f"{handle.action.type} {handle.id} is served when the training goes on, and the "
                f"training waits for this answer: return the request, or don't wait for it"
            )
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._done:
            self._waiters += 1
            try:
                while handle._result is None:
                    left = None if deadline is None else deadline - time.monotonic()
                    if left is not None and left <= 0:
                        return
                    # A bounded wait: a resolve that read _waiters just before we counted
                    # ourselves does not notify, and is found at the next look.
                    self._done.wait(0.05 if left is None else min(left, 0.05))
            finally:
                self._waiters -= 1
