"""The panel works in each front end and kernel that the README names."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from .conftest import OpenWith, kernel_overlay
from .harness import App, OpenNotebook
from .server import JupyterServer
from .waking import kept_awake

MODEL = """
import torch
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
"""
# Ends by `stop` alone: how long the browser takes makes no difference.
LOOP = """%%it2 --watch loss
while True:
    loss = model(torch.randn(8, 4)).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
# Holds the interpreter for as long as the panel has not been used.
SPIN = """
session = it2nb.current()
while session.status != "paused":
    pass
"""
VERSION = "; import ipykernel; print(ipykernel.__version__)"
CELLS = ["%load_ext it2nb\nimport it2nb", MODEL, LOOP, SPIN, "%it2 wait"]


def pause_and_stop(book: OpenNotebook, *, busy: bool) -> None:
    """Pause from the panel, beside a spinning cell if ``busy``; set the lr; stop; wait."""
    for index in range(3):
        book.run(index)
    panel = book.panel(2)
    pill = panel.locator(".it2-pill")
    expect(pill).to_have_attribute("data-status", "running")
    if busy:
        book.run(3, wait=False)
    book.press(panel, "pause")
    expect(pill).to_have_attribute("data-status", "paused")
    if busy:
        book.wait(3)
    expect(book.set_knob(panel, "lr", "0.002")).to_contain_text("asked 0.002, applied 0.002")

    # The cell that waits keeps the panel alive, on kernels without subshells too.
    book.run(4, wait=False)
    book.press(panel, "stop")
    book.wait(4)
    expect(pill).to_have_attribute("data-status", "stopped")
    assert "Error" not in "".join(book.text(index) for index in range(5))
    assert book.foreign_requests == []
    assert book.script_errors == []


@pytest.mark.parametrize("app", ["lab", "notebook"])
def test_panel_works_beside_a_spinning_cell(open_notebook: OpenWith, app: App) -> None:
    pause_and_stop(open_notebook(CELLS, app=app), busy=True)


# 6.31 has no subshells, so no cell may be busy there.
@pytest.mark.parametrize(("release", "busy"), [("7.3.0", True), ("6.31.0", False)])
def test_panel_works_on_older_kernels(
    open_notebook: OpenWith, jupyter: JupyterServer, release: str, busy: bool
) -> None:
    kernel = jupyter.add_kernel(f"py{release}", kernel_overlay(f"ipykernel=={release}"))
    with kept_awake(jupyter.runtime):
        book = open_notebook([CELLS[0] + VERSION, *CELLS[1:]], kernel=kernel)
        pause_and_stop(book, busy=busy)
    assert book.text(0) == f"{release}\n"


def test_panel_works_behind_a_prefix(tmp_path: Path, site: Path, browser: Browser) -> None:
    """As JupyterHub and Binder serve it."""
    with JupyterServer(tmp_path / "home", site=site, base_url="/user/anna/") as server:
        server.add_kernel("python3")
        server.write_notebook("prefix", CELLS)
        with OpenNotebook(server, browser, "prefix") as book:
            pause_and_stop(book, busy=False)
            scripts = [url for url in book.requests if "extensions/it2nb" in url]
        server.end_kernels()
    assert scripts, "the chart library came over the comm, not from the server"
    assert all("/user/anna/lab/extensions/it2nb/static/" in url for url in scripts)
