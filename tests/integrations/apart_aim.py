"""Aim, where it is installed: python -m pytest tests/integrations/apart_aim.py.

No part of `make test`: it needs a filelock before 4, and transformers 5 one from there on.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import it2nb
from tests.integrations.trackers_contract import TrackerContract


# Of SQLAlchemy's and Aim's own use of what newer versions have deprecated.
@pytest.mark.filterwarnings("ignore")
class TestAim(TrackerContract):
    name = "aim"

    def read(self, folder: Path, session: it2nb.TrainingSession) -> dict[str, Any]:
        aim: Any = importlib.import_module("aim")

        (hash_,) = aim.Repo(str(folder)).list_all_runs()
        # Opened to go on with it: with read_only=True Aim 3.29 gives name and tags only.
        run = aim.Run(
            run_hash=hash_, repo=str(folder), system_tracking_interval=None,
            capture_terminal_logs=False, log_system_params=False,
        )  # fmt: skip
        frames = {
            (each.name, each.context.to_dict().get("lane", "")): each.dataframe()
            for each in run.metrics()
        }
        found = run.iter_sequence_info_by_type(aim.Text.get_typename())
        texts = [
            text.data
            for name, context, _ in found
            for text in run.get_text_sequence(name, context).values.values_list()
        ]
        assert run.tags == ["steered"]
        assert run["it2nb", "run_id"] == session.run_id

        def series(name: str, lane: str = "") -> dict[int, Any]:
            frame = frames[name, lane]
            return dict(zip(frame["step"].tolist(), frame["value"].tolist(), strict=True))

        return {
            "loss": series("loss"),
            "branch": series("loss", "branch_1"),
            "lr": series("knobs/lr"),
            "marks": texts,
            "status": run["status"],
        }
