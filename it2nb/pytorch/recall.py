"""Going back in a replay: to states that it kept itself, where the recording says.

What `undo` and `goto` of a live run go back to depends on time: which snapshots were affordable
and still in the ring, which changes were one gesture, which checkpoint file is on this disk. The
recording names the control point whose state it was; a replay keeps that state when it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from it2nb.core.recording import RESTORES, Place, Restore
from it2nb.pytorch import rewind
from it2nb.pytorch.knob_state import KnobValues, changes, read_knobs, write_knobs
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.state import capture

if TYPE_CHECKING:
    from it2nb.core.actions import ActionSpec
    from it2nb.core.replay import Replaying
    from it2nb.core.session import Session

#: What a result tells besides the facts that a new restore tells itself.
_TOLD = ("path", "undone", "asked_step", "good")


@dataclass(frozen=True, slots=True)
class Kept:
    """The state at one control point."""

    step: int
    branch_id: int
    tree: Mapping[str, Any] | None
    knobs: KnobValues
    extra: list[Any]
    place: list[int]


class Recall:
    """Keeps states in a replay, and goes back to them. Training thread.

    Parameters
    ----------
    session : Session
    live : Replaying
    past : Past
    """

    def __init__(self, session: Session, live: Replaying, past: Any) -> None:
        self._session = session
        self._live = live
        self._past = past
        self._kept: dict[int, Kept] = {}
        self._uses: dict[int, int] = {}
        self._whole: set[int] = set()
        for each in live.recording.requests:
            for place in _places(each.restore):
                self._uses[place.seq] = self._uses.get(place.seq, 0) + 1
            if each.restore is not None and each.restore.state is not None:
                self._whole.add(each.restore.state.seq)

    def keep(self, place: Place) -> None:
        """Keep the state as it is now."""
        session, past = self._session, self._past
        reduce = Reducer(portable=False, clone=True, device=past.ring.device)
        live = past.live()
        tree = capture(live, reduce) if live and place.seq in self._whole else None
        self._kept[place.seq] = Kept(
            session.step_count,
            session.branch_id,
            tree,
            read_knobs(session),
            past.users_own(reduce) if tree is not None else [],
            session.place(),
        )

    def restore_for(self, action_id: str) -> Restore | None:
        """Return what a request went back to in the recording, if its state was kept here."""
        recorded = self._live.recorded(action_id)
        restore = None if recorded is None else recorded.restore
        if restore is None or any(place.seq not in self._kept for place in _places(restore)):
            return None
        return restore

    def go_back(self, restore: Restore, payload: Mapping[str, Any]) -> dict[str, Any]:
        """Do again what the recording did."""
        state = None if restore.state is None else self._kept[restore.state.seq]
        values = state.knobs if state is not None else {}
        if restore.knobs is not None:
            values = self._kept[restore.knobs.seq].knobs
        told = {key: restore.told[key] for key in _TOLD if key in restore.told}
        # So that this run can be replayed in its turn.
        if state is not None:
            told["kept"] = state.place
        if restore.knobs is not None:
            told["knobs_kept"] = self._kept[restore.knobs.seq].place
        if state is None or state.tree is None:
            done = self._knobs_alone(values)
        else:
            done = self._past.go_back(
                state.tree,
                values,
                state.extra,
                to={"step": state.step, "branch_id": state.branch_id, **told},
                reason="replay of an earlier state",
                keep_knobs=bool(payload.get("keep_knobs")),
            )
        for place in _places(restore):
            self._uses[place.seq] -= 1
            if not self._uses[place.seq]:
                del self._kept[place.seq]
        return {**done, **told}

    def _knobs_alone(self, values: KnobValues) -> dict[str, Any]:
        before = read_knobs(self._session)
        notes = write_knobs(self._session, values)
        changed = changes(before, read_knobs(self._session))
        self._past.write_changed(changed, [])
        return {"knobs": changed, "notes": notes}


def install(session: Session, live: Replaying) -> Recall | None:
    """Let a replay go back to the states of its recording, if it ever went back."""
    if not any(each.restore is not None for each in live.recording.requests):
        return None
    recall = Recall(session, live, rewind.install(session).past)
    live.keep = recall.keep
    for name in RESTORES:
        session.actions.register(_recalling(session.actions[name], recall, session), replace=True)
    return recall


def _recalling(spec: ActionSpec, recall: Recall, session: Session) -> ActionSpec:
    """Make an action go back as it was recorded, where the replay asks."""

    def asked() -> Restore | None:
        serving = session.serving
        if serving is None or serving.source != "replay":
            return None
        return recall.restore_for(serving.id)

    def handler(payload: dict[str, Any], session: Session) -> Any:
        restore = asked()
        return (
            spec.handler(payload, session) if restore is None else recall.go_back(restore, payload)
        )

    unavailable: Callable[[], str | None] | None = spec.unavailable
    # What is available depends on the snapshots that were affordable; the handler decides.
    return replace(spec, handler=handler, unavailable=None if unavailable is None else _none)


def _none() -> str | None:
    return None


def _places(restore: Restore | None) -> list[Place]:
    if restore is None:
        return []
    return [place for place in (restore.state, restore.knobs) if place is not None]
