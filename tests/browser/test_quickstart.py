"""The main job, as a person does it: the quickstart in JupyterLab, with a hand on the panel."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.conftest import ROOT

from .conftest import OpenWith
from .server import JupyterServer

QUICKSTART = ROOT / "notebooks" / "01_quickstart.ipynb"


def test_quickstart_is_steered_from_the_panel_to_its_end(
    open_notebook: OpenWith, jupyter: JupyterServer
) -> None:
    kernel = jupyter.add_kernel("quickstart", env={"IT2NB_SCALE": "0.1"})
    book = open_notebook(QUICKSTART, kernel=kernel)
    for cell in ("load", "data", "model", "loop"):
        book.run(book.index(cell))
        assert "Error" not in book.text(book.index(cell))

    # The cell has returned, and the loop runs on.
    panel = book.panel(book.index("loop"))
    pill = panel.locator(".it2-pill")
    expect(pill).to_have_attribute("data-status", "running")
    expect(panel.locator(".it2-plot svg").first).to_be_visible()

    # A busy cell is no obstacle: this one spins while the panel is used.
    book.run(book.index("until"), wait=False)
    said = book.set_knob(panel, "lr", "2e-3")
    expect(said).to_contain_text(re.compile(r"asked 0\.002, applied 0\.002, from step"))
    expect(book.set_knob(panel, "lr", "fast")).to_contain_text("rejected")
    book.press(panel, "pause")
    expect(pill).to_have_attribute("data-status", "paused")
    book.press(panel, "resume")
    expect(pill).to_have_attribute("data-status", "running")
    book.wait(book.index("until"))

    after = ["set", "set-python", "set-wrong", "evaluate", "pause", "inside", "resume", "requests"]
    for cell in [*after, "metrics", "wait", "plot", "open"]:
        book.run(book.index(cell))
        assert "Error" not in book.text(book.index(cell)), cell
    expect(pill).to_have_attribute("data-status", "finished")
    requests = book.text(book.index("requests"))
    assert re.search(r"set_knob\s+lr\s+panel\s+0\.002 .*applied", requests), requests
    assert re.search(r"set_knob\s+lr\s+panel\s+fast .*rejected", requests), requests
    assert re.search(r"set_knob\s+lr\s+magic\s+0\.001 .*applied", requests), requests
    assert book.foreign_requests == []
    assert book.script_errors == []
