"""Values that something else than a request put into a knob, as the record tells them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from it2nb.core.session import Session
    from it2nb.core.wire import Event

#: Rows that tell a knob's value.
VALUE_TYPES: tuple[str, ...] = (
    "knobs_registered", "knob_changed", "knob_drifted", "knobs_ended",
)  # fmt: skip
#: Knobs that a run tells the last values of.
MAX_ENDED = 500


def is_in_force(event: Event) -> bool:
    """Whether a ``knob_drifted`` row tells of a value that was used from then on."""
    return event.type == "knob_drifted" and event.payload.get("kept") is not True


def drifted_names(payload: Mapping[str, Any]) -> list[str]:
    """Name the knobs that a drift may be of; what people call it is the last.

    The first group stands for all of them, ``lr`` and ``lr[0]``.
    """
    name, group = str(payload.get("name")), payload.get("group")
    if group is None:
        return [name]
    return [f"{name}[{group}]"] + ([name] if group == 0 else [])


def told_values(event: Event) -> dict[str, Any]:
    """Return the values that one row of `VALUE_TYPES` tells, by name of the knob."""
    payload = event.payload
    if event.type == "knobs_registered":
        return {str(each.get("name")): each.get("value") for each in payload.get("knobs") or []}
    if event.type == "knobs_ended":
        return dict(payload.get("values") or {})
    if event.type == "knob_drifted":
        if not is_in_force(event):
            return {}
        return dict.fromkeys(drifted_names(payload), payload.get("found"))
    return {str(payload.get("name")): payload.get("value")}


def tell_ended(session: Session) -> None:
    """Write the values at the end of the run that no row has told. Before it is closed.

    A schedule moves a knob at each step, its own or the loop's, and a row for each would be a
    second journal: it is told that it does, and where it came to.
    """
    told: dict[str, Any] = {}
    for event in session.journal.tail(len(session.journal), VALUE_TYPES):
        told |= told_values(event)
    values = dict(_moved(session, told))
    if values:
        session.emit("knobs_ended", {"values": values})


def _moved(session: Session, told: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
    for view in session.knobs.views()[:MAX_ENDED]:
        if view.value is not None and view.name in told and view.value != told[view.name]:
            yield view.name, view.value
