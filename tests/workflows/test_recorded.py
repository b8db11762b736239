"""The recorded runs that come with the package, and the page that is computed from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import it2nb
from it2nb.core.errors import It2nbError, JournalDamaged
from it2nb.workflows import recorded
from it2nb.workflows.audit import goal_of
from scripts import workflow_runs, workflow_seeds, workflow_tables

from ..conftest import ROOT

WORKFLOWS = ("hf", "mixing", "layerwise", "muon", "countdown")


def test_each_workflow_has_a_run_and_rounds_and_they_are_what_was_recorded() -> None:
    known = recorded.hashes()
    assert set(known) == {*WORKFLOWS, *(f"{name}-rounds" for name in WORKFLOWS)}
    size = 0
    for name, told in known.items():
        path = recorded.path_of(name)
        size += path.stat().st_size
        run = it2nb.open(path)
        assert run.verify(told["anchor"]).ok
        assert goal_of(run).metric in run.metrics.names()
        assert (ROOT / "notebooks" / told["notebook"]).exists()
        assert told["scale"] == "laptop"
    assert size < 2_000_000


def test_a_wrong_name_and_a_changed_file_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(It2nbError, match="no run 'layerwize' was recorded; did you mean"):
        recorded.path_of("layerwize")
    data = recorded.path_of("muon").read_bytes()
    (tmp_path / "muon.zip").write_bytes(data[:-1] + b"x")
    (tmp_path / "manifest.json").write_text((recorded.FOLDER / "manifest.json").read_text())
    monkeypatch.setattr(recorded, "FOLDER", tmp_path)
    with pytest.raises(JournalDamaged, match="not what was recorded"):
        recorded.path_of("muon")


def test_the_tables_of_the_page_are_those_of_the_journals() -> None:
    text = workflow_tables.PAGE.read_text()
    assert text == workflow_tables.page()
    assert text.count("\n| hf |") >= 2


def test_runs_are_kept_from_the_folder_of_an_executed_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = it2nb.TrainingSession("loss", title="My run", directory=tmp_path / "work" / "it2runs")
    with session.run():
        session.step({"loss": 1.0})
    (tmp_path / "book.ipynb").write_text("{}")
    kept = tmp_path / "kept"
    monkeypatch.setattr(workflow_runs, "FOLDER", kept)
    assert workflow_runs.main([str(tmp_path), "--scale", "ci"]) == 0
    told = json.loads((kept / "manifest.json").read_text())["my-run"]
    assert (told["notebook"], told["scale"]) == ("book.ipynb", "ci")
    assert it2nb.open(kept / "my-run.zip").verify(told["anchor"]).ok


def test_seeds_are_compared_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workflow_seeds, "FILE", tmp_path / "seeds.json")
    asked = ["layerwise", "--steps", "20", "--scale", "ci", "--seeds", "1"]
    assert workflow_seeds.main(asked) == 0
    told = json.loads((tmp_path / "seeds.json").read_text())["layerwise"]
    assert list(told["runs"]) == list(workflow_seeds.WHO)
    assert all(len(runs) == 1 and runs[0]["last"] > 0 for runs in told["runs"].values())


def test_code_of_the_page_runs_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    text = workflow_tables.PAGE.read_text()
    for code in re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        exec(compile(code, "docs/workflows.md", "exec"), space)
    said = capsys.readouterr().out
    assert "bit-equal" in said
    assert "countdown True" in said
    assert len(space["records"]) == 3
