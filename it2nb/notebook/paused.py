"""A wait for a paused run where nobody can resume it: told at once, and not for ever."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from it2nb.core.errors import It2nbError
from it2nb.core.session import Session
from it2nb.core.wire import Event
from it2nb.panel.rows import cut

#: A headless cell that waits fails when its run stays paused for so long, seconds.
PAUSED_S = 30.0
#: The result of a request comes a moment after its status: looks until it is told without.
LOOKS = 4


class RunStaysPaused(It2nbError):
    """A headless cell waits for a run that is paused, and nobody resumes it."""

    def _render_traceback_(self) -> list[str]:
        return [f"it2nb: {self}"]


class PausedWatch:
    """Looks now and then whether a run is paused, for a cell that waits for its end.

    Parameters
    ----------
    session : Session
    limit_s : float, optional
        How long it may stay so, seconds; `PAUSED_S` by default.
    clock : callable
        Seconds, monotonic. For tests.
    """

    def __init__(
        self,
        session: Session,
        limit_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._session = session
        self._limit_s = PAUSED_S if limit_s is None else limit_s
        self._clock = clock
        self._pause: int | None = None
        self._since = 0.0
        self._looks = 0

    def look(self) -> None:
        """Say that the run is paused, once each time. The thread that waits.

        Raises
        ------
        RunStaysPaused
            When it has been so for too long.
        """
        if self._session.status != "paused":
            self._pause = None
            return
        changes = self._session.journal.tail(1, types=["status_changed"])
        pause = changes[-1].seq if changes else -1
        if pause != self._pause:
            self._pause, self._since, self._looks = pause, self._clock(), 0
        self._looks += 1
        if self._looks <= LOOKS:
            cause = self._cause(pause)
            if cause is not None or self._looks == LOOKS:
                self._looks = LOOKS
                self._tell(_words(cause))
        elif self._clock() - self._since >= self._limit_s:
            raise RunStaysPaused(self._problem(_words(self._cause(pause))))

    def _cause(self, pause: int) -> Event | None:
        """Return the result of the request that paused it, if there is one by now."""
        results = self._session.journal.tail(20, types=["action_result"])
        return next((row for row in results if row.seq > pause and row.payload.get("ok")), None)

    def _tell(self, why: str) -> None:
        session = self._session
        print(
            f"it2nb: {session.run_id} is paused after step {session.step_count}{why}; this cell "
            f"waits for it without a panel, and fails in {self._limit_s:g} s unless a thread "
            f"resumes or stops the run",
            file=sys.stderr,
            flush=True,
        )

    def _problem(self, why: str) -> str:
        session = self._session
        return (
            f"{session.run_id} is paused after step {session.step_count}{why}, and nobody resumed "
            f"it for {self._limit_s:g} s, while this cell waits for its end without a panel. "
            f"Resume it from a thread (it2nb.current().resume()), start it with --no-wait, or let "
            f"the rule do something else than pause: stop, lower_lr, undo"
        )


def _words(cause: Event | None) -> str:
    if cause is None:
        return ""
    why = cause.payload.get("why")
    return f" by {cause.source}" + (f" ({cut(str(why), 200)})" if why else "")
