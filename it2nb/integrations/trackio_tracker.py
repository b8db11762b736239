"""trackio: a local dashboard; interventions as alerts and as values of their knobs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from it2nb.core.errors import require
from it2nb.integrations.tracker import Mark, Point, RunInfo, in_lane


class Trackio:
    """Writes a run of a local project; ``trackio show`` shows it.

    Parameters
    ----------
    dir : path, optional
        Where trackio keeps its projects; its own place by default.
    project : str
    **options
        For ``trackio.init``.
    """

    name = "trackio"

    def __init__(
        self, dir: str | Path | None = None, project: str = "it2nb", **options: Any
    ) -> None:
        self._dir = None if dir is None else Path(dir).absolute()
        self._project = project
        self._options = options
        self._run: Any = None
        self._alert: Any = None

    def open(self, run: RunInfo) -> None:
        """See `Tracker`."""
        if self._dir is not None:
            # It is read once, when trackio is imported.
            os.environ["TRACKIO_DIR"] = str(self._dir)
        trackio = require("trackio", extra="trackio", feature="tracking with trackio")
        given = {
            "name": run.title or run.run_id,
            "config": {"run_id": run.run_id, "seed": run.seed, **run.knobs},
        }
        self._run = trackio.init(project=self._project, **(given | self._options))

    def points(self, points: list[Point]) -> None:
        """See `Tracker`."""
        for point in points:
            values = {in_lane(point.lane, name): value for name, value in point.values.items()}
            self._run.log(values, step=point.step)

    def mark(self, mark: Mark) -> None:
        """See `Tracker`."""
        alert = getattr(self._run, "alert", None)
        if alert is not None:
            alert(title=f"step {mark.step}", text=mark.text)
        if mark.knob is not None and mark.value is not None:
            name = in_lane(mark.lane, f"knobs/{mark.knob}")
            self._run.log({name: mark.value}, step=mark.step)

    def close(self, status: str) -> None:
        """See `Tracker`."""
        self._run.log({"it2nb_status": status})
        self._run.finish()
