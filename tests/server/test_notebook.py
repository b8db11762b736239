"""The notebook 08_attach runs by itself, headless, and keeps no token."""

from __future__ import annotations

import os
import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.conftest import ROOT

NOTEBOOK = ROOT / "notebooks" / "08_attach.ipynb"


@pytest.mark.kernel
@pytest.mark.timeout(600)
def test_the_notebook_steers_a_script_and_keeps_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("IT2NB_TOKEN", raising=False)
    book = nbformat.read(NOTEBOOK, as_version=4)
    # What the kernel knows and the notebook must not: written where the test finds it.
    spy = "import os; open('token', 'w').write(os.environ['IT2NB_TOKEN'])"
    book.cells.append(nbformat.v4.new_code_cell(spy))
    client = NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env={**os.environ, "IT2NB_SCALE": "ci"})
    shown = {cell.id: cell.get("outputs", []) for cell in book.cells}
    assert "applied, asked 0.01, was 0.05, is 0.01" in str(shown["set"])
    assert "rejected" in str(shown["wrong"])
    assert "accuracy" in str(shown["evaluate"])
    assert "application/vnd.jupyter.widget-view+json" in str(shown["attach"])
    assert "http" in str(shown["requests"])
    assert "stopped" in str(shown["stop"])
    assert "ended with 0" in str(shown["exit"])
    token = (tmp_path / "token").read_text()
    assert len(token) > 40
    assert token not in nbformat.writes(book)
    assert token not in str(book.metadata)


def test_the_kept_notebook_shows_no_secret() -> None:
    book = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(book)
    assert any(cell.get("outputs") for cell in book.cells)
    assert not re.search(r"(token|code)[=:\"'\s]+[\w-]{20,}", nbformat.writes(book))
