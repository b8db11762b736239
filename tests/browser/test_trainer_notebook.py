"""Hugging Face's Trainer in JupyterLab: its notebook, cell by cell, with the panel below it."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.conftest import ROOT

from .conftest import OpenWith
from .server import JupyterServer

BOOK = ROOT / "notebooks" / "02_hf_sentiment.ipynb"


def test_the_trainers_notebook_runs_with_its_panel(
    open_notebook: OpenWith, jupyter: JupyterServer
) -> None:
    kernel = jupyter.add_kernel("trainer", env={"IT2NB_SCALE": "ci"})
    book = open_notebook(BOOK, kernel=kernel)
    for cell in ("load", "setup", "data", "session", "loop", "wait"):
        book.run(book.index(cell))
        assert "Error" not in book.text(book.index(cell)), cell
    panel = book.panel(book.index("loop"))
    expect(panel.locator(".it2-pill")).to_have_attribute("data-status", "finished")
    expect(panel.locator(".it2-plot svg").first).to_be_visible()
    expect(panel).to_contain_text("max_grad_norm")
    for cell in ("plot", "verify", "asked", "outcomes"):
        book.run(book.index(cell))
        assert "Error" not in book.text(book.index(cell)), cell
    assert "ok=True" in book.text(book.index("verify"))
    assert book.foreign_requests == []
    assert book.script_errors == []
