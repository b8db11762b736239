"""The drift watch: a value that something else changed is told.

For some steps after an edit its value is compared with what it should be (`working`). Where no
edit is watched and no scheduler drives the value, the first change is told, and later ones when
it had stood still for as long: lr is looked at before every step, the others now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from it2nb.pytorch.setting import Setting

#: Optimizer steps after an edit during which its value is watched, and for which a value has to
#: stand still until another change of it is told.
WATCHED_STEPS = 50
#: Optimizer steps between two looks at what is not lr.
LOOK_STEPS = 64
#: Such rows of one group of one setting in a run.
MAX_DRIFTS = 20


class Tell(Protocol):
    """Where a setting reports to."""

    def warn(self, text: str) -> None:
        """Tell people something, once."""

    def note(self, text: str) -> None:
        """Write down something worth knowing, which is no warning."""

    def drift(
        self,
        name: str,
        at: int,
        expected: Any,
        found: Any,
        by: str,
        kept: bool | None,
        mode: str,
        since: int | None = None,
    ) -> None:
        """Something else changed the value of group `at`.

        Parameters
        ----------
        name : str
            Of the hyper-parameter, ``"lr"``.
        at : int
            Index of the parameter group.
        expected, found : float, int, bool or str
            What stood there before, or should have, and what does.
        by : str
            Class of a scheduler, ``"load_state_dict"`` or ``"the loop"``.
        kept : bool, optional
            Whether the value asked is in force all the same; None when none was asked.
        mode : str
            Of the setting.
        since : int, optional
            It changed after this optimizer step, by the optimizer's own count; since the last
            step by default.
        """


class Standing:
    """What stands in the groups of a setting that is looked at now and then. Training thread."""

    def __init__(self) -> None:
        self._seen: list[Any] = []
        self._steps = 0

    def look(self, setting: Setting) -> None:
        """Compare with the last look, and tell what somebody else changed."""
        since, self._steps = self._steps, setting.steps
        before, self._seen = self._seen, [setting.cell.raw(each) for each in setting.groups()]
        if before == self._seen or len(before) != len(self._seen):
            return
        for at, (was, now) in enumerate(zip(before, self._seen, strict=True)):
            if was is now or was == now:
                continue
            slot = setting.slot(at)
            stood_still = setting.steps - slot.changed_at > LOOK_STEPS
            slot.changed_at = setting.steps
            if stood_still and not slot.stands(setting.groups()[at]):
                _tell(setting, at, _plain(was), since)

    def forget(self) -> None:
        """Begin anew: the values come from elsewhere, or were told of."""
        self._seen = []


def notice(setting: Setting, changed: Sequence[int]) -> None:
    """Tell of groups in which somebody wrote since the last step. Training thread."""
    for at in changed:
        slot = setting.slots[at]
        before = slot.seen if type(slot.seen) is float else slot.known
        _tell(setting, at, before, None)


def _tell(setting: Setting, at: int, before: Any, since: int | None) -> None:
    """Write one row, unless a scheduler drives the value or an edit is watched."""
    slot = setting.slot(at)
    found = setting.cell.read(setting.groups()[at])
    slot.known = found
    if not slot.is_left_alone or slot.drifts >= MAX_DRIFTS or found == before:
        return
    if setting.rule.modes and setting.has_driver():
        return
    slot.drifts += 1
    setting.tell.drift(
        setting.cell.name, at, before, found, "the loop", kept=None, mode=slot.mode, since=since
    )


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


@dataclass(slots=True)
class Watch:
    """What the value of one group should be, and until when that is looked at.

    Attributes
    ----------
    expected : any
    until : int
        Steps of the optimizer; 0 while nothing is watched.
    scheduled : bool
        A known scheduler was driving the value at the edit, so that it may change it.
    loaded : bool
        The optimizer's state was loaded since.
    """

    expected: Any = None
    until: int = 0
    scheduled: bool = False
    loaded: bool = False

    def start(self, expected: Any, steps: int, *, scheduled: bool = False) -> None:
        """Watch from now on, `steps` being the steps taken so far."""
        self.expected = expected
        self.until = steps + WATCHED_STEPS
        self.scheduled = scheduled
        self.loaded = False

    def stop(self) -> None:
        """Watch no longer."""
        self.until = 0
