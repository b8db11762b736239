"""Journals for tests: a clock that stands still, lines of the file, a request and its result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore

LIMIT_S = 30.0

FILE = Path("it2runs/r/journal.jsonl")


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_800_000_000.0 + self.now


def made() -> Journal:
    return Journal(FILE, MetricStore(), run="r")


def lines(path: Path = FILE) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_bytes().splitlines()]


def submit(journal: Journal, id: str = "a1", value: Any = 0.5, step: int = 1) -> None:
    journal.append(
        "action_submitted",
        {"id": id, "type": "set_knob", "payload": {"name": "lr", "value": value},
         "source": "panel", "actor": "human:anna"},
        step=step, source="panel", action_id=id,
    )  # fmt: skip


def settle(journal: Journal, id: str = "a1", status: str = "applied", **more: Any) -> None:
    payload = {
        "id": id, "type": "set_knob", "ok": True, "status": status, "data": None, "error": None,
        "source": "panel", "actor": "human:anna", "name": "lr", "requested": 0.5, "before": 0.1,
        "after": 0.5, "reason": None, **more,
    }  # fmt: skip
    journal.append_many(
        [("knob_changed", {"name": "lr", "value": 0.5, "before": 0.1}), ("action_result", payload)],
        step=2, branch_id=0, round=0, source="panel", action_id=id,
    )  # fmt: skip
