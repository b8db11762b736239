"""What holds for one knob or action, and which of them a request concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import KnobError, Rejected
from it2nb.core.wire import SOURCES

if TYPE_CHECKING:
    from it2nb.core.actions import ActionSpec
    from it2nb.core.session import Session


@dataclass(slots=True)
class Rule:
    """What holds for one knob or action."""

    locked_for: frozenset[str] = frozenset()
    lock_reason: str = ""
    locked_until: int | None = None
    hidden: bool = False
    confirm: bool = False
    approval_for: frozenset[str] = frozenset()
    max_change: float | None = None
    cooldown: int | None = None
    limits_for: frozenset[str] = frozenset(SOURCES)

    def sentences(self) -> list[str]:
        """What is set, to be read after the name that it is set for."""
        said = []
        if self.locked_for:
            who = "" if self.locked_for == set(SOURCES) else f" for {listed(self.locked_for)}"
            until = f" until step {self.locked_until}" if self.locked_until is not None else ""
            why = f" ({self.lock_reason})" if self.lock_reason else ""
            said.append(f"is locked{who}{until}{why}")
        if self.hidden:
            said.append("is hidden: only Python may use it")
        if self.confirm:
            said.append("is asked about before it is sent")
        if self.approval_for:
            said.append(f"needs a person's approval when {listed(self.approval_for)} asks")
        if self.max_change is not None:
            said.append(f"may change by a factor of {self.max_change:g} at most")
        if self.cooldown is not None:
            said.append(f"may change once in {self.cooldown} steps")
        return said

    def describe(self) -> dict[str, Any]:
        """What is set, as JSON."""
        said: dict[str, Any] = {}
        if self.locked_for:
            said["locked_for"] = sorted(self.locked_for)
            said["lock_reason"] = self.lock_reason
            said["locked_until"] = self.locked_until
        for name in ("hidden", "confirm"):
            if getattr(self, name):
                said[name] = True
        if self.approval_for:
            said["approval_for"] = sorted(self.approval_for)
        for name in ("max_change", "cooldown"):
            if getattr(self, name) is not None:
                said[name] = getattr(self, name)
        return said


def listed(sources: Iterable[str]) -> str:
    """Sources, in words."""
    return ", ".join(sorted(sources))


def overlap(one: str, other: str) -> bool:
    """Whether two names concern the same setting: ``lr`` covers ``lr[0]``, and is touched by it."""
    return one == other or one.startswith(f"{other}[") or other.startswith(f"{one}[")


def asked_of(spec: ActionSpec, payload: Mapping[str, Any]) -> dict[str, Any]:
    """The knobs and values that a request asks for."""
    if spec.knobs is not None:
        return spec.knobs(payload)
    action = spec.name
    if action == "set_knob" and isinstance(payload.get("name"), str):
        return {payload["name"]: payload.get("value")}
    if action == "batch" and isinstance(payload.get("set"), dict):
        return {str(name): value for name, value in payload["set"].items()}
    return {}


def knobs_of(spec: ActionSpec, payload: Mapping[str, Any], session: Session) -> list[str]:
    """The names of the knobs that a request concerns, their own ones."""
    asked = list(asked_of(spec, payload))
    if spec.name == "set_mode":
        asked = [str(payload.get("name"))]
    names = []
    for name in asked:
        try:
            names.append(session.knobs[name].name)
        except KnobError:
            names.append(name)
    return names


def too_far(knob: Any, value: Any, factor: float) -> str | None:
    """Say that a value is farther than this factor from the present one; None when it is not."""
    try:
        new = knob.coerce(value).value
        old = knob.value
    except Rejected:
        return None  # the handler says what is wrong with it
    if isinstance(new, bool) or not isinstance(new, (int, float)) or not old:
        return None
    ratio = abs(new / old)
    if 1 / factor <= ratio <= factor * (1 + 1e-12) and (new > 0) is (old > 0):
        return None
    return f"{knob.name} may change by a factor of {factor:g} at most: {old!r} to {new!r} is more"
