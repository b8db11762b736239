"""MLflow's own client finds what was written into its database."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import it2nb
from tests.integrations.trackers_contract import TrackerContract

# Of MLflow's own dependencies: SQLAlchemy 2.1 will take something away, multipart was renamed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*noload:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*python_multipart:PendingDeprecationWarning"),
]


class TestMLflow(TrackerContract):
    name = "mlflow"

    def read(self, folder: Path, session: it2nb.TrainingSession) -> dict[str, Any]:
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("it2nb")
        assert experiment is not None
        (run,) = client.search_runs([experiment.experiment_id])
        assert run.data.tags["it2nb.run_id"] == session.run_id
        assert run.data.params["lr"] == "0.1" and run.data.params["seed"] == "3"
        assert "looks fine" in run.data.tags["mlflow.note.content"]
        run_id = run.info.run_id

        def series(name: str) -> dict[int, float]:
            return {m.step: m.value for m in client.get_metric_history(run_id, name)}

        return {
            "loss": series("loss"),
            "branch": series("branch_1/loss"),
            "lr": series("knobs/lr"),
            "marks": [
                text for name, text in run.data.tags.items() if name.startswith("it2nb.inter")
            ],
            "status": run.info.status,
        }
