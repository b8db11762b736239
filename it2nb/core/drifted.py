"""Drifts in the record: values that something else than a request put into a knob."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from it2nb.core.wire import Event


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
