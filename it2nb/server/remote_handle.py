"""A request for a run elsewhere."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from it2nb.core.errors import Unreachable
from it2nb.core.wire import Action, ActionResult
from it2nb.server import calls

if TYPE_CHECKING:
    from it2nb.server.remote import RemoteSession


class RemoteHandle:
    """A request for a run elsewhere. Every method may be called on any thread."""

    def __init__(self, run: RemoteSession, action: Action) -> None:
        self._run = run
        self.action = action
        self.id = action.id
        self._result: ActionResult | None = None
        self._news = threading.Event()

    @property
    def status(self) -> str:
        """``"pending"``, or the result's status."""
        return "pending" if self._result is None else self._result.status

    def done(self) -> bool:
        """Whether the result is here."""
        return self._result is not None

    def settle(self, result: ActionResult) -> None:
        """Take the result."""
        self._result = result
        self._news.set()

    def result(self, timeout: float | None = None) -> ActionResult:
        """Wait for the result.

        Raises
        ------
        TimeoutError
            If it is not there within `timeout` seconds. The request stays in force.
        """
        deadline = calls.Deadline(timeout)
        while not self._news.wait(min(deadline.left, 1.0)):
            if self._run.problem is not None:
                raise Unreachable(f"{self.action.type} {self.id}: {self._run.problem}")
            if deadline.left <= 0:
                raise TimeoutError(
                    f"{self.action.type} {self.id} has no result after {timeout} s; it is served "
                    "at the run's next control point"
                )
        assert self._result is not None
        return self._result

    def cancel(self) -> bool:
        """Take the request back if it was not served yet; True when that succeeded."""
        return self._run.client._run(calls.cancel(self.id))

    def __repr__(self) -> str:
        return f"<{self._result or f'{self.action.type}: {self.status}'}>"
