"""MLflow: metrics and parameters of a run, interventions as tags and as its description."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from it2nb.core.errors import require
from it2nb.integrations.tracker import Mark, Point, RunInfo, in_lane

#: What one call of MLflow takes.
_BATCH = 1000
#: Interventions that become a tag each; all of them are in the description.
_TAGS = 200
#: Longest description, characters.
_NOTE = 5000


class MLflow:
    """Writes a run with MLflow's client; the user's active run is left alone.

    Parameters
    ----------
    dir : path, optional
        Of ``mlflow.db``; the folder of the runs by default.
    uri : str, optional
        A tracking server or store; from ``MLFLOW_TRACKING_URI``, else the database in `dir`.
    experiment : str
    """

    name = "mlflow"

    def __init__(
        self, dir: str | Path | None = None, uri: str | None = None, experiment: str = "it2nb"
    ) -> None:
        self._dir = None if dir is None else Path(dir).absolute()
        self._uri = uri
        self._experiment = experiment
        self._client: Any = None
        self._entities: Any = None
        self._run = ""
        self._marks: list[str] = []

    def open(self, run: RunInfo) -> None:
        """See `Tracker`."""
        mlflow = require("mlflow", extra="mlflow", feature="tracking with MLflow")
        self._entities = mlflow.entities
        uri = self._uri or (None if self._dir else os.environ.get("MLFLOW_TRACKING_URI"))
        folder = self._dir or (Path(run.folder).parent if run.folder else Path("."))
        if uri is None:
            folder.mkdir(parents=True, exist_ok=True)
            uri = f"sqlite:///{(folder / 'mlflow.db').resolve()}"
        self._client = client = mlflow.MlflowClient(tracking_uri=uri)
        found = client.get_experiment_by_name(self._experiment)
        if found is not None:
            experiment = found.experiment_id
        else:
            place = None if self._uri else (folder / "mlartifacts").resolve().as_uri()
            experiment = client.create_experiment(self._experiment, artifact_location=place)
        made = client.create_run(experiment, run_name=run.title or run.run_id)
        self._run = made.info.run_id
        client.set_tag(self._run, "it2nb.run_id", run.run_id)
        about = {"seed": run.seed, **run.knobs}
        params = [
            self._entities.Param(_fit(name), str(value)[:500]) for name, value in about.items()
        ]
        client.log_batch(self._run, params=params[:100])

    def points(self, points: list[Point]) -> None:
        """See `Tracker`."""
        metrics = [
            self._entities.Metric(
                _fit(in_lane(point.lane, name)), value, int(point.ts * 1000), point.step
            )
            for point in points
            for name, value in point.values.items()
        ]
        for at in range(0, len(metrics), _BATCH):
            self._client.log_batch(self._run, metrics=metrics[at : at + _BATCH])

    def mark(self, mark: Mark) -> None:
        """See `Tracker`."""
        self._marks.append(f"- step {mark.step}: {mark.text}")
        if mark.kind == "change" and len(self._marks) <= _TAGS:
            tag = f"it2nb.intervention.{len(self._marks):04d}"
            self._client.set_tag(self._run, tag, f"step {mark.step}: {mark.text}"[:4900])
        if mark.knob is not None and mark.value is not None:
            name = _fit(in_lane(mark.lane, f"knobs/{mark.knob}"))
            self._client.log_metric(
                self._run, name, mark.value, timestamp=int(mark.ts * 1000), step=mark.step
            )

    def close(self, status: str) -> None:
        """See `Tracker`."""
        note = "\n".join(self._marks)
        if len(note) > _NOTE:
            note = note[: _NOTE - 40] + "\n- ... (the journal has them all)"
        self._client.set_tag(self._run, "mlflow.note.content", note)
        ended = {"finished": "FINISHED", "stopped": "KILLED"}.get(status, "FAILED")
        self._client.set_terminated(self._run, ended)


def _fit(name: str) -> str:
    """Leave in a name what MLflow takes: ``betas[0]`` becomes ``betas.0``."""
    name = re.sub(r"\[(\w+)\]", r".\1", name)
    return re.sub(r"[^\w\-. /]", "_", name)[:250]
