"""What an edit came to: the values that the next update used, group by group.

A request says ``lr`` = 3e-4. What the update then used depends on the schedule, on the ratios of
the groups and on modes. It is written down when it is in force, so that the steered run can be
written as plain code (`code.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.recording import RESTORES
from it2nb.core.wire import EFFECTIVE
from it2nb.pytorch.past import live_of
from it2nb.pytorch.places import leaves
from it2nb.pytorch.switchboard import switchboard

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: With more groups than this their values are not written down.
MAX_GROUPS = 64
#: What is usual for a slot that `SteeredOptimizer.state_dict` leaves out.
_USUAL: Mapping[str, Any] = {
    "mode": "rescale", "held": None, "factor": 1.0, "scaled": 1.0, "pending": None,
}  # fmt: skip
#: Requests after which nothing has to be looked at.
_OTHERS = frozenset(
    {"pause", "resume", "stop", "note", "set_context", "evaluate", "save_checkpoint",
     "list_checkpoints", "fork"}
)  # fmt: skip

Slot = Mapping[str, Any]
State = dict[str, dict[str, dict[str, Any]]]


class InForce:
    """Writes an ``in_force`` row for each optimizer that edits reached. Training thread.

    The row holds the optimizer's name, the number of the update, and for each hyper-parameter
    that was edited its value in each group and how it came to be there:

    ======== ================================================================================
    none     nobody asked for this group
    set      it stands there, until somebody writes again
    scaled   so it does, and the rest of the schedule was multiplied by the same factor
    lent     only during the update; from now on what stands there is multiplied during each
    held     during each update, whatever the schedule says
    once     only during this update
    ======== ================================================================================

    Before that, at the control point: ``freed`` groups are no longer held or multiplied, the
    schedules of ``unscaled`` ones were divided by that factor, and ``factor`` is by which what
    stands there is multiplied from then on.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[str, State] = {}
        self._now: dict[str, State] = {}
        self._values: dict[str, dict[str, list[Any]]] = {}
        self._restored: set[str] = set()
        self._last: ActionHandle | None = None
        session.before_change(self._arm)

    def _arm(self, handle: ActionHandle) -> None:
        """A request that may edit an optimizer is about to be carried out."""
        self._after_restore()
        if handle.action.type in _OTHERS:
            return
        self._last = handle
        board = switchboard()
        for steered in list(board.steered.values()):
            optimizer = steered.optimizer()
            if steered.session is not self._session or optimizer is None:
                continue
            if len(optimizer.param_groups) <= MAX_GROUPS:
                self._known.setdefault(steered.name, steered.state_dict())
                self._values.setdefault(steered.name, _written_at_once(steered))
                board.onlookers[id(optimizer)] = self

    def _after_restore(self) -> None:
        """The run went back: whatever is held or multiplied in that state is told anew."""
        last, self._last = self._last, None
        if last is None or last.action.type not in RESTORES or last.outcome not in EFFECTIVE:
            return
        for steered in list(switchboard().steered.values()):
            if steered.name in self._known and steered.session is self._session:
                self._known[steered.name] = steered.state_dict()
                self._restored.add(steered.name)

    def before(self, steered: Any) -> None:
        """An update begins, and its edits are not worked out yet."""
        self._after_restore()
        self._now[steered.name] = steered.state_dict()

    def after(self, steered: Any) -> None:
        """The edits are in force."""
        session = self._session
        optimizer = steered.optimizer()
        switchboard().onlookers.pop(id(optimizer), None)
        known, now = self._known.pop(steered.name, {}), self._now.pop(steered.name, {})
        then = steered.state_dict()
        values = self._values.pop(steered.name, {})
        anew = steered.name in self._restored
        self._restored.discard(steered.name)
        cells: dict[str, Any] = {}
        for name, setting in steered.settings.items():
            groups = setting.groups()
            states: list[tuple[Slot, Slot, Slot]] = [
                (_slot(known, name, at), _slot(now, name, at), _slot(then, name, at))
                for at in range(len(groups))
            ]
            how = [_how(*each, anew) for each in states]
            factors = [_new_factor(*each, anew) for each in states]
            if name in values:
                before = values[name]
                how = ["none" if v == before[i] else "set" for i, v in enumerate(setting.values())]
            freed = [_is_freed(*each) for each in states]
            if any(each != "none" for each in how) or any(freed) or any(factors):
                cells[name] = {
                    "values": [setting.cell.read(group) for group in groups],
                    "how": how,
                    "freed": freed,
                    "unscaled": [_unscaled(*each) for each in states],
                    "factor": factors,
                    "drivers": self._drivers(setting),
                }
        if cells:
            named = {id(each): name for name, each in live_of(session).optimizers.items()}
            session.emit(
                "in_force",
                {
                    "optimizer": named.get(id(optimizer), steered.name),
                    "update": session.step_count + 1,
                    "cells": cells,
                },
            )

    def _drivers(self, setting: Any) -> dict[str, list[str]]:
        """Name the schedulers that drive a value, with the classes of their leaves."""
        named = {id(each): name for name, each in live_of(self._session).schedulers.items()}
        return {
            named.get(id(each), type(each).__name__): [type(leaf).__name__ for leaf in leaves(each)]
            for each in setting.drivers.driving(setting.cell)
        }


def _written_at_once(steered: Any) -> dict[str, list[Any]]:
    """Return the values of what never waits for the step: switches, whole numbers, choices."""
    return {
        name: setting.values()
        for name, setting in steered.settings.items()
        if setting.rule.dtype != "float"
    }


def _how(was: Slot, now: Slot, then: Slot, anew: bool) -> str:
    """Tell how a value came into force, from the slot's state before it was asked for, before
    it was worked out, and afterwards.
    """
    if _of(now, "held") is not None:
        return "held" if anew or _of(now, "held") != _of(was, "held") else "none"
    if _of(now, "pending") is None:
        return "none"
    if _of(now, "mode") == "release":
        return "once"
    if _of(then, "factor") != _of(now, "factor"):
        return "lent"
    return "scaled" if _of(then, "scaled") != _of(now, "scaled") else "set"


def _is_freed(was: Slot, now: Slot, then: Slot) -> bool:
    """Whether a value is no longer held, or no longer multiplied in the same way."""
    if _of(was, "held") is not None and _of(now, "held") is None:
        return True
    return _of(was, "factor") != _of(now, "factor") or _unscaled(was, now, then) is not None


def _unscaled(was: Slot, now: Slot, then: Slot) -> float | None:
    """By which the schedule had been multiplied before it was given back; None if it was not."""
    scaled: float = _of(was, "scaled")
    return scaled if scaled != 1.0 and _of(now, "scaled") == 1.0 else None


def _new_factor(was: Slot, now: Slot, then: Slot, anew: bool) -> float | None:
    """By which a value is multiplied from the control point on, where that is new."""
    factor: float = _of(now, "factor")
    return factor if factor != 1.0 and (anew or factor != _of(was, "factor")) else None


def _slot(state: State, name: str, at: int) -> Slot:
    return state.get(name, {}).get(str(at), {})


def _of(state: Slot, key: str) -> Any:
    return state.get(key, _USUAL[key])
