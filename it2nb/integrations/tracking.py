"""A thread that copies the journal of a run into a tracker, and can't hold the run up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from it2nb.core.faults import Fault, guard
from it2nb.core.subscription import Gap
from it2nb.core.wire import Event
from it2nb.integrations.tracker import Mark, Point, RunInfo, Tracker, lane_of, mark_of

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Events that may wait for a slow tracker; older ones are skipped, and the tracker hears of it.
MAILBOX = 20_000
#: Seconds between two looks.
EVERY_S = 0.5
#: Faults in a row after which a tracker is left alone.
MAX_FAULTS = 3


class Tracking:
    """One tracker beside one run; see `TrainingSession.track`. Any thread.

    Attributes
    ----------
    tracker : Tracker
    error : str or None
        Its last fault.
    skipped : int
        Events that it was too slow for.
    """

    def __init__(self, session: Session, tracker: Tracker, end_wait_s: float) -> None:
        self.tracker = tracker
        self.error: str | None = None
        self.skipped = 0
        self._session = session
        self._end_wait_s = end_wait_s
        self._faults = 0
        self._is_open = False
        self._ending = threading.Event()
        self._gone = threading.Event()
        self._mailbox = session.subscribe(maxlen=MAILBOX, since=0)
        self._thread = threading.Thread(
            target=self._run, name=f"it2nb-tracker-{tracker.name}", daemon=True
        )
        session.on_end(self.close)
        self._thread.start()

    def __repr__(self) -> str:
        state = "over" if self._gone.is_set() else "following"
        said = f"<Tracking {self.tracker.name} of {self._session.run_id}: {state}"
        return said + (f", {self.error}>" if self.error else ">")

    @property
    def is_over(self) -> bool:
        """Whether the tracker was closed, or given up."""
        return self._gone.is_set()

    def close(self) -> None:
        """Write what is there, end the tracker, and wait for it, but not for ever."""
        self._session.journal.seal()
        self._ending.set()
        if threading.current_thread() is self._thread:
            return
        if not self._gone.wait(self._end_wait_s):
            self._tell(f"not done {self._end_wait_s:g} s after the end; it was left to itself")

    # --- its own thread --------------------------------------------------------------------

    def _run(self) -> None:
        try:
            # The knobs are there with the first control point; they are part of what it is told.
            while not self._session.journal.tail(1, ("knobs_registered",)):
                if self._ending.wait(0.1):
                    break
            with guard(f"tracker {self.tracker.name}", self._failed, passes=()):
                self.tracker.open(self._info())
                self._is_open = True
            if self._is_open:
                self._follow()
        finally:
            self._mailbox.close()
            self._gone.set()

    def _follow(self) -> None:
        over = False
        while self._faults < MAX_FAULTS and not over:
            over = self._ending.wait(EVERY_S)
            more = True
            while more and self._faults < MAX_FAULTS:
                events, gap = self._mailbox.drain()
                more = bool(events)
                with guard(f"tracker {self.tracker.name}", self._failed, passes=()) as fault:
                    self._copy(events, gap)
                if events and not fault:
                    self._faults = 0
        if self._faults >= MAX_FAULTS:
            self._tell(f"{MAX_FAULTS} faults in a row: it gets nothing more")
        with guard(f"end of tracker {self.tracker.name}", self._failed, passes=()):
            self.tracker.close(self._status())

    def _copy(self, events: list[Event], gap: Gap | None) -> None:
        points: list[Point] = []
        if gap is not None:
            count = gap.last - gap.first + 1
            self.skipped += count
            at = events[0] if events else None
            self.tracker.mark(
                Mark(
                    at.step if at else 0,
                    f"{count} events were skipped: the tracker was too slow",
                    "note",
                    at.ts if at else self._session.clock.time(),
                )
            )
        for event in events:
            if event.type == "metrics":
                points.append(Point(event.step, event.payload, event.ts, lane_of(event)))
                continue
            mark = mark_of(event)
            if mark is not None:
                if points:
                    self.tracker.points(points)
                    points = []
                self.tracker.mark(mark)
        if points:
            self.tracker.points(points)

    def _info(self) -> RunInfo:
        session = self._session
        rows = session.journal.tail(1, ("knobs_registered",))
        knobs = {each["name"]: each["value"] for row in rows for each in row.payload["knobs"]}
        return RunInfo(
            session.run_id,
            session.title,
            None if session.path is None else str(session.path.parent),
            None if session.goal is None else session.goal.describe(),
            session.seed,
            knobs,
        )

    def _status(self) -> str:
        if self._session.error is not None:
            return "failed"
        return "stopped" if self._session.status == "stopped" else "finished"

    def _failed(self, fault: Fault) -> None:
        self._faults += 1
        self._tell(fault.error)

    def _tell(self, error: str) -> None:
        """A tracker that fails is a row and a line in the panel, not an error of the run."""
        self.error = error
        self._session.emit("tracker_failed", {"tracker": self.tracker.name, "error": error})
        self._session.alert(f"tracker {self.tracker.name}: {error}")
