"""Values that nobody asked for and that stay: people are told, once a knob.

A drift is a row as soon as it is seen. Whether it is a schedule of the loop's own or somebody's
hand shows some steps later: a schedule has written again by then, and nobody is warned of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from it2nb.core.readable import told

if TYPE_CHECKING:
    from it2nb.pytorch.steered import SteeredOptimizer

#: Optimizer steps for which a value has to stand until people are told of it.
STANDS_STEPS = 10
#: No step is this late.
NEVER = 2**62


class Written(NamedTuple):
    """One value that something else wrote."""

    name: str
    at: int
    before: Any
    found: Any
    by: str
    step: int


class Foreign:
    """What something else wrote into the groups of one optimizer. Training thread."""

    def __init__(self) -> None:
        #: From this step of the optimizer on there is something to look at.
        self.due = NEVER
        self._waiting: dict[str, Written] = {}
        self._told: set[str] = set()

    def note(self, written: Written, steps: int) -> None:
        """Remember a value that was found after `steps` steps of the optimizer."""
        if written.name not in self._told and written.name not in self._waiting:
            self._waiting[written.name] = written
            self.due = steps + STANDS_STEPS

    def look(self, steered: SteeredOptimizer) -> None:
        """Tell of those that still stand."""
        waiting, self._waiting, self.due = self._waiting, {}, NEVER
        for name, each in waiting.items():
            setting = steered.settings[name]
            groups = setting.groups()
            if each.at >= len(groups) or setting.cell.read(groups[each.at]) != each.found:
                continue
            self._told.add(name)
            shown = f"{steered.prefix}{name}"
            if len(groups) > 1:
                shown += f"[{each.at}]"
            steered.session.warn(
                f"{shown} is {told(each.found)} since step {each.step:,}, and no request asked "
                f"for it: {each.by} or another cell wrote it over {told(each.before)}; "
                f"set({shown!r}, ...) puts another value in force"
            )
