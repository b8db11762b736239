"""Values and modes of all knobs: read before a change, put back when going back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard
from it2nb.core.knobs import Coerced, Knob

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: name -> {"value": ..., "mode": ...}
KnobValues = dict[str, dict[str, Any]]


def read_knobs(session: Session) -> KnobValues:
    """Read every knob that can be read. Training thread."""
    found: KnobValues = {}
    for name in session.knobs:
        knob = session.knobs[name]
        with guard(f"get of {name}"):
            found[name] = {"value": knob.value, "mode": _mode(knob)}
    return found


def write_knobs(session: Session, saved: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Bring every knob to its saved value that does not have it. Training thread.

    Called after the live objects were restored: a knob that lives in one of them (lr in a
    parameter group) has its value already, and setting it again might change a schedule.

    Returns
    -------
    list of str
        What could not be put back, in words.
    """
    notes: list[str] = []
    # A knob over several groups scales them all; those of one group come after and are exact.
    ordered = sorted(saved, key=lambda name: name in session.knobs and not _is_broad(session, name))
    for name in ordered:
        if name not in session.knobs:
            notes.append(f"the knob {name!r} was saved and is not here: left out")
            continue
        said = _put_back(session.knobs[name], saved[name])
        if said is not None:
            notes.append(said)
    return notes


def changes(before: KnobValues, after: KnobValues) -> dict[str, dict[str, Any]]:
    """Tell which knobs differ: ``{"lr": {"before": 1e-3, "after": 1e-4}}``."""
    return {
        name: {"before": before.get(name, {}).get("value"), "after": now["value"]}
        for name, now in after.items()
        if before.get(name) != now
    }


def _is_broad(session: Session, name: str) -> bool:
    return session.knobs[name].members is not None


def _mode(knob: Knob) -> str | None:
    return knob.get_mode() if knob.get_mode is not None else None


def _put_back(knob: Knob, saved: Mapping[str, Any]) -> str | None:
    value, mode = saved.get("value"), saved.get("mode")
    with guard(f"restore of {knob.name}") as fault:
        if mode is not None and knob.set_mode is not None and mode != _mode(knob):
            knob.set_mode(mode)
        if knob.value == value and type(knob.value) is type(value):
            return None
        # As it was, also where it was outside of the bounds that hold for requests.
        outcome = knob.apply(Coerced(value))
        if outcome.status != "applied":
            return f"{knob.name} could not be put back to {value!r}: {outcome.reason}"
    return f"{knob.name} could not be put back to {value!r}: {fault.error}" if fault else None
