"""trackio, where it is installed: python -m pytest tests/integrations/apart_trackio.py.

No part of `make test`: it needs a huggingface_hub before 2, and transformers 5 one from 2 on.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import orjson

import it2nb
from tests.integrations.trackers_contract import TrackerContract


class TestTrackio(TrackerContract):
    name = "trackio"

    def read(self, folder: Path, session: it2nb.TrainingSession) -> dict[str, Any]:
        (file,) = folder.rglob("*.db")
        with sqlite3.connect(file) as base:
            rows = base.execute("select step, metrics from metrics order by id").fetchall()
            alerts = base.execute("select text from alerts order by id").fetchall()
        logged = [(step, orjson.loads(metrics)) for step, metrics in rows]

        def series(name: str) -> dict[int, Any]:
            return {step: row[name] for step, row in logged if name in row}

        return {
            "loss": series("loss"),
            "branch": series("branch_1/loss"),
            "lr": series("knobs/lr"),
            "marks": [text for (text,) in alerts],
            "status": list(series("it2nb_status").values())[-1],
        }
