"""notebooks/07_agents.ipynb: with the scripted agent, and with a model behind an endpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import it2nb
from tests.controllers.endpoint import Endpoint, Says

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "07_agents.ipynb"


def run_cells() -> dict[str, Any]:
    """Run the code cells as they stand, without a kernel; the panel shows nothing then."""
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"cell {cell['id']}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IT2NB_SCALE", "0.1")
    for name in ("MODEL", "BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"IT2NB_LLM_{name}", raising=False)
    yield
    for each in it2nb.runs():
        each.end()


def test_by_default_the_agent_is_scripted_and_its_rounds_are_better():
    names = run_cells()
    assert isinstance(names["agent"], it2nb.ScriptedAgent)
    records = names["records"]
    assert len(records) == names["ROUNDS"]
    assert records[1]["improved"]
    assert {"plan"} <= set(names["asked"]["source"])
    assert set(names["calls"]["type"]) == {"agent_call", "agent_plan", "agent_reflection"}


def test_with_a_model_by_environment_the_model_plans(monkeypatch):
    def line(body: dict[str, Any]) -> Says:
        if "plan_round" in str(body.get("tools")):
            return Says(None, [("plan_round", {"settings": {"lr": 3e-3}, "reason": "faster"})])
        return Says("nothing to change")

    with Endpoint(line) as endpoint:
        monkeypatch.setenv("IT2NB_LLM_MODEL", "tiny")
        monkeypatch.setenv("IT2NB_LLM_BASE_URL", endpoint.url)
        monkeypatch.setenv("IT2NB_LLM_API_KEY", "sk-secret-12345")
        names = run_cells()
    assert [(each["plan"] or {}).get("settings") for each in names["records"]] == [
        None, {"lr": 3e-3}, {"lr": 3e-3}, {"lr": 3e-3},
    ]  # fmt: skip
    assert names["records"][1]["improved"]
    assert names["session"].policy.spent("agent").tokens > 0
    assert "sk-secret" not in names["session"].path.read_text()
