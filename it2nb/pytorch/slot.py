"""What is known about one hyper-parameter in one parameter group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from it2nb.pytorch.drift import WATCHED_STEPS, Watch
from it2nb.pytorch.groups import Cell, Group, same_mark


@dataclass(slots=True)
class Lent:
    """A value that stands in the group during one step only."""

    asked: Any
    stored: Any
    kept: Any


@dataclass(slots=True, eq=False)
class Slot:
    """State of one hyper-parameter in one group. The group itself is given to each method.

    Attributes
    ----------
    mode : {"rescale", "hold", "release"}
    pending : any
        Asked, and not yet used by a step.
    once : bool
        `pending` is meant for one step alone (an edit in mode release).
    held : float or None
        The value of mode hold.
    factor : float
        What stands in the group is multiplied by it during each step.
    scaled : float
        By which the schedulers' own values were multiplied so far.
    written : any
        What we wrote last to stay; None when somebody else's value stands there.
    origin : any
        What stood there before we first wrote to stay.
    asked : any
        The value as it was asked, where a tensor holds it rounded.
    next : any
        Lend this for the step that begins.
    lent : Lent or None
        What stands there for the step under way.
    loop : bool
        Something that is no known scheduler writes this value again and again.
    told : bool
        That was told.
    is_early : bool
        Edited before the first step, by a value that still stands.
    released_at : int
        Steps taken when mode release was picked.
    changed_at : int
        Steps taken when somebody else's writing was noticed last.
    known : any
        The plain value at the last look that read it: a tensor's mark does not tell it.
    drifts : int
        Rows about values that somebody else wrote where no edit was watched.
    """

    cell: Cell
    mode: str = "rescale"
    pending: Any = None
    once: bool = False
    held: Any = None
    factor: float = 1.0
    scaled: float = 1.0
    written: Any = None
    origin: Any = None
    asked: Any = None
    next: Any = None
    lent: Lent | None = None
    loop: bool = False
    told: bool = False
    is_early: bool = False
    released_at: int = -1
    changed_at: int = -WATCHED_STEPS
    known: Any = None
    drifts: int = 0
    watch: Watch = field(default_factory=Watch)
    seen: Any = None

    @property
    def is_busy(self) -> bool:
        """Whether there is anything to do around a step."""
        return (
            self.pending is not None
            or self.held is not None
            or self.factor != 1.0
            or self.lent is not None
            or self.next is not None
            or self.is_early
            or self.watch.until > 0
        )

    @property
    def is_left_alone(self) -> bool:
        """Whether nothing was asked of it lately: no edit waits, is watched, held or lent."""
        return self.mode == "rescale" and not (self.is_busy or self.loop)

    def ahead(self) -> Any:
        """What the next step uses instead of what stands in the group; None for nothing."""
        if self.pending is not None:
            return self.pending
        if self.held is not None:
            return self.held
        return None if self.lent is None else self.lent.asked

    def write(self, group: Group, value: Any) -> None:
        """Write to stay."""
        if self.origin is None:
            self.origin = self.cell.keep(group)
        self.cell.write(group, value)
        self.written = self.asked = self.known = value
        self.look(group)

    def stands(self, group: Group) -> bool:
        """Whether what we wrote to stay is still there."""
        if self.written is None:
            return False
        if same_mark(self.seen, self.cell.mark(group)):
            return True
        return bool(self.cell.read(group) == self.cell.as_stored(group, self.written))

    def restore(self, group: Group) -> None:
        """Put back what stood there before we first wrote, if nobody wrote since."""
        if self.origin is not None and self.stands(group):
            self.cell.put_back(group, self.origin)
            self.look(group)
        self.forget_writing()

    def forget_writing(self) -> None:
        """From now on what stands in the group is somebody else's."""
        self.written = self.origin = self.asked = None

    def lend(self, group: Group, value: Any) -> None:
        """Let `value` stand there until `give_back`."""
        self.lent = Lent(value, self.cell.as_stored(group, value), self.cell.keep(group))
        self.cell.write(group, value)

    def give_back(self, group: Group) -> None:
        """Put back what stood there, unless somebody wrote during the step."""
        lent, self.lent = self.lent, None
        if lent is not None and self.cell.read(group) == lent.stored:
            self.cell.put_back(group, lent.kept)

    def look(self, group: Group) -> None:
        """Remember what stands there, so that `is_touched` can tell."""
        # After every step: a plain number is its own mark.
        value = group[self.cell.key]
        self.seen = value if type(value) is float else self.cell.mark(group)

    def look_anew(self, group: Group) -> None:
        """As `look`, where the value may have changed: a tensor is read, and waited for."""
        self.look(group)
        self.known = None if type(self.seen) is float else self.cell.read(group)

    def is_touched(self, group: Group) -> bool:
        """Whether somebody else wrote since we last looked."""
        return not same_mark(self.seen, self.cell.mark(group))

    def take(self, group: Group, saved: Mapping[str, Any]) -> None:
        """Take saved state back, after the group has got its values."""
        for key, value in saved.items():
            setattr(self, key, value)
        self.asked = self.written
        if self.written is not None and (
            self.cell.read(group) != self.cell.as_stored(group, self.written)
        ):
            self.forget_writing()
        self.look_anew(group)

    def reset(self, group: Group) -> None:
        """The optimizer's state was loaded: what stands there counts. A hold goes on."""
        self.pending = self.next = self.lent = None
        self.once = False
        self.factor = self.scaled = 1.0
        self.forget_writing()
        self.look_anew(group)
