"""Changes: who intervened, and what was there before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from it2nb.core.wire import EFFECTIVE, TERMINAL
from it2nb.pytorch.knob_state import KnobValues
from it2nb.pytorch.snapshots import Snapshot

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle

#: Requests that change nothing that could be undone. Any other action may change the run.
INERT = frozenset(
    {
        "pause", "resume", "stop", "note", "set_context", "evaluate", "save_checkpoint",
        "list_checkpoints", "undo", "fork",
    }
)  # fmt: skip
#: Changes of one knob by one source within so many seconds are one gesture, undone at once.
GESTURE_S = 1.0
#: Only a hand on a slider makes gestures: each line of code is meant by itself.
DRAGGED = frozenset({"panel", "http"})


@dataclass(eq=False)
class Change:
    """Somebody's intervention, with what was before it.

    Attributes
    ----------
    what : str
        ``"set_knob lr"``.
    handle : ActionHandle
        The request; of a gesture the last one.
    step, branch_id : int
    knobs : KnobValues
        Before it.
    snapshot : Snapshot or None
        Before it; None where none was taken.
    t : float
        Seconds since the session was made.
    place : list of int or None
        `Session.place` then; of a gesture at its first request.
    """

    what: str
    handle: ActionHandle
    step: int
    branch_id: int
    knobs: KnobValues
    snapshot: Snapshot | None
    t: float
    place: list[int] | None = None
    _was_effective: bool = field(default=False, repr=False)

    def joined_by(self, handle: ActionHandle, t: float) -> None:
        """Take a further request of the same gesture in."""
        self._was_effective = self.is_effective
        self.handle, self.t = handle, t

    @property
    def is_effective(self) -> bool:
        """Whether the run was changed: its own result says so."""
        return self._was_effective or self.handle.outcome in EFFECTIVE

    @property
    def is_void(self) -> bool:
        """Whether it is known that nothing was changed."""
        return self.handle.outcome in TERMINAL and not self.is_effective
