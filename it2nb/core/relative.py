"""Relative requests: a factor or an amount, worked out against the value that is there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import KnobError, Rejected
from it2nb.core.rounds import is_number
from it2nb.core.values import shown

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Keys of ``set_knob`` that stand in the place of ``value``.
RELATIVE = ("factor", "add")
_RELATIVE = frozenset(RELATIVE)


def absolute(action: str, payload: dict[str, Any], session: Session) -> dict[str, Any]:
    """Turn ``{"name", "factor"}`` and ``{"name", "add"}`` into ``{"name", "value"}``.

    At its control point, so that a request that waited meets the value that is there then.

    Parameters
    ----------
    action : str
        Other actions than ``set_knob`` keep their payload.
    payload : dict
    session : Session

    Raises
    ------
    Rejected
        If the factor is no finite number, the knob has no number, or both are given.
    """
    if action != "set_knob" or _RELATIVE.isdisjoint(payload):
        return payload
    given = [key for key in ("value", *RELATIVE) if key in payload]
    if len(given) > 1:
        raise Rejected(f"set_knob takes one of value, factor and add, not {' and '.join(given)}")
    key = given[0]
    by = payload[key]
    if not is_number(by):
        raise Rejected(f"{key}={shown(by)} is not a finite number")
    now = _number(payload.get("name"), key, session)
    try:
        value = now * by if key == "factor" else now + by
    except OverflowError:  # of whole numbers beyond a float's range
        value = math.inf
    if not is_number(value):
        raise Rejected(f"{now!r} {'x' if key == 'factor' else '+'} {by!r} is not finite")
    if isinstance(now, int):
        # A whole number stays one: the nearest.
        value = round(value)
    rest = {name: each for name, each in payload.items() if name != key}
    return {**rest, "value": value}


def _number(name: Any, key: str, session: Session) -> float | int:
    if not isinstance(name, str):
        raise Rejected(f"name={name!r:.60} has to be the name of a knob")
    try:
        now = session.knobs[name].value
    except KnobError as err:
        raise Rejected(str(err)) from err
    if isinstance(now, bool) or not isinstance(now, (int, float)):
        raise Rejected(f"{name} is {now!r:.60}: {key} needs a number; give a value instead")
    return now


def is_relative(payload: Mapping[str, Any]) -> bool:
    """Whether a payload of ``set_knob`` is a factor or an amount."""
    return not _RELATIVE.isdisjoint(payload)
