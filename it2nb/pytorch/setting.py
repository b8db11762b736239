"""One hyper-parameter of one optimizer, as the next step uses it: edits, modes, read-back.

The trap (DESIGN section 8): the control point comes before ``scheduler.step()``, so an lr that
is written there is overwritten, or scaled once too often. Hence an edit waits, and is worked
out once, just before the next step, against the value that the step would otherwise use
(`working.py`).

A group is in one of these situations:

- Nothing else writes the value. The edit is written at once.
- Schedulers whose arithmetic is known drive it. In mode rescale every absolute value that they
  keep is multiplied (`schedulers.scale`), so that the edit is part of their saved state.
- Something else drives it (an unknown scheduler, the loop): it writes in a rhythm (`rhythm`).
  The value is *lent*: written before the step, and what stood there put back right after it, so
  that the other one goes on in its own world, whatever its arithmetic. Mode hold lends too, and
  so `release` is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from it2nb.pytorch import working
from it2nb.pytorch.admission import admit
from it2nb.pytorch.drift import WATCHED_STEPS, Standing, Tell
from it2nb.pytorch.edits import Edits, first_nonzero, spread
from it2nb.pytorch.groups import Cell, Group
from it2nb.pytorch.live import Live
from it2nb.pytorch.rhythm import Rhythm
from it2nb.pytorch.rules import Rule
from it2nb.pytorch.schedulers import Schedulers
from it2nb.pytorch.sharing import admit_alone, look_at_shared, separate
from it2nb.pytorch.slot import Slot


@dataclass(slots=True)
class Clock:
    """Steps that one optimizer took, and which of its settings have something to do around one."""

    steps: int = 0
    busy: set[str] = field(default_factory=set)


class Setting:
    """One hyper-parameter in all groups of one optimizer.

    Parameters
    ----------
    optimizer : callable
        A weak reference to it.
    cell : Cell
    rule : Rule
    drivers : Schedulers
    tell : Tell
        Reports to the session.
    clock : Clock
        Counts the steps of the optimizer.

    Attributes
    ----------
    slots : dict of int to Slot
        By index of the group.
    together : (value, index) or None
        An edit of all groups that waits: the reference group and its value.
    is_busy : bool
        Whether the step hooks have anything to do.
    rhythm : Rhythm
        When somebody else wrote the value.
    is_captured : bool
        The step was captured in a CUDA graph: hooks don't run when it is replayed.

    Notes
    -----
    Reading is safe on any thread. Setting, and the two hooks, on the training thread.
    """

    def __init__(
        self,
        optimizer: Callable[[], Any],
        cell: Cell,
        rule: Rule,
        drivers: Schedulers,
        tell: Tell,
        clock: Clock,
    ) -> None:
        self.cell = cell
        self.rule = rule
        self.drivers = drivers
        self.tell = tell
        self.optimizer = optimizer
        self.slots: dict[int, Slot] = {}
        self.together: tuple[Any, int] | None = None
        self.is_busy = False
        self.is_captured = False
        self._clock = clock
        self.rhythm = Rhythm()
        self._edits = Edits()
        self._watched: tuple[tuple[int, Slot], ...] = ()
        self.standing_values = Standing()
        self.look()

    @property
    def steps(self) -> int:
        """Steps that the optimizer took while it was steered."""
        return self._clock.steps

    # --- reading, any thread ---------------------------------------------------------------

    def groups(self) -> list[Group]:
        """Return the groups as they are now; none when the optimizer is gone."""
        optimizer = self.optimizer()
        return [] if optimizer is None else optimizer.param_groups

    def value(self, at: int) -> Any:
        """What the next step uses in group `at`."""
        slot = self.slots.get(at)
        ahead = None if slot is None else slot.ahead()
        return self.standing(at) if ahead is None else ahead

    def values(self) -> list[Any]:
        """What the next step uses, one a group."""
        return [self.value(at) for at in range(len(self.groups()))]

    def reference(self) -> int:
        """The group that stands for all: the first that is not 0."""
        return first_nonzero(self.values())

    def mode(self, at: int) -> str:
        """``rescale``, ``hold`` or ``release``."""
        slot = self.slots.get(at)
        return "rescale" if slot is None else slot.mode

    def standing(self, at: int) -> Any:
        """What the next step would use apart from what is pending or held."""
        group, slot = self.groups()[at], self.slots.get(at)
        value = self.cell.read(group)
        if slot is None:
            return value
        if slot.factor != 1.0:
            return self.inside(value * slot.factor)
        if slot.asked is not None and value == self.cell.as_stored(group, slot.asked):
            return slot.asked
        return value

    # --- setting, training thread ----------------------------------------------------------

    def assign(self, at: int, value: Any) -> None:
        """Set group `at`.

        Raises
        ------
        Rejected
            When the value contradicts another one; nothing was touched then.
        """
        admit(self, at, value)
        admit_alone(self, at, value)
        self.together = None
        separate(self, [at])
        self._put(at, value)
        self._after_edit()

    def assign_all(self, value: Any) -> None:
        """Set all groups, keeping their ratios: the reference group gets `value`.

        Raises
        ------
        Rejected
            When a group would leave its bounds; nothing was touched then.
        """
        old = self.values()
        at = first_nonzero(old)
        # Groups that were set apart a moment ago stand to each other as shown, and no longer
        # as the schedule has them.
        is_apart = self.together is None and any(
            slot.pending is not None for slot in self.slots.values()
        )
        new = self._edits.originals(value, old)
        by_ratio = new is None and self.rule.dtype == "float" and bool(old[at])
        if new is None and self.rule.dtype == "float":
            new = spread(value, old if old[at] else self._shares())
        elif new is None:
            new = [value] * len(old)
        for index, each in enumerate(new):
            admit(self, index, each)
        if new != old:
            self._edits.note(old, new)
        keeps_ratios = by_ratio and len(new) > 1 and not is_apart
        self.together = (value, at) if keeps_ratios else None
        for index, each in enumerate(new):
            self._put(index, each)
        self._after_edit()

    def pick(self, mode: str, at: Iterable[int] | None = None) -> None:
        """Pick the mode of some groups, of all by default."""
        groups = self.groups()
        chosen = list(range(len(groups)) if at is None else at)
        separate(self, chosen)
        if mode == "release":
            self._release(chosen)
        for each in chosen:
            slot = self.slot(each)
            if mode == "hold" and slot.mode != "hold":
                self._hold(each, self.value(each))
            elif mode == "rescale" and slot.held is not None:
                # Go on from the held value: worked out against the schedule at the next step.
                slot.pending = None if slot.stands(groups[each]) else slot.held
                slot.held = None
                self.together = None
            slot.mode = mode
        self.note_busy()

    def _put(self, at: int, value: Any) -> None:
        slot, group = self.slot(at), self.groups()[at]
        now = self.value(at)
        once = slot.mode == "release" and slot.released_at == self.steps
        if slot.mode == "release" and not once:
            slot.mode = "rescale"
        if slot.mode == "hold":
            self._hold(at, value)
        elif slot.pending is not None and value == self._before_edit(at):
            self._take_back(at)
        elif value != now:
            slot.pending, slot.once = value, once
            slot.watch.stop()
            if self.is_captured or self.rule.dtype != "float":
                working.put_now(self, at)
            elif not once and not self.is_driven(slot):
                self.ready(group, value)
                slot.write(group, value)

    def _hold(self, at: int, value: Any) -> None:
        slot, group = self.slot(at), self.groups()[at]
        slot.held, slot.pending, slot.once = value, None, False
        if self.is_captured or not self.is_driven(slot):
            self.ready(group, value)
            slot.write(group, value)

    def _before_edit(self, at: int) -> Any:
        """What was shown before the edit that is pending."""
        slot = self.slots[at]
        if slot.written is not None and slot.written == slot.pending:
            kept = slot.origin
            return kept.item() if hasattr(kept, "item") else kept
        return self.standing(at)

    def _take_back(self, at: int) -> None:
        """Drop an edit that no step has used: as if it had never been asked."""
        slot = self.slots[at]
        if slot.written is not None and slot.written == slot.pending:
            slot.restore(self.groups()[at])
        slot.pending, slot.once = None, False

    def _release(self, chosen: list[int]) -> None:
        groups = self.groups()
        back: dict[int, float] = {}
        for at in chosen:
            slot = self.slot(at)
            slot.restore(groups[at])
            if slot.scaled != 1.0:
                back[at] = 1 / slot.scaled
            slot.pending = slot.held = slot.next = None
            slot.factor, slot.once = 1.0, False
            slot.released_at = self.steps
            slot.watch.stop()
        if back:
            working.unscale(self, groups, back)

    def _after_edit(self) -> None:
        look_at_shared(self)
        self.note_busy()
        if self.rule.advice is not None:
            self.tell.warn(self.rule.advice)

    # --- around a step, training thread ----------------------------------------------------

    def before_step(self) -> None:
        """Bring what is pending or held into force for the step that begins."""
        working.before_step(self)

    def after_step(self) -> None:
        """Put back what was lent for the step that is over."""
        groups = self.groups()
        for at, slot in self.slots.items():
            if slot.lent is not None and at < len(groups):
                slot.give_back(groups[at])
        self.note_busy()

    def glance(self) -> Sequence[int]:
        """Before a step: notice if somebody wrote since the last look. Costs next to nothing.

        Returns
        -------
        sequence of int
            Groups whose value had stood still for `WATCHED_STEPS` until then; none before the
            first step, which is where the run begins.
        """
        key, groups, steps = self.cell.key, self.groups(), self._clock.steps
        if len(groups) != len(self._watched):
            self.look()
        changed: list[int] = []
        for (at, slot), group in zip(self._watched, groups, strict=False):
            value, seen = group[key], slot.seen
            # Before every step: a tensor's mark is compared in place, without making another.
            if value is seen or (
                type(seen) is tuple
                and seen[0] == id(value)
                and seen[1] == getattr(value, "_version", None)
            ):
                continue
            if at == 0 or at == len(groups) - 1:
                self.rhythm.note(steps)
            if steps:
                if steps - slot.changed_at >= WATCHED_STEPS:
                    changed.append(at)
                slot.changed_at = steps
        return changed

    def look(self) -> None:
        """Remember what stands in the groups, for `glance`."""
        key, groups = self.cell.key, self.groups()
        if len(self._watched) != len(groups):
            self._watched = tuple((at, self.slot(at)) for at in range(len(groups)))
        for (_, slot), group in zip(self._watched, groups, strict=False):
            value, seen = group[key], slot.seen
            if value is not seen and not (
                type(seen) is tuple
                and seen[0] == id(value)
                and seen[1] == getattr(value, "_version", None)
            ):
                slot.look(group)

    def take_live(self) -> list[tuple[int, Live]]:
        """Put plain numbers in the place of live variables, and return these with their groups."""
        found = [
            (at, value)
            for at, group in enumerate(self.groups())
            if isinstance(value := self.cell.raw(group), Live)
        ]
        for at, variable in found:
            self.cell.write(self.groups()[at], variable.value)
        if found:
            self.look()
        return found

    def reloaded(self, *, quiet: bool) -> None:
        """The optimizer's state was loaded: what is in its groups now counts; a hold goes on.

        Parameters
        ----------
        quiet : bool
            We loaded it ourselves: that is no drift.
        """
        groups = self.groups()
        for at, slot in self.slots.items():
            if at < len(groups):
                slot.reset(groups[at])
            slot.watch.loaded = True
            if quiet:
                slot.watch.stop()
        self.together = None
        self._edits.clear()
        self.standing_values.forget()
        self.note_busy()

    def assume(self, shares: list[float]) -> None:
        """Say how the groups stand to each other while all are 0: the groups without decay."""
        self._edits.assumed = shares

    def is_driven(self, slot: Slot) -> bool:
        """Whether something else writes this value, so that an edit has to wait for the step."""
        if slot.loop or slot.factor != 1.0:
            return True
        if self.rule.modes and self.has_driver():
            return True
        slot.loop = self.rhythm.goes_on(self.steps)
        return slot.loop

    def has_driver(self) -> bool:
        """Whether a scheduler drives the values; one that no one told us of is looked for."""
        return bool(
            self.drivers.driving(self.cell)
            or (self.drivers.discover() and self.drivers.driving(self.cell))
        )

    # --- parts -----------------------------------------------------------------------------

    def slot(self, at: int) -> Slot:
        """Return the state of group `at`."""
        slot = self.slots.get(at)
        if slot is None:
            slot = self.slots[at] = Slot(self.cell)
            slot.look_anew(self.groups()[at])
        return slot

    def note_busy(self) -> None:
        """Find out whether the hooks have anything to do."""
        self.is_busy = any(slot.is_busy for slot in list(self.slots.values()))
        note = self._clock.busy.add if self.is_busy else self._clock.busy.discard
        note(self.cell.name)

    def inside(self, value: float) -> float:
        """Keep a worked-out value valid: momentum below 1; lr is free."""
        low, high = self.rule.min, self.rule.max
        if self.cell.name == "lr":
            return value
        if high is not None and value > high:
            return high
        return low if low is not None and value < low else value

    def ready(self, group: Group, value: Any) -> None:
        """Make what the optimizer needs for a new value, before it is written."""
        if self.cell.key == "momentum" and value > 0:
            _make_momentum_buffers(self.optimizer(), group)

    def base(self, group: Group) -> float:
        """The value from which the schedule is reckoned; 0 where there is none."""
        optimizer = self.optimizer()
        found: Any = group.get("initial_lr") if self.cell.name == "lr" else None
        if found is None and optimizer is not None:
            found = getattr(optimizer, "defaults", {}).get(self.cell.key)
            if self.cell.index is not None and isinstance(found, (tuple, list)):
                found = found[self.cell.index]
        return float(found) if hasattr(found, "__float__") else 0.0

    def _shares(self) -> list[float]:
        """How the groups stand to each other when all are 0: a warm-up from 0, or an edit."""
        groups = self.groups()
        initial: list[float] = []
        if self.cell.name == "lr" and self.drivers.driving(self.cell):
            initial = [self.base(group) for group in groups if "initial_lr" in group]
        return self._edits.shares(len(groups), initial)


def _make_momentum_buffers(optimizer: Any, group: Group) -> None:
    """RMSprop makes its momentum buffers at a parameter's first step and never again."""
    if type(optimizer).__name__ != "RMSprop":
        return
    for parameter in group["params"]:
        state = optimizer.state.get(parameter)
        if state and "momentum_buffer" not in state:
            state["momentum_buffer"] = state["square_avg"].clone().zero_()
