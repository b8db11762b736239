"""What stands in the parameter groups when steering lets go of an optimizer.

During a run a value may be lent: it stands in its group while a step uses it, and only then. A
``step()`` after the run would use what somebody else wrote there. So where no scheduler drives
the value, the one in force stays. Under a scheduler the schedule has its own back, and that is
told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from it2nb.core.readable import told

if TYPE_CHECKING:
    from it2nb.pytorch.setting import Setting
    from it2nb.pytorch.slot import Slot
    from it2nb.pytorch.steered import SteeredOptimizer

#: Groups that a line for people spells out.
SPELLED_OUT = 4


@dataclass(frozen=True, slots=True)
class Left:
    """One value that the next step would not have taken from its group.

    Attributes
    ----------
    group : int
        Its index.
    how : str
        ``"held"``, ``"scaled during each step"`` or ``"asked, and used by no step"``.
    in_force : float, int, bool or str
        What the next step would have used.
    found : float, int, bool or str
        What stood in the group.
    """

    group: int
    how: str
    in_force: Any
    found: Any


def leave(steered: SteeredOptimizer) -> None:
    """Let what is in force stay, or tell what the schedule has instead.

    After what was lent has been given back; at the end of a run, by the thread that ends it.
    """
    for setting in steered.settings.values():
        left = list(_differing(setting))
        if not left:
            continue
        driving = setting.drivers.driving(setting.cell)
        if not driving and setting.rule.modes and setting.drivers.discover():
            driving = setting.drivers.driving(setting.cell)
        if driving:
            who = ", ".join(dict.fromkeys(type(each).__name__ for each in driving))
            _tell_given_back(steered, setting, left, who)
            continue
        for each in left:
            group, slot = setting.groups()[each.group], setting.slots[each.group]
            setting.ready(group, each.in_force)
            setting.cell.write(group, each.in_force)
            # The knob goes on to show what stands there.
            slot.reset(group)
            slot.held = None
        _tell_stays(steered, setting, left)


def _differing(setting: Setting) -> list[Left]:
    groups = setting.groups()
    found: list[Left] = []
    for at, slot in sorted(setting.slots.items(), key=lambda each: each[0]):
        how = _how(slot)
        if how is None or at >= len(groups):
            continue
        in_force, stands = setting.value(at), setting.cell.read(groups[at])
        if setting.cell.as_stored(groups[at], in_force) != stands:
            found.append(Left(at, how, in_force, stands))
    return found


def _how(slot: Slot) -> str | None:
    if slot.pending is not None:
        return "asked, and used by no step"
    if slot.held is not None:
        return "held"
    return "scaled during each step" if slot.factor != 1.0 else None


def _tell_given_back(
    steered: SteeredOptimizer, setting: Setting, left: Sequence[Left], who: str
) -> None:
    name = steered.prefix + setting.cell.name
    several, whole = len(setting.groups()) > 1, "them" if len(left) > 1 else "it"
    said = "; ".join(
        f"{f'{name}[{each.group}]' if several else name} was {told(each.in_force)} "
        f"({each.how}), and param_groups holds {told(each.found)} now"
        for each in left[:SPELLED_OUT]
    )
    text = (
        f"{said}{_and_more(left)}: at the end {who} has {whole} back; "
        f"to go on with another value, write it into param_groups, or hold it in the next run"
    )
    steered.session.alert(text)
    _emit(steered, setting, left, text, "warning", stays=False)


def _tell_stays(steered: SteeredOptimizer, setting: Setting, left: Sequence[Left]) -> None:
    name = steered.prefix + setting.cell.name
    several = len(setting.groups()) > 1
    said = "; ".join(
        f"{f'{name}[{each.group}]' if several else name} stays {told(each.in_force)} in "
        f"param_groups, where {told(each.found)} stood"
        for each in left[:SPELLED_OUT]
    )
    text = (
        f"{said}{_and_more(left)}: no known scheduler drives it, so what is in force at the end "
        f"stays"
    )
    _emit(steered, setting, left, text, "info", stays=True)


def _and_more(left: Sequence[Left]) -> str:
    more = len(left) - SPELLED_OUT
    return f"; {more} more groups" if more > 0 else ""


def _emit(
    steered: SteeredOptimizer,
    setting: Setting,
    left: Sequence[Left],
    text: str,
    level: str,
    *,
    stays: bool,
) -> None:
    steered.session.emit(
        "note",
        {
            "text": text,
            "level": level,
            "name": steered.prefix + setting.cell.name,
            "optimizer": steered.name,
            "left": [
                {
                    "group": each.group,
                    "how": each.how,
                    "in_force": each.in_force,
                    "param_groups": each.in_force if stays else each.found,
                }
                for each in left
            ],
        },
    )
