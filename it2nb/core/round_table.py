"""Rounds in columns: what was planned for each, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

#: Rows that tell of a round.
ROUND_TYPES = ("round_started", "round_finished", "agent_reflection")

_COLUMNS = (
    "round", "status", "metric", "value", "best", "improved", "steps", "took_s", "seed",
    "planner", "plan", "reason", "settings", "reflection", "error",
)  # fmt: skip


def round_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Put the rows of `ROUND_TYPES` into one table; columns as in `it2nb.frames`."""
    found: dict[int, dict[str, Any]] = {}
    for row in rows:
        payload = row["payload"]
        number = payload.get("round")
        if row["type"] == "round_started":
            plan = payload.get("plan") or {}
            found[number] = {
                **dict.fromkeys(_COLUMNS), "round": number, "status": "running", "steps": 0,
                "seed": payload.get("seed") or 0, "planner": payload.get("planner"),
                "plan": plan.get("settings"), "reason": plan.get("reason") or None,
                "metric": (payload.get("goal") or {}).get("metric"),
            }  # fmt: skip
        elif number not in found:
            continue
        elif row["type"] == "round_finished":
            found[number] |= {name: payload[name] for name in _COLUMNS if name in payload}
        else:
            said = payload.get("reflection")
            found[number]["reflection"] = None if said is None else str(said)
    table = list(found.values())
    for each in table:
        for name in ("value", "best", "took_s"):
            each[name] = math.nan if each[name] is None else each[name]
    return {name: [each[name] for each in table] for name in _COLUMNS}
