"""Working out edits: what is asked, against what the step that begins would otherwise use."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.readable import told
from it2nb.pytorch import places
from it2nb.pytorch.edits import in_proportion
from it2nb.pytorch.groups import Group
from it2nb.pytorch.schedulers import same_lr
from it2nb.pytorch.sharing import once_each
from it2nb.pytorch.slot import Slot

if TYPE_CHECKING:
    from it2nb.pytorch.setting import Setting

#: An lr this far below the initial one is a rounded 0: nothing is ever divided by it.
ZERO = 1e-12


def before_step(setting: Setting) -> None:
    """Bring what is pending or held into force. Training thread, just before a step."""
    groups = setting.groups()
    for at in [each for each in setting.slots if each >= len(groups)]:
        del setting.slots[at]
    for at, slot in setting.slots.items():
        if slot.lent is not None:
            slot.give_back(groups[at])  # the last step raised before it was over
        if slot.is_early and setting.steps > 0:
            _look_again(setting, at, groups[at], slot)
        if slot.watch.until:
            _watch(setting, at, groups[at], slot)
    if any(slot.pending is not None for slot in setting.slots.values()):
        _work_out(setting, groups)
    lent = [
        at
        for at, slot in setting.slots.items()
        if slot.next is not None or slot.held is not None or slot.factor != 1.0
    ]
    for at in once_each(setting.cell, groups, lent):
        _lend(setting, at, groups[at], setting.slots[at])
    for at in lent:
        setting.slots[at].next = None


def put_now(setting: Setting, at: int) -> None:
    """Write what is pending into a group at once: no step hook will come, or nothing drives it."""
    group, slot = setting.groups()[at], setting.slots[at]
    value, slot.pending = slot.pending, None
    driving = setting.drivers.driving(setting.cell)
    would = setting.cell.read(group)
    setting.ready(group, value)
    if driving and would:
        factors = {at: value / would}
        if places.scale(driving, setting.cell, setting.groups(), factors, setting.rule.max):
            slot.scaled *= factors[at]
    slot.write(group, value)
    slot.watch.start(value, setting.steps)


def unscale(setting: Setting, groups: list[Group], back: Mapping[int, float]) -> None:
    """Give the schedulers their own values back."""
    driving = setting.drivers.driving(setting.cell)
    done = places.scale(driving, setting.cell, groups, back)
    for at, factor in back.items():
        slot = setting.slots[at]
        if done:
            slot.scaled = 1.0
        else:
            slot.factor = factor
    for at in once_each(setting.cell, groups, back if done else ()):
        setting.cell.write(groups[at], setting.cell.read(groups[at]) * back[at])


def _work_out(setting: Setting, groups: list[Group]) -> None:
    """Turn what is pending into something lasting; once for each edit."""
    together, setting.together = setting.together, None
    waiting = [
        at
        for at, slot in setting.slots.items()
        if slot.pending is not None and not _settle(setting, at, groups[at], slot)
    ]
    if not waiting:
        return
    if setting.drivers.driving(setting.cell):
        setting.drivers.catch_up()
    driving = setting.drivers.driving(setting.cell)
    targets = _targets(setting, groups, waiting, together)
    factors: dict[int, float] = {}
    for at in waiting:
        slot, target = setting.slots[at], targets[at]
        if abs(slot.factor) < ZERO:
            slot.factor = 1.0  # it was set to 0: what the schedule has by now counts again
        would = _would(setting, groups, at)
        once, slot.pending, slot.once = slot.once, None, False
        is_overwritten = slot.written is not None and slot.written == target
        slot.forget_writing()
        slot.asked = slot.next = target
        if once:
            continue
        base = setting.base(groups[at])
        if abs(would) > ZERO * abs(base):
            factors[at] = target / would
            slot.watch.start(target, setting.steps, scheduled=bool(driving))
            if not driving:
                _tell_loop(setting, at, target, would, is_overwritten)
        elif driving and places.multiplies(driving):
            # From 0 such a schedule never moves again: it goes on from the value asked.
            slot.next = None
            slot.write(groups[at], target)
        else:
            if base:
                factors[at] = target / base
            _tell_zero(setting, target, base, driving)
    if factors:
        _scale(setting, groups, factors, driving)


def _settle(setting: Setting, at: int, group: Group, slot: Slot) -> bool:
    """Whether a pending value was written already, and still stands: then it is in force.

    When somebody wrote over it in between, and may go on to, something drives this value: what
    stands there now is what the step would otherwise use, whether it was reckoned from our value
    or not. A single write, by another cell say, is told: the request was promised to this step.
    """
    if slot.written is None or slot.written != slot.pending or slot.once:
        return False
    if slot.stands(group):
        slot.watch.start(slot.written, setting.steps)
        slot.pending = None
        # Asked before the first step: the loop had no chance to show that it writes too.
        slot.is_early = setting.steps == 0
        return True
    if setting.drivers.driving(setting.cell):
        return False
    setting.drivers.discover()
    if setting.drivers.driving(setting.cell):
        return False
    found, target = setting.cell.read(group), slot.pending
    origin = slot.origin.item() if hasattr(slot.origin, "item") else slot.origin
    # What was there before, once more: a loop that writes one constant, which shows no rhythm.
    if found == origin or setting.rhythm.may_begin(setting.steps):
        slot.loop = True
        return False
    slot.pending = None
    setting.ready(group, target)
    slot.write(group, target)
    _report(setting, at, slot, target, found, kept=True)
    slot.watch.start(target, setting.steps)
    return True


def _look_again(setting: Setting, at: int, group: Group, slot: Slot) -> None:
    """An edit from before the first step: does the loop write this value at each step?

    Then it reckons either from what it finds (and has followed the edit), or by a formula of
    its own (and has not): its value is nearer to the one or to the other.
    """
    slot.is_early = False
    if slot.written is None or slot.stands(group) or setting.drivers.driving(setting.cell):
        return
    found, written = setting.cell.read(group), slot.written
    origin = slot.origin.item() if hasattr(slot.origin, "item") else slot.origin
    slot.forget_writing()
    slot.loop = slot.told = True
    _report(setting, at, slot, written, found, kept=True)
    if slot.mode != "rescale" or not (found and origin and written):
        return
    if abs(math.log(abs(found / origin))) < abs(math.log(abs(found / written))):
        slot.factor = written / origin


def _would(setting: Setting, groups: list[Group], at: int) -> float:
    """What the step that begins would use."""
    return setting.inside(setting.cell.read(groups[at]) * setting.slots[at].factor)


def _targets(
    setting: Setting, groups: list[Group], waiting: list[int], together: tuple[Any, int] | None
) -> dict[int, float]:
    """What each group is to use: groups asked together keep the ratios of this moment."""
    targets = {at: setting.slots[at].pending for at in waiting}
    if together is None or together[1] not in targets:
        return targets
    value, reference = together
    divisor = _would(setting, groups, reference)
    if not divisor:
        return targets
    for at in targets:
        would = _would(setting, groups, at)
        if at != reference and would:
            targets[at] = setting.inside(in_proportion(value, would, divisor))
    return targets


def _scale(
    setting: Setting, groups: list[Group], factors: Mapping[int, float], driving: list[Any]
) -> None:
    """Multiply the rest of the schedule, in the schedulers if that can be done.

    By 0 they are never multiplied: nothing would lead back.
    """
    below = None if setting.cell.name == "lr" else setting.rule.max
    lasting = {at: factor for at, factor in factors.items() if abs(factor) >= ZERO}
    done = bool(driving and lasting) and places.scale(driving, setting.cell, groups, lasting, below)
    firsts = set(once_each(setting.cell, groups, factors))
    for at, factor in factors.items():
        slot = setting.slots[at]
        if not done or at not in lasting:
            slot.factor *= factor
            continue
        slot.scaled *= factor
        if setting.cell.read(groups[at]) != 0 and slot.factor == 1.0:
            setting.ready(groups[at], slot.next)
            setting.cell.write(groups[at], slot.next)
            slot.next = None
        elif slot.factor != 1.0 and at in firsts:
            setting.cell.write(groups[at], setting.cell.read(groups[at]) * factor)
    top = places.peak(driving, groups) if done and setting.cell.name == "lr" else 0.0
    if setting.rule.max is not None and top > setting.rule.max:
        setting.tell.warn(
            f"this edit scales the schedule: its largest lr becomes {top:g}; "
            f"mode hold keeps one value instead"
        )


def _lend(setting: Setting, at: int, group: Group, slot: Slot) -> None:
    """Let a value stand in the group for the step that begins."""
    target, slot.next = slot.next, None
    if target is None and slot.held is not None:
        target = slot.held
        if slot.stands(group):
            return
        if slot.written is not None:
            # Held where nothing else wrote, until now.
            _report(setting, at, slot, slot.held, setting.cell.read(group), kept=True)
            slot.loop = not setting.drivers.driving(setting.cell)
            slot.forget_writing()
    if target is None:
        target = setting.inside(setting.cell.read(group) * slot.factor)
    setting.ready(group, target)
    slot.lend(group, target)


def _watch(setting: Setting, at: int, group: Group, slot: Slot) -> None:
    """Compare with what was expected, for some steps after an edit."""
    watch = slot.watch
    if setting.steps >= watch.until or slot.pending is not None or slot.held is not None:
        watch.stop()
        return
    if slot.stands(group):
        return
    found = setting.cell.read(group)
    if watch.loaded:
        if found != setting.cell.as_stored(group, watch.expected):
            _report(setting, at, slot, watch.expected, found, by="load_state_dict")
        watch.stop()
    elif watch.scheduled:
        expected = setting.drivers.last(setting.cell, at)
        if expected is not None and not same_lr(expected, found):
            _report(setting, at, slot, expected, found, by="the loop")
    elif slot.factor == 1.0 and found != setting.cell.as_stored(group, watch.expected):
        _report(setting, at, slot, watch.expected, found)
        slot.forget_writing()


def _tell_loop(
    setting: Setting, at: int, target: float, would: float, is_overwritten: bool
) -> None:
    """Tell once that the loop writes this value itself, and that the edit is kept all the same.

    A row about a drift only where it wrote over the edit: what was before, `drift` has told.
    """
    if setting.slots[at].told:
        return
    if is_overwritten:
        setting.slots[at].told = True
        _report(setting, at, setting.slots[at], target, would, kept=True)
        return
    if any(slot.told for slot in setting.slots.values()):
        return
    setting.slots[at].told = True
    setting.tell.note(
        f"{setting.cell.name} is scheduled by the loop, or by a scheduler that it2nb doesn't know: "
        f"{told(target)} is in force in the place of {would:g}, and what is written later keeps "
        f"its ratio to it; mode hold keeps {told(target)}"
    )


def _tell_zero(setting: Setting, target: float, base: float, driving: list[Any]) -> None:
    who = type(driving[0]).__name__ if driving else "the loop"
    rest = f"the rest of the schedule is scaled to an initial value of {target:g}"
    setting.tell.warn(
        f"{setting.cell.name} was 0 under {who}: {target:g} holds for one step, and "
        f"{rest if base else 'then the schedule goes on'}; mode hold keeps {target:g}"
    )


def _report(
    setting: Setting,
    at: int,
    slot: Slot,
    expected: Any,
    found: Any,
    *,
    kept: bool = False,
    by: str | None = None,
) -> None:
    slot.watch.stop()
    if by is None:
        if not setting.drivers.driving(setting.cell):
            setting.drivers.discover()
        by = setting.drivers.who(setting.cell, at, found)
    setting.standing_values.forget()
    setting.tell.drift(setting.cell.name, at, expected, found, by, kept, slot.mode)
