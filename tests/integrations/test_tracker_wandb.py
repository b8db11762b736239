"""The offline file of W&B holds what was written; nothing is sent."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import it2nb
from tests.integrations.trackers_contract import TrackerContract


class TestWandB(TrackerContract):
    name = "wandb"

    def read(self, folder: Path, session: it2nb.TrainingSession) -> dict[str, Any]:
        from wandb.proto import wandb_internal_pb2

        (file,) = folder.glob("wandb/offline-run-*/*.wandb")
        # Made when it is imported, so that type checkers don't see what is in it.
        messages: dict[str, Any] = vars(wandb_internal_pb2)
        rows: list[dict[str, Any]] = []
        status = ""
        tags: list[str] = []
        for data in _records(file.read_bytes()):
            record = messages["Record"]()
            record.ParseFromString(data)
            kind = record.WhichOneof("record_type")
            if kind == "history":
                rows.append(_items(record.history.item))
            elif kind == "summary":
                status = _items(record.summary.update).get("status", status)
            elif kind == "run":
                tags = list(record.run.tags) or tags

        def series(name: str) -> dict[int, float]:
            return {row["step"]: row[name] for row in rows if name in row}

        assert tags == ["steered"]
        return {
            "loss": series("loss"),
            "branch": series("branch_1/loss"),
            "lr": series("knobs/lr"),
            "marks": [row["intervention"] for row in rows if "intervention" in row],
            "status": status,
        }


def _items(items: Any) -> dict[str, Any]:
    return {each.key or "/".join(each.nested_key): json.loads(each.value_json) for each in items}


def _records(data: bytes) -> Iterator[bytes]:
    """Take the file apart: LevelDB's log format, in blocks of 32 KiB, after a head of 7 bytes."""
    at, parts = 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", data[at + 4 : at + 7])
        parts += data[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # whole, or the last part
            yield parts
            parts = b""
