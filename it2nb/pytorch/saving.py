"""Saving a run to checkpoint files: when asked, and by itself."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from it2nb.core import builtin
from it2nb.core.actions import Owed
from it2nb.core.errors import It2nbError, Rejected
from it2nb.core.readable import checkpoint_text
from it2nb.core.wire import Offer
from it2nb.pytorch import checkpoints
from it2nb.pytorch.knob_state import read_knobs
from it2nb.pytorch.past import Past, place_of
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.snapshots import size_of_live
from it2nb.pytorch.state import NOTHING_BOUND

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Automatic checkpoints that stay on the disk.
KEPT_AUTOSAVES = 2
#: Seconds between two of them where nobody said how often.
AUTOSAVE_S = 600.0
#: Such a checkpoint is at most so large, bytes, and at most this share of what is free.
AUTOSAVE_BYTES = 2**30
AUTOSAVE_SHARE = 0.05
#: Steps after which is looked whether it is time to, at most.
MOST_STEPS = 50


class Saving:
    """Writes the checkpoint files of one session.

    Parameters
    ----------
    past : Past
        Knows the live objects.
    folder : Path
        Where the files are.
    autosave_s : float or "auto", optional
        Also save without being asked, every so many seconds. ``"auto"``: every `AUTOSAVE_S`
        where the run has a folder and one process, while a checkpoint is small.
    """

    def __init__(
        self, past: Past, folder: Path, autosave_s: float | Literal["auto"] | None = None
    ) -> None:
        self.session = past.session
        self.past = past
        self.folder = folder
        self._is_bounded = autosave_s == "auto"
        if autosave_s == "auto":
            # A run in memory leaves no file, and several ranks have no state of one file.
            is_alone = getattr(past.session, "ranks", None) is None
            autosave_s = AUTOSAVE_S if is_alone and past.session.path is not None else None
        self.autosave_s: float | None = autosave_s
        self._autosaves: list[Path] = []
        self._listed: tuple[tuple[int, int], list[Offer]] | None = None
        self._autosaved_t = past.session.t

    def save(self, payload: dict[str, Any], session: Session) -> Any:
        """Save the state of the run to one file; the result tells path, size and SHA-256."""
        if self.is_ours:
            return self.save_now(payload.get("tag"))
        if session.honours_control:
            return Owed("save", payload.get("tag"))
        raise Rejected(NOTHING_BOUND)

    def save_now(self, tag: str | None = None) -> dict[str, Any]:
        """Save now. Training thread, at a control point."""
        session = self.session
        place = {"branch_id": session.branch_id, "round": session.round, "tag": tag}
        meta = {
            "step": session.step_count,
            **place,
            "run_id": session.run_id,
            "knobs": read_knobs(session),
        }
        path = checkpoints.free_path(self.folder, session.step_count, **place)
        own = self.past.users_own(Reducer(portable=True, clone=False))
        try:
            info = checkpoints.save_live(path, self.past.live(), meta=meta, extra=own)
        except OSError as err:
            raise It2nbError(
                f"the checkpoint {str(path)!r} could not be written ({err.strerror or err}), and "
                f"nothing of it was left; earlier ones are whole: make room there and save again"
            ) from err
        entry = {
            "path": session.whereabouts.told(info.path),
            "step": info.step,
            **place,
            "sha256": info.sha256,
            "size_bytes": info.size_bytes,
            "kept": place_of(session),
        }
        session.checkpoints.append(entry)
        serving = session.serving
        session.emit(
            "checkpoint_saved",
            entry,
            source=serving.source if serving else None,
            action_id=serving.id if serving else None,
        )
        return entry

    def autosave(self, session: Session) -> None:
        """Save if it is time to; has its turn at control points, some steps apart."""
        if self.autosave_s is None:
            return
        turn = session.turns.under_way
        if turn is not None:
            # Looked at about each tenth of the time: quick steps pay nothing for it.
            pace = (session.steps_per_s or 0.0) * self.autosave_s / 10
            turn.every = max(1, min(MOST_STEPS, int(pace)))
        if session.t - self._autosaved_t < self.autosave_s or not self.past.live():
            return
        if self._is_bounded and not self._is_small():
            return
        self._autosaved_t = session.t
        self._autosaves.append(self.path_of(self.save_now("auto")))
        while len(self._autosaves) > KEPT_AUTOSAVES:
            old = self._autosaves.pop(0)
            old.unlink(missing_ok=True)
            session.checkpoints[:] = [e for e in session.checkpoints if self.path_of(e) != old]

    def _is_small(self) -> bool:
        """Whether a checkpoint takes little of the disk; tried again when it is time once more."""
        size = size_of_live(self.past.live())
        there = next(each for each in (self.folder.absolute(), *self.folder.absolute().parents)
                     if each.exists())  # fmt: skip
        if size <= min(AUTOSAVE_BYTES, AUTOSAVE_SHARE * shutil.disk_usage(there).free):
            return True
        self._autosaved_t = self.session.t
        return False

    @property
    def is_ours(self) -> bool:
        """Whether saving and loading is for us to do, and not for a loop that does it by itself.

        In a loop that looks at StepControl (the paper's way) a model alone is bound for resets
        and the model tree; with its optimizer it is for us.
        """
        bound = self.session.bound
        return bool(self.past.live()) and (
            not self.session.honours_control or bool(bound.optimizers)
        )

    def unavailable(self) -> str | None:
        """Why nothing can be saved or loaded; None when it can. Any thread."""
        return None if self.past.live() or self.session.honours_control else NOTHING_BOUND

    def offers(self) -> dict[str, list[Offer]]:
        """Offer the files that there are, and what a loop saved by itself. Any thread."""
        found = [*builtin.told_checkpoints(self.session), *self._offered()]
        return {"path": found[: builtin.MOST_OFFERS]}

    def _offered(self) -> list[Offer]:
        try:
            changed = self.folder.stat().st_mtime_ns
        except OSError:
            return []
        # Ten times a second: the folder is read when it has changed, or we have written.
        state = (changed, len(self.session.checkpoints))
        if self._listed is None or self._listed[0] != state:
            files = checkpoints.list_checkpoints(self.folder)
            found = [
                Offer(value=each.path.name, label=checkpoint_text(asdict(each)))
                for each in reversed(files[-builtin.MOST_OFFERS :])
            ]
            self._listed = (state, found)
        return self._listed[1]

    def entries(self) -> list[dict[str, Any]]:
        """List the files that this session wrote in this round and that are still there."""
        return [
            each
            for each in self.session.checkpoints
            if "sha256" in each
            and each["round"] == self.session.round
            and self.path_of(each).is_file()
        ]

    def path_of(self, entry: dict[str, Any]) -> Path:
        """Return where the file of such an entry is."""
        return self.session.whereabouts.found(entry["path"])

    def find(self, asked: str | None) -> Path:
        """Find the file that a request names; see `checkpoints.find`. The newest by default."""
        if asked is not None:
            with suppress(OSError, RuntimeError, ValueError):  # no path: the search says so
                # As the record calls it, after the program has changed its directory.
                told = self.session.whereabouts.found(asked)
                if told.is_file() and not Path(asked).exists():
                    return told
        return checkpoints.find(asked or self.folder, [self.folder])
