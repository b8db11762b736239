"""TensorBoard: scalars in a folder, a run of its own for each branch, interventions as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from it2nb.core.errors import require
from it2nb.integrations.tracker import Mark, Point, RunInfo


class TensorBoard:
    """Writes event files for ``tensorboard --logdir DIR``.

    Parameters
    ----------
    dir : path, optional
        ``DIR/<run id>`` holds the run; ``tensorboard`` beside the journal by default.
    """

    name = "tensorboard"

    def __init__(self, dir: str | Path | None = None) -> None:
        self._dir = None if dir is None else Path(dir).absolute()
        self._root = Path()
        self._writers: dict[str, Any] = {}
        self._make: Any = None

    def open(self, run: RunInfo) -> None:
        """See `Tracker`."""
        require("tensorboard", extra="tensorboard", feature="tracking with TensorBoard")
        module = require(
            "torch.utils.tensorboard", extra="torch", feature="writing for TensorBoard"
        )
        self._make = module.SummaryWriter
        if self._dir is not None:
            self._root = self._dir / run.run_id
        else:
            self._root = Path(run.folder or ".") / "tensorboard"
        about = "\n".join(f"- `{name}` {value!r}" for name, value in run.knobs.items())
        self._writer("").add_text("run", f"{run.run_id}, seed {run.seed}\n\n{about}", 0)

    def points(self, points: list[Point]) -> None:
        """See `Tracker`."""
        for point in points:
            writer = self._writer(point.lane)
            for name, value in point.values.items():
                writer.add_scalar(name, value, point.step, walltime=point.ts)

    def mark(self, mark: Mark) -> None:
        """See `Tracker`."""
        writer = self._writer(mark.lane)
        writer.add_text("interventions", mark.text, mark.step, walltime=mark.ts)
        if mark.knob is not None and mark.value is not None:
            writer.add_scalar(f"knobs/{mark.knob}", mark.value, mark.step, walltime=mark.ts)

    def close(self, status: str) -> None:
        """See `Tracker`."""
        self._writer("").add_text("status", status)
        for writer in self._writers.values():
            writer.close()

    def _writer(self, lane: str) -> Any:
        writer = self._writers.get(lane)
        if writer is None:
            writer = self._writers[lane] = self._make(str(self._root / lane), flush_secs=5)
        return writer
