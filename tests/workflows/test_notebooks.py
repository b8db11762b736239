"""The notebooks as `jupyter execute` runs them: cell by cell through a kernel, at ci scale."""

from __future__ import annotations

import asyncio
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import it2nb

from ..conftest import ROOT

#: tests/server has 08.
BOOKS = (
    "02_hf_sentiment", "03_sentiment_mixing", "04_layerwise_gpt", "05_muon_adamw_gpt",
    "06_rlvr_countdown", "09_audit",
)  # fmt: skip
#: Of one cell, seconds: a deadlock's limit.
CELL_S = 240


def executed(book: str, folder: Path) -> dict[str, str]:
    """Run a notebook with plain nbclient; return each cell's outputs as text, by its id."""
    path = ROOT / "notebooks" / f"{book}.ipynb"
    assert path.stat().st_size < 500_000
    made = nbformat.read(path, as_version=4)
    client = NotebookClient(
        made, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    # A cell that raises raises here. A loop of our own, so that none is left behind.
    asyncio.run(client.async_execute())
    return {cell.id: str(cell.outputs) for cell in made.cells if cell.cell_type == "code"}


@pytest.mark.kernel
@pytest.mark.timeout(600)
@pytest.mark.parametrize("book", BOOKS)
def test_a_notebook_runs_headless_and_answers_from_its_journal(
    book: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IT2NB_SCALE", "ci")
    shown = executed(book, tmp_path)
    journals = [it2nb.open(path) for path in sorted(tmp_path.glob("it2runs/*/journal.jsonl"))]
    for each in journals:
        each.verify()
    assert "actor" in shown["asked"]
    assert "goal_before" in shown["outcomes"]
    if book.startswith("09"):
        assert journals == []
        return
    # A run of seconds may be over before a cell asks; then it is said that the tables are empty.
    steered, rounds = journals
    nobody = steered.requests().empty
    assert nobody == ("Nobody asked for anything before the run was over" in shown["asked"])
    requests = rounds.requests()
    assert [event.type for event in rounds.since(0)].count("round_finished") == 3
    assert set(requests["source"]) >= {"plan"}
    assert set(requests["round"]) >= {1, 2}


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_a_notebook_steers_its_own_run_where_nobody_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At this size the quickstart is long enough for every cell to find it running.
    monkeypatch.setenv("IT2NB_SCALE", "ci")
    shown = executed("01_quickstart", tmp_path)
    (journal,) = [it2nb.open(path) for path in tmp_path.glob("it2runs/*/journal.jsonl")]
    done = journal.requests().query("status == 'applied'")
    assert set(done["type"]) == {"set_knob", "evaluate", "pause", "resume"}
    assert set(done["name"].dropna()) == {"lr", "shift"}
    assert "applied" in shown["requests"]
    (paused_at,) = done.query("type == 'pause'")["step"].tolist()
    assert f"paused at step {paused_at}" in shown["inside"]


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_the_notebook_of_agents_runs_headless(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IT2NB_SCALE", "ci")
    for name in ("MODEL", "BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"IT2NB_LLM_{name}", raising=False)
    executed("07_agents", tmp_path)
    assert [it2nb.open(each).verify().ok for each in tmp_path.glob("it2runs/*/journal.jsonl")]
