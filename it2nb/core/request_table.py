"""Each request beside its one result: the rows of `journal.requests()`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from it2nb.core.readable import asked_text

#: Characters of a note's text, or of other arguments.
MAX_ASKED = 20_000
_COLUMNS = (
    "action_id", "type", "name", "source", "actor", "requested", "asked", "before", "after",
    "status", "reason", "data", "step", "branch_id", "round", "submitted_at", "wait_s",
)  # fmt: skip


def request_columns(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Join the rows of requests into columns.

    Parameters
    ----------
    rows : iterable of parsed rows
        ``action_submitted``, ``approval_requested`` and ``action_result``, in order of seq.

    Returns
    -------
    dict of str to list
        In the order of submission. Step, branch and round are those of the result, of the
        submission while there is none; `submitted_at` is Unix seconds. `asked` says what a
        request was about that is about no knob (a note's text, a tag), `data` is what came of
        it: metrics, a checkpoint's path, the knobs of a batch.
    """
    table: dict[str, dict[str, Any]] = {}
    for row in rows:
        payload = row["payload"]
        key = str(row["action_id"] or payload.get("id"))
        if row["type"] == "action_submitted":
            table[key] = _submitted(key, row, payload)
        elif row["type"] == "approval_requested":
            if key in table:
                table[key]["status"] = "waiting"
        else:
            entry = table.setdefault(key, _unknown(key))
            _settle(entry, row, payload)
    return {name: [entry[name] for entry in table.values()] for name in _COLUMNS}


def _unknown(key: str) -> dict[str, Any]:
    """Begin the entry of a request whose submission is not among the rows."""
    entry = dict.fromkeys(_COLUMNS)
    return {**entry, "action_id": key, "submitted_at": math.nan, "wait_s": math.nan, "_t": math.nan}


def _submitted(key: str, row: Mapping[str, Any], payload: Mapping[str, Any]) -> dict[str, Any]:
    asked = payload.get("payload")
    asked = asked if isinstance(asked, Mapping) else {}
    name = asked.get("name")
    return {
        **_unknown(key),
        "type": payload.get("type"),
        "name": name if isinstance(name, str) else None,
        "source": row["source"] or payload.get("source"),
        "actor": payload.get("actor"),
        "requested": asked.get("value"),
        "asked": None if name or not asked else asked_text(asked, MAX_ASKED),
        "status": "pending",
        "reason": payload.get("reason"),
        "step": row["step"],
        "branch_id": row["branch_id"],
        "round": row["round"],
        "submitted_at": row["ts"],
        "_t": row["t"],
    }


def _settle(entry: dict[str, Any], row: Mapping[str, Any], payload: Mapping[str, Any]) -> None:
    for name in ("type", "name", "actor", "requested", "before", "after", "data"):
        value = payload.get(name)
        if value is not None:
            entry[name] = value
    if entry["asked"] is None and entry["name"] is None:
        entry["asked"] = payload.get("asked") or None
    entry["source"] = row["source"] or payload.get("source") or entry["source"]
    entry["status"] = payload.get("status")
    entry["reason"] = payload.get("reason") or payload.get("error") or entry["reason"]
    for name in ("step", "branch_id", "round"):
        entry[name] = row[name]
    entry["wait_s"] = row["t"] - entry["_t"]
