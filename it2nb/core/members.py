"""What a request did to the parameter groups behind one knob."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any, TypeGuard

from it2nb.core.readable import told

#: Groups that a result's data tells, and that its text spells out.
MAX_MEMBERS = 16
SPELLED_OUT = 4


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what became of several groups, for a result's data; None when none moved.

    Parameters
    ----------
    before, after : mapping of str to plain value
        By name of the group.

    Returns
    -------
    dict or None
        ``groups``: how many there are; ``ratios_kept``; ``members``: ``before`` and ``after`` of
        the first 16, by name.
    """
    if len(after) < 2 or before.keys() != after.keys() or before == after:
        return None
    listed = list(after)[:MAX_MEMBERS]
    return {
        "groups": len(after),
        "ratios_kept": _keep_ratios(list(before.values()), list(after.values())),
        "members": {name: {"before": before[name], "after": after[name]} for name in listed},
    }


def members_text(name: str | None, data: Any) -> str:
    """Write it for people; empty for data of anything else.

    ``"2 groups, ratios kept: lr[0] 0.01 → 0.02, lr[1] 0.07 → 0.14"``.
    """
    members = data.get("members") if isinstance(data, Mapping) else None
    if not isinstance(members, Mapping) or not {"groups", "ratios_kept"} <= data.keys():
        return ""
    spelled = [
        f"{name or ''}[{label}] {_short(each.get('before'))} → {_short(each.get('after'))}"
        for label, each in list(members.items())[:SPELLED_OUT]
        if isinstance(each, Mapping)
    ]
    if isinstance(data["groups"], int) and data["groups"] > SPELLED_OUT:
        spelled.append("...")
    kept = ", ratios kept" if data["ratios_kept"] else ""
    return f"{data['groups']} groups{kept}: {', '.join(spelled)}"


def is_batch(data: Any, type: str) -> TypeGuard[list[Mapping[str, Any]]]:
    """Whether the data is that of ``batch``, which a session may have replaced."""
    return (
        type == "batch"
        and isinstance(data, list)
        and all(isinstance(each, Mapping) and "name" in each for each in data)
    )


def batch_lines(data: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say of each knob of a batch what became of it and of the groups behind it; see `is_batch`.

    ``"lr 0.01 → 0.02, 2 groups, ratios kept: lr[0] 0.01 → 0.02, lr[1] 0.07 → 0.14"``.
    """
    return [_knob_text(each) for each in data]


def _knob_text(each: Mapping[str, Any]) -> str:
    after = each.get("after")
    said = f"{each['name']} {told(each.get('before'))} → {told(after)}"
    asked = each.get("requested")
    if each.get("status") == "clamped" and asked != after:
        said += f", asked {told(asked)}"
    groups = members_text(each["name"], each)
    if groups:
        said += f", {groups}"
    return said + (f" ({each['reason']})" if each.get("reason") else "")


def _keep_ratios(before: list[Any], after: list[Any]) -> bool:
    if not all(type(each) is float for each in (*before, *after)):
        return False
    first = next((at for at, each in enumerate(before) if each), None)
    if first is None:
        return False
    factor = after[first] / before[first]
    return all(
        isclose(now, was * factor, rel_tol=1e-6) for was, now in zip(before, after, strict=True)
    )


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
