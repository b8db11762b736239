"""TensorBoard's own reader finds what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import it2nb
from tests.integrations.trackers_contract import TrackerContract


class TestTensorBoard(TrackerContract):
    name = "tensorboard"

    def read(self, folder: Path, session: it2nb.TrainingSession) -> dict[str, Any]:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        def events(lane: str) -> Any:
            found = EventAccumulator(str(folder / session.run_id / lane))
            found.Reload()
            return found

        def texts(tag: str) -> list[str]:
            tensors = events("").Tensors(f"{tag}/text_summary")
            return [each.tensor_proto.string_val[0].decode() for each in tensors]

        def series(lane: str, tag: str) -> dict[int, float]:
            return {each.step: each.value for each in events(lane).Scalars(tag)}

        return {
            "loss": series("", "loss"),
            "branch": series("branch_1", "loss"),
            "lr": series("", "knobs/lr"),
            "marks": texts("interventions"),
            "status": texts("status")[0],
        }
