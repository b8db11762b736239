"""Recording: what a journal says about how to do a run again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from it2nb.core.history import History
from it2nb.core.wire import EFFECTIVE, Event

#: Requests by which a run goes back to an earlier state.
RESTORES = frozenset({"undo", "goto", "load_checkpoint"})

#: Characters of a cell that a journal keeps.
MAX_CELL = 100_000

_TYPES = (
    "action_submitted", "action_result", "checkpoint_loaded", "checkpoint_saved", "environment",
    "source_cell", "random_state", "state_hash", "status_changed", "namespace_changed",
    "round_started",
)  # fmt: skip


class Place(NamedTuple):
    """A control point, as `Session.place` says it; `seq` orders what happened at it."""

    round: int
    branch_id: int
    step: int
    pumps: int
    seq: int

    def __str__(self) -> str:
        branch = f" of branch {self.branch_id}" if self.branch_id else ""
        return f"step {self.step}{branch}" + (f", round {self.round}" if self.round else "")


@dataclass(frozen=True, slots=True)
class Restore:
    """What a request went back to.

    Attributes
    ----------
    state : Place or None
        Where in this run the state was kept; None for a file from elsewhere, or knobs alone.
    knobs : Place or None
        Where the values of the knobs were read, if not with the state.
    told : mapping
        Step, branch and the like, as the recording tells of it.
    """

    state: Place | None
    knobs: Place | None
    told: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request that changed the recorded run.

    Attributes
    ----------
    own : bool
        The loop's own code asked, so it asks again by itself.
    place : Place
        Where it was served.
    """

    id: str
    type: str
    payload: dict[str, Any]
    source: str | None
    actor: str | None
    reason: str | None
    own: bool
    place: Place
    status: str
    name: str | None = None
    requested: Any = None
    before: Any = None
    after: Any = None
    data: Any = None
    restore: Restore | None = field(default=None, compare=False)

    @property
    def what(self) -> str:
        """In words: ``set_knob lr``."""
        return f"{self.type} {self.name}" if self.name else self.type


class Recording:
    """The rows of a journal that matter for doing its run again.

    Parameters
    ----------
    journal : History
        Live or opened.

    Attributes
    ----------
    requests : list of Recorded
        Applied and clamped ones, in the order in which they were served.
    environment : dict
        Empty while there is no such row.
    cell : dict or None
        Text, sha256 and options of the notebook cell.
    seed : int or None
    status : str
        The last one; ``"running"`` for a run that was killed.
    random, states : list of Event
        Rows of the random streams, and of the state's hashes.
    rounds : list of Event
        Rows of the beginnings of rounds; none for a run without rounds.
    unasked : list of Event
        Changes that no request made: another cell rebound a name that the loop uses.
    """

    def __init__(self, journal: History) -> None:
        self.journal = journal
        self.requests: list[Recorded] = []
        self.environment: dict[str, Any] = {}
        self.cell: dict[str, Any] | None = None
        self.status = "created"
        self.random: list[Event] = []
        self.states: list[Event] = []
        self.unasked: list[Event] = []
        self.rounds: list[Event] = []
        self._asked: dict[str, dict[str, Any]] = {}
        self._loaded: dict[str, dict[str, Any]] = {}
        self._saved: dict[str, Place] = {}
        for event in journal.tail(len(journal), _TYPES):
            self._take(event)
        self.requests.sort(key=lambda each: each.place.seq)

    def __repr__(self) -> str:
        return f"<Recording of {self.journal.run}: {len(self.requests)} requests, {self.status}>"

    @property
    def seed(self) -> int | None:
        """What the recorded run was seeded with."""
        seed = self.environment.get("seed")
        return seed if isinstance(seed, int) else None

    @property
    def cell_sha256(self) -> str | None:
        """Hash of the cell's text."""
        found = (self.cell or {}).get("sha256") or self.environment.get("cell_sha256")
        return str(found) if found else None

    @property
    def last(self) -> Place | None:
        """Where the recording ends; None for an empty one."""
        newest = self.journal.tail(1)
        if not newest:
            return None
        event = newest[0]
        return Place(event.round, event.branch_id, event.step, 0, event.seq)

    def trial_branches(self) -> set[int]:
        """Branches of trials: trained and taken back."""
        return {
            int(branch)
            for each in self.requests
            if each.type == "fork" and isinstance(each.data, Mapping)
            for branch in each.data.get("branches", {}).values()
        }

    # --- reading -----------------------------------------------------------------------------

    def _take(self, event: Event) -> None:
        payload = event.payload
        if event.type == "action_submitted":
            self._asked[str(event.action_id)] = payload
        elif event.type == "checkpoint_loaded":
            self._loaded[str(event.action_id)] = payload
        elif event.type == "checkpoint_saved":
            # A loop that saves by itself also loads by itself: nothing to keep for it.
            place = _place(payload.get("kept"))
            if place is not None:
                self._saved[str(payload.get("path"))] = place
        elif event.type == "action_result":
            self._settle(event)
        elif event.type == "environment":
            self.environment = payload
        elif event.type == "source_cell":
            self.cell = payload
        elif event.type == "status_changed":
            self.status = str(payload.get("status"))
        elif event.type == "random_state":
            self.random.append(event)
        elif event.type == "round_started":
            self.rounds.append(event)
        elif event.type == "state_hash":
            self.states.append(event)
        else:
            self.unasked.append(event)

    def _settle(self, event: Event) -> None:
        found = event.payload
        asked = self._asked.pop(str(event.action_id), None)
        if found.get("status") not in EFFECTIVE or asked is None:
            return
        place = _place(found.get("served")) or _of(event)
        self.requests.append(
            Recorded(
                id=str(event.action_id),
                type=str(found["type"]),
                payload=dict(asked.get("payload") or {}),
                source=event.source,
                actor=asked.get("actor"),
                reason=asked.get("reason"),
                own=bool(asked.get("own")),
                place=place,
                status=str(found["status"]),
                name=found.get("name"),
                requested=found.get("requested"),
                before=found.get("before"),
                after=found.get("after"),
                data=found.get("data"),
                restore=self._restore(str(event.action_id), found),
            )
        )

    def _restore(self, action_id: str, found: Mapping[str, Any]) -> Restore | None:
        if found.get("type") not in RESTORES:
            return None
        data = found.get("data")
        told = self._loaded.get(action_id) or (data if isinstance(data, Mapping) else {})
        state = _place(told.get("kept")) or self._saved.get(str(told.get("path")))
        knobs = _place(told.get("knobs_kept"))
        if state is None and knobs is None:
            return None
        return Restore(state, knobs, told)


def _place(found: Any) -> Place | None:
    if isinstance(found, (list, tuple)) and len(found) == 5:
        return Place(*(int(each) for each in found))
    return None


def _of(event: Event) -> Place:
    return Place(event.round, event.branch_id, event.step, 0, event.seq)


def cell_row(text: str, options: str = "", at: str = "optimizer") -> dict[str, Any]:
    """Make the payload of a ``source_cell`` row.

    Parameters
    ----------
    text : str
        The cell below its magic line; kept up to `MAX_CELL` characters, hashed whole.
    options : str
        The magic line itself, ``"--watch loss"``.
    at : {"optimizer", "loop", "session"}
        What one step is.
    """
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return {"sha256": found, "text": text[:MAX_CELL], "options": options, "at": at}


def keeps(requests: list[Recorded]) -> Iterator[Place]:
    """List the places at which the state is needed later, each once, in order."""
    wanted: dict[int, Place] = {}
    for each in requests:
        if each.restore is not None:
            for place in (each.restore.state, each.restore.knobs):
                if place is not None:
                    wanted.setdefault(place.seq, place)
    yield from (wanted[seq] for seq in sorted(wanted))
