"""Aim, where it is installed: python -m pytest tests/integrations/apart_aim.py.

No part of `make test`: Aim 3 needs a filelock before 4.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import it2nb
from tests.integrations.trackers_contract import TrackerContract

# In a process of its own: Aim shows a run to others once its writer has let it go.
READ = """
import json, sys, aim
from aim.storage.context import Context
repo = aim.Repo(sys.argv[1])
run = aim.Run(repo.list_all_runs()[0], repo=repo, read_only=True)
def series(name, context):
    steps, values = run.get_metric(name, Context(context)).values.sparse_list()
    return dict(zip(steps, values))
texts = run.get_text_sequence("interventions", Context({}))
print(json.dumps({"loss": series("loss", {}), "branch": series("loss", {"lane": "branch_1"}),
    "lr": series("knobs/lr", {}), "status": run["status"], "tags": list(run.tags),
    "marks": [each.data for each in texts.values.sparse_list()[1]]}))
"""


class TestAim(TrackerContract):
    name = "aim"

    def read(self, folder: Path, session: it2nb.TrainingSession) -> dict[str, Any]:
        command = [sys.executable, "-c", READ, str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert found["tags"] == ["steered"]
        for name in ("loss", "branch", "lr"):
            found[name] = {int(step): value for step, value in found[name].items()}
        return found
