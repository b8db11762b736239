"""Sessions that outlive their process in one way or another: forks, and its end."""

from __future__ import annotations

import atexit
import os
import weakref
from collections import deque
from typing import TYPE_CHECKING

from it2nb.core.errors import SessionEnded
from it2nb.core.faults import guard

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Sessions of this process, oldest first; the newest ones, so that old runs can be freed.
KEPT_RUNS = 20

_runs: deque[Session] = deque(maxlen=KEPT_RUNS)
_living: weakref.WeakSet[Session] = weakref.WeakSet()
_inert: weakref.WeakSet[Session] = weakref.WeakSet()


def watch(session: Session) -> None:
    """Take care of a new session."""
    _living.add(session)
    _runs.append(session)


def forget(session: Session) -> None:
    """It ended by itself."""
    _living.discard(session)


def current() -> Session:
    """Return the newest run that lives, else the newest that ended. Any thread.

    Raises
    ------
    SessionEnded
        If this process has had none.
    """
    for session in reversed(_runs):
        if session.started and not session.is_ended:
            return session
    if not _runs:
        raise SessionEnded(
            "there is no run in this process yet: start one with %%it2 or TrainingSession()"
        )
    return _runs[-1]


def runs() -> list[Session]:
    """Return the sessions of this process, oldest first; at most `KEPT_RUNS`. Any thread."""
    return list(_runs)


def is_inert(session: Session) -> bool:
    """Whether the session belongs to the parent of this forked process."""
    return session in _inert


def _after_fork() -> None:
    # A DataLoader worker inherits our locks in any state: touch none. Nobody owns the run
    # here any more, so that every control point takes the slow way and finds it inert.
    for session in list(_living):
        session._owner = None
        session._attention = False
        _inert.add(session)
    _living.clear()


@atexit.register
def end_all() -> None:
    """A process that stops in good order gives every request its result and seals journals."""
    for session in list(_living):
        with guard("ending a run at exit"):
            session.finish("stopped" if session.started else None, "the process ended")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
