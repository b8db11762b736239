"""Where a run stands: status, step, branch, round, time. Read on any thread."""

from __future__ import annotations

import threading
from threading import get_ident
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from it2nb.core.actions import ActionRegistry
from it2nb.core.control import RunStatus
from it2nb.core.overview import Pace, overview
from it2nb.core.wire import Branch, State

if TYPE_CHECKING:
    from it2nb.core.journal import Journal
    from it2nb.core.round_runner import Rounds
    from it2nb.core.session import Session


class Standing:
    """The part of a session that says how its run is doing; `Session` fills it in."""

    run_id: str
    error: str | None
    clock: Any
    actions: ActionRegistry
    journal: Journal
    rounds: Rounds | None
    _status: RunStatus
    _step: int
    _round: int
    _branch_id: int
    _branches: list[Branch]
    _owner: int | None
    _owner_thread: threading.Thread | None
    _began: bool
    _stopping: bool
    _started_t: float
    _t0: float
    _elapsed: float | None
    _ended: threading.Event
    _pace: Pace
    _pumps: int

    @property
    def status(self) -> RunStatus:
        """``created, running, paused, stopped, finished`` or ``failed``. Any thread."""
        return self._status

    @property
    def step_count(self) -> int:
        """Optimizer updates completed on the present branch. Any thread."""
        return self._step

    @property
    def branch_id(self) -> int:
        """The present branch, 0 for the first. Any thread."""
        return self._branch_id

    @property
    def round(self) -> int:
        """The present round, 0 for the first. Any thread."""
        return self._round

    @property
    def branches(self) -> list[Branch]:
        """All branches, oldest first. Any thread."""
        return list(self._branches)

    def place(self) -> list[int]:
        """Say where the run is: round, branch, step, pumps so far, next seq. Any thread.

        The same loop is at the same place again when it is replayed; seq gives the order.
        """
        return [self._round, self._branch_id, self._step, self._pumps, self.journal.next_seq]

    @property
    def started(self) -> bool:
        """Whether `start` was called, by hand or by the first control point."""
        return self._began

    @property
    def is_ended(self) -> bool:
        """Whether the run is over and its journal closed. Any thread."""
        return self._ended.is_set()

    @property
    def stop_requested(self) -> bool:
        """Whether a `stop` was accepted: no optimizer step may happen any more. Any thread."""
        return self._stopping

    @property
    def must_leave(self) -> bool:
        """Whether the loop has to end now: the run was stopped, or its round. Any thread."""
        return self._stopping or (self.rounds is not None and self.rounds.is_leaving)

    @property
    def t(self) -> float:
        """Seconds since the session was made."""
        return float(self.clock.monotonic() - self._t0)

    @property
    def elapsed_s(self) -> float:
        """Seconds from the start of the session until now or its end."""
        return self.t - self._started_t if self._elapsed is None else self._elapsed

    @property
    def steps_per_s(self) -> float | None:
        """Optimizer steps a second over the last seconds; None before that can be told."""
        return self._pace.rate(self.t, self._step, self._status)

    @property
    def owner(self) -> threading.Thread | None:
        """The training thread, once it reached a control point."""
        return self._owner_thread

    @property
    def on_training_thread(self) -> bool:
        """Whether the caller is the training thread."""
        return self._owner == get_ident()

    @property
    def registry(self) -> ActionRegistry:
        """The same as `actions`."""
        return self.actions

    def state(self) -> State:
        """Everything a new onlooker needs, at a cost that does not grow. Any thread."""
        return overview(cast("Session", self))

    def __repr__(self) -> str:
        said = f"<Session {self.run_id} {self._status} at step {self._step}"
        return said + (f": {self.error}>" if self.error else ">")

    # A session is an identity: a copied trainer or config keeps talking to the same one.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a session can't be pickled: it is tied to a running thread and an open journal. "
            "Keep it out of what you pickle, or reopen its file with it2nb.open(session.path)"
        )
