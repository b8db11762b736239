"""The actions that keep and bring back state: save, load, undo, go to, list."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from it2nb.core.actions import ActionSpec, Owed
from it2nb.core.errors import Rejected
from it2nb.core.faults import guard
from it2nb.pytorch import checkpoints, evaluate
from it2nb.pytorch.change import Change
from it2nb.pytorch.knob_state import changes, read_knobs, write_knobs
from it2nb.pytorch.past import Past
from it2nb.pytorch.saving import Saving
from it2nb.pytorch.snapshots import Ring, Snapshot
from it2nb.pytorch.state import NOTHING_BOUND
from it2nb.pytorch.trials import Trials

if TYPE_CHECKING:
    from it2nb.core.session import Session

_STRICT = ConfigDict(extra="forbid", strict=True)


class SaveArgs(BaseModel):
    """A name for what is saved."""

    model_config = _STRICT
    tag: str | None = Field(default=None, max_length=64, description="a name to find it by")


class LoadArgs(BaseModel):
    """Which checkpoint."""

    model_config = _STRICT
    path: str | None = Field(
        default=None, max_length=4096, description="file, folder or name; the newest by default"
    )
    keep_knobs: bool = Field(default=False, description="keep the live knob values")


class UndoArgs(BaseModel):
    """How far an undo goes."""

    model_config = _STRICT
    knobs_only: bool = Field(
        default=False, description="put back the knobs alone; the training goes on from here"
    )


class GotoArgs(BaseModel):
    """Where to: to a step, or to the newest state that is good."""

    model_config = _STRICT | ConfigDict(
        json_schema_extra={
            "anyOf": [
                {"required": ["step"]},
                {"required": ["good"], "properties": {"good": {"const": True}}},
            ]
        }
    )
    step: int | None = Field(default=None, ge=0, description="updates completed")
    branch_id: int | None = Field(default=None, ge=0, description="the present one by default")
    good: bool = Field(default=False, description="the newest state without NaN or infinity")
    exact: bool = Field(default=False, description="that very step, none near by")
    keep_knobs: bool = Field(default=False, description="keep the live knob values")


class ForkArgs(BaseModel):
    """How far both ways are followed."""

    model_config = _STRICT
    steps: int = Field(ge=1, le=100_000, description="updates on each of the two branches")


class NoArgs(BaseModel):
    """No arguments."""

    model_config = _STRICT


class Rewind:
    """The handlers: they keep the state of a session and bring it back.

    Parameters
    ----------
    session : Session
    past : Past
    saving : Saving
    """

    def __init__(self, session: Session, past: Past, saving: Saving) -> None:
        self.session = session
        self.past = past
        self.saving = saving
        self.trials = Trials(past)
        #: Whether it is noted what was there before a change.
        self.keeps_changes = True

    # --- going back --------------------------------------------------------------------------

    def load(self, payload: dict[str, Any], session: Session) -> Any:
        """Go back to a checkpoint file, in place."""
        path = payload.get("path")
        if self.saving.is_ours:
            return self._load_file(self.saving.find(path), payload["keep_knobs"])
        if not session.honours_control:
            raise Rejected(NOTHING_BOUND)
        if path is None:
            raise Rejected("path is needed here: which checkpoint should the loop load?")
        return Owed("load", path)

    def _load_file(self, path: Path, keep_knobs: bool, **more: Any) -> dict[str, Any]:
        content = checkpoints.read(path)
        meta = content["meta"]
        ours = meta.get("run_id") in (self.session.run_id, self.session.led_by)
        return self.past.go_back(
            content,
            meta.get("knobs", {}),
            content.get("extra"),
            to={
                "path": self.session.whereabouts.told(path),
                "step": meta["step"],
                "branch_id": meta["branch_id"] if ours else None,
                **({} if ours else {"other_run": str(meta.get("run_id"))}),
                **more,
            },
            reason=f"checkpoint {path.name}",
            keep_knobs=keep_knobs,
            clone=False,
        )

    def undo(self, payload: dict[str, Any], session: Session) -> dict[str, Any]:
        """Take the last intervention back: the state from before it."""
        change = self.past.last_change()
        if change is None:
            raise Rejected("there is nothing to undo: nothing was changed yet")
        kept = None
        if not payload["knobs_only"]:
            kept = self.past.before(change)
        if kept is None:
            told = self._undo_knobs(change, payload["knobs_only"])
        else:
            told = self.past.go_back(
                kept.tree,
                change.knobs,
                kept.extra,
                to={
                    "step": kept.step,
                    "branch_id": kept.branch_id,
                    "undone": change.what,
                    "kept": kept.place,
                    "knobs_kept": change.place,
                },
                reason=f"undo of {change.what}",
            )
            if kept.step < change.step:
                told["notes"].append(
                    f"no snapshot of step {change.step} was kept; this is step {kept.step}"
                )
        self.past.forget(change)
        return told

    def _undo_knobs(self, change: Change, asked: bool) -> dict[str, Any]:
        before = read_knobs(self.session)
        notes = write_knobs(self.session, change.knobs)
        changed = changes(before, read_knobs(self.session))
        if not asked:
            notes.append(
                f"the knobs were put back and the training goes on: "
                f"{self.past.reason or 'no snapshot from before it was kept'}"
            )
        self.past.write_changed(changed, [])
        return {
            "undone": change.what,
            "knobs": changed,
            "notes": notes,
            "knobs_kept": change.place,
        }

    def goto(self, payload: dict[str, Any], session: Session) -> dict[str, Any]:
        """Go back to a step: to its snapshot or checkpoint, or the nearest before it."""
        keep_knobs = payload["keep_knobs"]
        if payload["good"]:
            good = self.past.last_good()
            if good is None:
                raise Rejected("no snapshot without NaN or infinity is kept")
            return self._to(good, keep_knobs, {"good": True})
        step, branch_id = payload["step"], payload["branch_id"]
        if step is None:
            raise Rejected("step is needed, or good=true for the newest state without NaN")
        branch_id = session.branch_id if branch_id is None else branch_id
        if branch_id == session.branch_id and step > session.step_count:
            raise Rejected(f"step {step} is not there yet: this is step {session.step_count}")
        snapshot = self.past.nearest(step, branch_id)
        file = self._nearest_file(step, branch_id)
        found = max(snapshot.step if snapshot else -1, file["step"] if file else -1)
        if found < 0 or (payload["exact"] and found != step):
            raise Rejected(self._where_to(step, branch_id))
        asked = {"asked_step": step}
        if snapshot is not None and snapshot.step == found:
            return self._to(snapshot, keep_knobs, asked)
        assert file is not None
        return self._load_file(self.saving.path_of(file), keep_knobs, **asked)

    def _to(self, kept: Snapshot, keep_knobs: bool, more: Mapping[str, Any]) -> dict[str, Any]:
        told = self.past.go_back(
            kept.tree,
            kept.knobs,
            kept.extra,
            to={
                "step": kept.step,
                "branch_id": kept.branch_id,
                "kept": kept.place,
                **more,
            },
            reason=f"back to step {kept.step}",
            keep_knobs=keep_knobs,
        )
        asked = more.get("asked_step", kept.step)
        if asked != kept.step:
            told["notes"].append(f"no snapshot of step {asked} is kept; this is step {kept.step}")
        return told

    def _nearest_file(self, step: int, branch_id: int) -> dict[str, Any] | None:
        limits = dict(self.past.lineage(branch_id))
        fitting = [
            each
            for each in self.saving.entries()
            if each["step"] <= min(step, limits.get(each["branch_id"], -1))
        ]
        return max(fitting, key=lambda each: int(each["step"]), default=None)

    def _where_to(self, step: int, branch_id: int) -> str:
        limits = dict(self.past.lineage(branch_id))
        if not limits:
            known = ", ".join(str(each.id) for each in self.session.branches)
            return f"there is no branch {branch_id}; there are {known}"
        kept = [
            (each.step, each.branch_id)
            for each in self.past.ring
            if each.round == self.session.round
        ]
        kept += [(int(each["step"]), each["branch_id"]) for each in self.saving.entries()]
        there = sorted({at for at, branch in kept if at <= limits.get(branch, -1)})
        return f"step {step} can't be gone back to" + (
            f"; on branch {branch_id} these steps are kept: {_listed(there)}"
            if there
            else f": {self.past.reason or f'on branch {branch_id} no step is kept'}"
        )

    def listing(self, payload: dict[str, Any], session: Session) -> dict[str, Any]:
        """List checkpoint files and snapshots."""
        files = checkpoints.list_checkpoints(self.saving.folder)
        return {
            "folder": self.session.whereabouts.told(self.saving.folder),
            "files": [
                {
                    "name": each.path.name,
                    "step": each.step,
                    "branch_id": each.branch_id,
                    "round": each.round,
                    "tag": each.tag,
                    "size_bytes": each.size_bytes,
                }
                for each in files[-100:]
            ],
            "snapshots": [
                {"step": each.step, "branch_id": each.branch_id, "why": each.why}
                for each in self.past.ring
            ],
            "snapshot_bytes": self.past.ring.size_bytes,
            "max_bytes": self.past.ring.max_bytes,
        }

    # --- whether -----------------------------------------------------------------------------

    def cant_undo(self) -> str | None:
        """Why nothing can be undone. Any thread."""
        if not self.keeps_changes:
            return (
                "this run was told to keep no snapshots (--no-snapshots, snapshots=False), and "
                "nothing of before a change; set the knob back, or load a checkpoint"
            )
        return None if self.past.last_change() else "nothing was changed yet"

    def would_undo(self) -> str | None:
        """What an undo would take back. Any thread."""
        change = self.past.last_change() if self.keeps_changes else None
        return None if change is None else f"{change.what} of step {change.step:,}"

    def cant_go(self) -> str | None:
        """Why there is nowhere to go back to. Any thread."""
        if len(self.past.ring) or self.session.checkpoints:
            return None
        return self.past.reason or "no snapshot is kept"


def install(
    session: Session,
    *,
    snapshots: Mapping[str, Any] | bool = True,
    folder: Path | str | None = None,
    autosave_s: float | Literal["auto"] | None = None,
) -> Rewind:
    """Give a session the actions that keep and bring back state. Any thread, idempotent.

    Registers ``save_checkpoint, load_checkpoint, undo, goto, list_checkpoints`` and an
    `evaluate` that leaves the training as it was. What they work on is what was bound with
    ``session.bind(...)``, at the time of the request.

    Parameters
    ----------
    session : Session
    snapshots : mapping or bool
        ``every`` (optimizer steps; 50 by default, and before the first 50 at 1, 2, 4, 8 and so
        on where there is time for it), ``max_bytes`` (all snapshots together, 1 GiB),
        ``max_count`` (200), ``max_share`` (of the run's time, 0.02) and ``device`` (``"cpu"``).
        False keeps none: then there are checkpoint files only.
    folder : path, optional
        For checkpoint files; beside the journal by default.
    autosave_s : float or "auto", optional
        Save a checkpoint every so many seconds; the last two stay. ``"auto"``: every
        `AUTOSAVE_S` where the run has a folder and one process, while a checkpoint is small.

    Returns
    -------
    Rewind
    """
    known = of(session)
    if known is not None:
        return known
    asked = dict(snapshots) if isinstance(snapshots, Mapping) else {}
    options: dict[str, Any] = {"every": 50, "max_share": 0.02} | asked
    every, share = options.pop("every"), options.pop("max_share")
    past = Past(session, Ring(**options), share)
    saving = Saving(past, _folder(session, folder), autosave_s)
    rewind = Rewind(session, past, saving)
    for spec in (
        ActionSpec("save_checkpoint", saving.save, "Save the state of the run", SaveArgs,
                   unavailable=saving.unavailable),
        ActionSpec("load_checkpoint", rewind.load, "Go back to a checkpoint", LoadArgs,
                   dangerous=True, unavailable=saving.unavailable, offers=saving.offers),
        ActionSpec("undo", rewind.undo, "Take the last intervention back", UndoArgs,
                   dangerous=True, unavailable=rewind.cant_undo, about=rewind.would_undo),
        ActionSpec("goto", rewind.goto, "Go back to a step", GotoArgs,
                   dangerous=True, unavailable=rewind.cant_go),
        ActionSpec("fork", rewind.trials.begin, "Train on with and without the last change",
                   ForkArgs, unavailable=rewind.trials.unavailable),
        ActionSpec("list_checkpoints", rewind.listing, "List what can be gone back to", NoArgs),
    ):  # fmt: skip
        session.actions.register(spec, replace=True)
    session.rewind = rewind
    evaluate.install(session)
    rewind.keeps_changes = snapshots is not False
    if rewind.keeps_changes:
        session.before_change(past.before_change)
        session.every(every, past.take_in_passing, name="snapshot")
        # Several ranks agree about each snapshot; these are not worth it.
        if "every" not in asked and getattr(session, "ranks", None) is None:
            _take_early(session, past, every)
    if saving.autosave_s is not None:
        session.every(1, saving.autosave, name="autosave")
    session.on_end(partial(_release, session, rewind))
    return rewind


def _take_early(session: Session, past: Past, until: int) -> None:
    """Keep a few of the first steps: much of what goes wrong does so before the first turn."""

    def early(session: Session) -> None:
        step = session.step_count
        if step >= until:
            remove()
        elif step > 0 and step & (step - 1) == 0:
            past.take_in_passing(session)

    remove = session.every(1, early, name="snapshot of the first steps")


def of(session: Session) -> Rewind | None:
    """Return what `install` gave the session; None where it was not called."""
    # Not by the action's handler: a replay puts its own around it.
    return session.rewind if "undo" in session.actions else None


def _listed(steps: list[int], most: int = 24) -> str:
    """Write down which steps; of many the first and the last."""
    told = [str(each) for each in steps]
    if len(told) > most:
        told[most // 2 : -most // 2] = [f"... ({len(told) - most} more) ..."]
    return ", ".join(told)


def _folder(session: Session, folder: Path | str | None) -> Path:
    if folder is not None:
        return Path(folder).absolute()
    if session.path is not None:
        return session.path.parent / "checkpoints"
    return Path("it2runs").absolute() / session.run_id / "checkpoints"


def _release(session: Session, rewind: Rewind) -> None:
    """An ended run keeps no tensor alive (it may stay in a list of runs for hours)."""
    rewind.trials.give_up("the run ended before")
    rewind.past.clear()
    with guard("releasing what was bound", session.report):
        bound = session.bound
        for held in (bound.models, bound.optimizers, bound.schedulers, bound.on_save):
            held.clear()
        bound.on_load.clear()
        bound.stateful.clear()
        bound.generators.clear()
        bound.scaler = bound.step_fn = None
