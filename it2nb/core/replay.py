"""Replay: the same loop again, with the requests of a recording at their control points."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from it2nb.core.comparison import Verdict, compare
from it2nb.core.errors import It2nbError
from it2nb.core.opened import open as open_journal
from it2nb.core.own_requests import OwnRequests
from it2nb.core.recording import Place, Recorded, Recording, keeps
from it2nb.core.strict import strict
from it2nb.core.wire import Action

if TYPE_CHECKING:
    import pandas as pd

    from it2nb.core.history import History
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: What people may still ask for while a replay runs: it changes nothing that is compared.
HARMLESS = frozenset({"pause", "resume", "stop", "note", "set_context", "list_checkpoints"})

_VETO = (
    "a replay is under way: only the recorded requests change this run; start it without the "
    "replay to steer it yourself"
)


#: Whether the code that runs is the recorded one.
Code = Literal["same", "changed", "unknown"]


class ReplayRefused(It2nbError):
    """A replay was not begun: the code is not what was recorded, or the run can't be replayed."""


def replay(path: str | Path) -> Replay:
    """Read a recording, to do its run again.

    Parameters
    ----------
    path : str or Path
        ``journal.jsonl``, the folder of a run, or an exported ``run.zip``.

    Returns
    -------
    Replay
        ``TrainingSession(replay=...)`` or `Replay.attach` joins it with a session of the same
        loop; ``%%it2 --replay FILE`` does it for a cell.

    Raises
    ------
    JournalError, JournalDamaged
        If it can't be read, or is not what was written.
    """
    return Replay(open_journal(path))


class Replay:
    """A recorded run, and the session that does it again.

    Parameters
    ----------
    journal : History
        The recording, as `it2nb.open` gives it.

    Attributes
    ----------
    recording : Recording
    session : Session or None
        Whose loop is the replay.
    """

    def __init__(self, journal: History) -> None:
        self.recording = Recording(journal)
        self.session: Session | None = None
        self.live: Replaying | None = None
        self._said = ""

    def __repr__(self) -> str:
        by = "" if self.session is None else f" by {self.session.run_id}"
        run, count = self.recording.journal.run, len(self.recording.requests)
        return f"<Replay of {run}{by}: {count} requests>"

    def requests(self) -> pd.DataFrame:
        """Return the recorded requests that changed the run, as `journal.requests` has them."""
        frame = self.recording.journal.requests()
        chosen = [each.id for each in self.recording.requests]
        return frame[frame["action_id"].isin(chosen)].reset_index(drop=True)

    def attach(self, session: Session, *, go_on: bool = False) -> Session:
        """Make a session that has not begun the replay of this recording. Any thread.

        Parameters
        ----------
        session : Session
        go_on : bool
            Go on, and only tell it, when the session's cell is not the recorded one.

        Returns
        -------
        Session
            The same one.

        Raises
        ------
        ReplayRefused
            If the cell is another one, or the session has begun.
        """
        if session.started or session.is_ended:
            raise ReplayRefused(
                f"{session.run_id} has begun already; attach a replay before its first step"
            )
        code = self.check(session.source_cell, go_on=go_on)
        if code == "changed":
            session.warn(f"the replayed cell is not the recorded one{self._said}")
        if session.seed is None:
            session.seed = self.recording.seed
        self.session = session
        self.live = session.replaying = Replaying(session, self.recording)
        session.emit(
            "replay_started",
            {
                "of": self.recording.journal.run,
                "requests": len(self.recording.requests),
                "code": code,
                "anchor": getattr(self.recording.journal, "anchor", lambda: None)(),
            },
            source="replay",
        )
        return session

    def verify(self, ignore: Sequence[str] = ()) -> Verdict:
        """Compare the replay with the recording: metrics, final state, requests, surroundings.

        Parameters
        ----------
        ignore : sequence of str
            Metrics that are measured and not computed: seconds, tokens a second.

        Raises
        ------
        ReplayRefused
            While no session is attached.
        """
        if self.session is None or self.live is None:
            raise ReplayRefused("nothing was replayed yet: attach a session and run its loop")
        return self.live.verify(ignore)

    def check(self, cell: str | None, *, go_on: bool = False) -> Code:
        """Compare a cell with the recorded one. Any thread.

        Returns
        -------
        {"same", "changed", "unknown"}
            ``"unknown"`` where the run or the recording is a script's.

        Raises
        ------
        ReplayRefused
            If it is another one, unless `go_on`.
        """
        wanted = self.recording.cell_sha256
        if wanted is None or cell is None:
            return "unknown"
        if hashlib.sha256(cell.encode("utf-8", "surrogatepass")).hexdigest() == wanted:
            return "same"
        recorded = (self.recording.cell or {}).get("text")
        if isinstance(recorded, str) and _lines(recorded) == _lines(cell):
            return "same"  # another end of lines, or blank ones at the end
        self._said = difference(self.recording.cell, cell)
        if not go_on:
            raise ReplayRefused(
                f"this cell is not the recorded one, so it would not do the same run{self._said}\n"
                f"Undo the change, or go on all the same: --go-on, attach(session, go_on=True)"
            )
        return "changed"


class Replaying:
    """Brings the recorded requests into the run of one session. Training thread.

    Attributes
    ----------
    keep : callable, optional
        ``keep(place)`` keeps the state as it is now, for a later `Restore`.
    served : list of (Recorded, ActionHandle)
    own : OwnRequests
        Those of the loop's own code, which come again by themselves.
    missed, late : list of Recorded
        Never served, since the loop did not come to their control point; served after it.
    notes : list of str
        What could not be done as it was recorded.
    """

    def __init__(self, session: Session, recording: Recording) -> None:
        self.recording = recording
        self.keep: Callable[[Place], Any] | None = None
        self.served: list[tuple[Recorded, ActionHandle]] = []
        self.missed: list[Recorded] = []
        self.late: list[Recorded] = []
        #: What came out, in words, when it is over.
        self.outcome = ""
        self.notes: list[str] = []
        self._session = session
        self._plan: list[Place | Recorded] = sorted(
            [*keeps(recording.requests), *recording.requests],
            # What was kept before a request was kept before it was carried out.
            key=lambda each: (each.place.seq, 1) if isinstance(each, Recorded) else (each.seq, 0),
        )
        self._next = 0
        self._is_busy = False
        self._end = _end_of(recording)
        self._skipped: set[int] = set()
        self.own = OwnRequests(recording.requests, HARMLESS)
        self._by_id = {each.id: each for each in recording.requests}
        session.policy.veto(self._veto)
        session.before_change(self._before)
        # Every control point is looked at, also when nobody asks for anything.
        session.every(1, _nothing, name="replay")
        session.on_end(self._finish)

    def recorded(self, action_id: str) -> Recorded | None:
        """Return a recorded request by its id."""
        return self._by_id.get(action_id)

    def verify(self, ignore: Sequence[str] = ()) -> Verdict:
        """Compare the run with the recording; see `Replay.verify`. Any thread."""
        return compare(self.recording, self._session, self, ignore, is_over=self._session.is_ended)

    def serve_due(self) -> None:
        """Serve what is due at this control point, before anything else."""
        if self._is_busy:
            self._keep_due()
            return
        session = self._session
        self._is_busy = True
        try:
            while self._next < len(self._plan) and not session.stop_requested:
                item = self._plan[self._next]
                when = self._when(item if isinstance(item, Place) else item.place)
                if when == "later":
                    break
                self._next += 1
                if isinstance(item, Place):
                    self._do_keep(item)
                elif when == "missed":
                    self._miss(item)
                else:
                    self._serve(item, when)
            self._stop_at_end()
        finally:
            self._is_busy = False

    def serve_plan(self, knobs: Container[str] | None = None) -> None:
        """Serve what a plan had set here, before the first control point of its round.

        Parameters
        ----------
        knobs : container of str, optional
            Those that are there: what concerns others waits. All by default.
        """
        while self._next < len(self._plan):
            item = self._plan[self._next]
            place = item if isinstance(item, Place) else item.place
            if self._when(place) != "now":
                return
            if isinstance(item, Recorded):
                if item.source != "plan" or (knobs is not None and item.name not in knobs):
                    return
                self._next += 1
                self._serve(item, "now")
            else:
                self._next += 1
                self._do_keep(item)

    # --- one request ---------------------------------------------------------------------------

    def _serve(self, item: Recorded, when: str) -> None:
        session = self._session
        if item.own:
            self._serve_own(item)
            return
        if item.type == "pause" and not self._is_ended_here(item):
            self.notes.append(f"the pause at {item.place} was left out: nobody ended it")
            return
        if when == "late":
            self.late.append(item)
            session.warn(f"replay: {item.what} was served late, it was recorded at {item.place}")
        action = Action(
            type=item.type,
            payload=item.payload,
            id=item.id,
            actor=_actor(item),
            reason=item.reason,
        )
        handle = session.door.enter(action, "replay")
        session.gate.serve_first(handle)
        self.served.append((item, handle))
        if item.type == "fork" and handle.done() and not handle.result(0).ok:
            branches = (item.data or {}).get("branches", {})
            self._skipped.update(int(each) for each in branches.values())

    def _serve_own(self, item: Recorded) -> None:
        """The loop's own request: it waits in the queue if it has not been served by now."""
        session = self._session
        for handle in session.queue.waiting():
            if handle.own and handle.action.type == item.type:
                session.gate.serve_first(handle)
                return

    def _is_ended_here(self, pause: Recorded) -> bool:
        """Whether the recording ends a pause before the loop goes on."""
        return any(
            isinstance(each, Recorded) and each.type in ("resume", "stop")
            for each in self._plan[self._next :]
        )

    def _miss(self, item: Recorded) -> None:
        self.missed.append(item)
        self._session.warn(
            f"replay: {item.what} was left out, the loop did not come to {item.place}"
        )

    def _do_keep(self, place: Place) -> None:
        if self.keep is None:
            self.notes.append(f"the state at {place} was not kept: nothing is bound")
        else:
            self.keep(place)

    def _keep_due(self) -> None:
        """A handler asked for more: keep what was kept there."""
        while self._next < len(self._plan):
            item = self._plan[self._next]
            if not isinstance(item, Place) or self._when(item) == "later":
                return
            self._next += 1
            self._do_keep(item)

    # --- when ------------------------------------------------------------------------------------

    def _when(self, place: Place) -> Literal["later", "now", "late", "missed"]:
        session = self._session
        branch = self.branch(place.branch_id)
        here = (session.round, session.branch_id)
        there = (place.round, branch)
        if there != here:
            # A trial comes back to its branch; all others are left for good.
            on_trial = session.gate.only is not None
            return "missed" if there < here and not on_trial else "later"
        if session.step_count != place.step:
            return "late" if session.step_count > place.step else "later"
        return "now" if session.place()[3] >= place.pumps else "later"

    def branch(self, recorded: int) -> int:
        """Return the branch of this run that a recorded one became."""
        return recorded - sum(1 for each in self._skipped if each < recorded)

    def _stop_at_end(self) -> None:
        """Stop where the recording ends, unless its loop came to its own end."""
        session = self._session
        if self._end is None or self._next < len(self._plan) or session.stop_requested:
            return
        if self._when(self._end) in ("now", "late"):
            self._end = None
            action = Action(type="stop", reason="the recording ends here")
            session.gate.serve_first(session.door.enter(action, "replay"))

    # --- around ----------------------------------------------------------------------------------

    def _veto(self, handle: ActionHandle) -> str | None:
        if handle.own or handle.action.type in HARMLESS or self._session.is_ended:
            return None
        return _VETO

    def _before(self, handle: ActionHandle) -> None:
        if handle.source != "replay":
            self.serve_due()

    def _finish(self) -> None:
        for item in self._plan[self._next :]:
            if isinstance(item, Recorded) and not item.own and item.type != "pause":
                self.missed.append(item)
        self._next = len(self._plan)
        verdict = compare(self.recording, self._session, self, is_over=True)
        said = str(verdict)
        self.outcome = f"replay of {self.recording.journal.run}: {said}"
        if not verdict.is_equal:
            self._session.alert(self.outcome)
        self._session.emit(
            "replay_finished",
            {
                "served": len(self.served),
                "missed": [each.what for each in self.missed[:100]],
                "late": [each.what for each in self.late[:100]],
                "is_equal": verdict.is_equal,
                "verdict": said[:4000],
            },
            source="replay",
        )


def difference(cell: Mapping[str, Any] | None, text: str) -> str:
    """Return the difference between a recorded cell and a text, as lines; or why there is none."""
    recorded = (cell or {}).get("text")
    if not isinstance(recorded, str):
        return " (the recording holds its hash alone, so the difference can't be shown)"
    lines = difflib.unified_diff(
        _lines(recorded), _lines(text), "recorded", "this cell", lineterm="", n=1
    )
    return ":\n" + "\n".join(list(lines)[:60])


def _lines(cell: str) -> list[str]:
    """A cell's lines; how they end, and blank ones at the end, are no part of the code."""
    return cell.replace("\r\n", "\n").rstrip().split("\n")


def same_value(one: Any, other: Any) -> bool:
    """Whether two values are equal to the bit, NaN to NaN."""
    return strict(one) == strict(other)


def _end_of(recording: Recording) -> Place | None:
    """Return where to stop; None when the recorded loop came to its end, or was stopped."""
    if recording.status in ("finished", "failed"):
        return None
    if any(each.type == "stop" for each in recording.requests):
        return None
    return recording.last


def _actor(item: Recorded) -> str | None:
    return item.actor or item.source


def _nothing(session: Session) -> None:
    """Stands in the turns so that the gate opens at every step."""
