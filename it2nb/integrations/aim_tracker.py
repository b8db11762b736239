"""Aim: metrics with the branch as their context, interventions as text and a tag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from it2nb.core.errors import require
from it2nb.integrations.tracker import Mark, Point, RunInfo


class Aim:
    """Writes a run of a local repository; ``aim up --repo DIR`` shows it.

    Parameters
    ----------
    dir : path, optional
        Of the repository; the folder of the runs by default.
    experiment : str
    """

    name = "aim"

    def __init__(self, dir: str | Path | None = None, experiment: str = "it2nb") -> None:
        self._dir = None if dir is None else Path(dir).absolute()
        self._experiment = experiment
        self._run: Any = None
        self._text: Any = None
        self._is_tagged = False

    def open(self, run: RunInfo) -> None:
        """See `Tracker`."""
        aim = require("aim", extra="aim", feature="tracking with Aim")
        folder = self._dir or (Path(run.folder).parent if run.folder else Path("."))
        folder.mkdir(parents=True, exist_ok=True)
        self._text = aim.Text
        self._run = aim.Run(
            repo=str(folder), experiment=self._experiment, system_tracking_interval=None,
            capture_terminal_logs=False, log_system_params=False,
        )  # fmt: skip
        self._run.name = run.title or run.run_id
        self._run["it2nb"] = {"run_id": run.run_id, "seed": run.seed, "knobs": dict(run.knobs)}

    def points(self, points: list[Point]) -> None:
        """See `Tracker`."""
        for point in points:
            for name, value in point.values.items():
                self._run.track(value, name=name, step=point.step, context=_context(point.lane))

    def mark(self, mark: Mark) -> None:
        """See `Tracker`."""
        text = self._text(mark.text)
        self._run.track(text, name="interventions", step=mark.step, context=_context(mark.lane))
        if mark.knob is not None and mark.value is not None:
            name = f"knobs/{mark.knob}"
            self._run.track(mark.value, name=name, step=mark.step, context=_context(mark.lane))
        if mark.kind == "change" and not self._is_tagged:
            self._is_tagged = True
            self._run.add_tag("steered")

    def close(self, status: str) -> None:
        """See `Tracker`."""
        self._run["status"] = status
        self._run.close()


def _context(lane: str) -> dict[str, str]:
    return {"lane": lane} if lane else {}
