"""Weights & Biases: offline unless told otherwise, interventions as rows, a table and a tag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from it2nb.core.errors import require
from it2nb.integrations.tracker import Mark, Point, RunInfo, in_lane


class WandB:
    """Writes a run of its own; the user's ``wandb.run`` is left alone.

    Parameters
    ----------
    dir : path, optional
        Beside the journal by default.
    project : str
    mode : {"offline", "online", "disabled"}
        Offline sends nothing; ``wandb sync DIR`` does it later.
    **options
        For ``wandb.init``.
    """

    name = "wandb"

    def __init__(
        self,
        dir: str | Path | None = None,
        project: str = "it2nb",
        mode: str = "offline",
        **options: Any,
    ) -> None:
        self._dir = None if dir is None else Path(dir).absolute()
        self._project = project
        self._mode = mode
        self._options = options
        self._run: Any = None
        self._wandb: Any = None
        self._marks: list[list[Any]] = []

    def open(self, run: RunInfo) -> None:
        """See `Tracker`."""
        self._wandb = wandb = require("wandb", extra="wandb", feature="tracking with WandB")
        folder = self._dir if self._dir is not None else Path(run.folder or ".")
        folder.mkdir(parents=True, exist_ok=True)
        given = {
            "name": run.title or run.run_id,
            "config": {"run_id": run.run_id, "seed": run.seed, "knobs": run.knobs},
            "reinit": "create_new",
            "settings": wandb.Settings(
                console="off", silent=True, disable_git=True, save_code=False, x_disable_stats=True
            ),
        }
        self._run = wandb.init(
            project=self._project, mode=self._mode, dir=str(folder), **(given | self._options)
        )
        # W&B's own step may only grow, and a branch goes back.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def points(self, points: list[Point]) -> None:
        """See `Tracker`."""
        for point in points:
            values = {in_lane(point.lane, name): value for name, value in point.values.items()}
            self._run.log({**values, "step": point.step})

    def mark(self, mark: Mark) -> None:
        """See `Tracker`."""
        self._marks.append([mark.step, mark.kind, mark.text, mark.lane])
        if mark.kind == "change":
            row: dict[str, Any] = {"step": mark.step, "intervention": mark.text}
            if mark.knob is not None and mark.value is not None:
                row[in_lane(mark.lane, f"knobs/{mark.knob}")] = mark.value
            self._run.log(row)
            if "steered" not in (self._run.tags or ()):
                self._run.tags = (*(self._run.tags or ()), "steered")

    def close(self, status: str) -> None:
        """See `Tracker`."""
        columns = ["step", "kind", "text", "lane"]
        self._run.log({"interventions": self._wandb.Table(columns=columns, data=self._marks)})
        self._run.summary["status"] = status
        self._run.finish(exit_code=1 if status == "failed" else 0)
