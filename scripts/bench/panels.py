"""How soon a panel stands, and what a cell that spins leaves of a run's steps."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from scripts.bench.measured import Measured, middle, p95
from tests.browser.harness import OpenNotebook, chromium
from tests.browser.server import JupyterServer

BEGIN = """
from it2nb.core.session import Session
from it2nb.notebook.panel import Panel
def begin():
    session = Session(directory=None, title="shown", watch=("loss", "acc"))
    session.register_knob("lr", lambda: 0.1, lambda v: None, min=0.0, max=1.0)
    session.start()
    for step in range(1000):
        session.step({"loss": 1 / (step + 1), "acc": step / 1000})
    return session
begin().end()
"""
# In the page: when the output of a panel came, and when its first plot had been drawn.
WATCH = """() => {
  window.__panels = [];
  const seen = new Set();
  new MutationObserver(() => {
    const outputs = '.jp-OutputArea-output:has([role="status"], .it2)';
    for (const root of document.querySelectorAll(outputs)) {
      if (!seen.has(root)) { seen.add(root); root.__came = performance.now(); }
      if (!root.__drawn && root.querySelector('.plot-container .scatterlayer path')) {
        root.__drawn = true;
        window.__panels.push(performance.now() - root.__came);
      }
    }
  }).observe(document.body, {childList: true, subtree: true, attributes: true});
}"""
LOOP = """%%it2 --no-panel --at loop
import time
spent = []
for step in range(10**9):
    if over.is_set():
        break
    began = time.perf_counter()
    while time.perf_counter() - began < 0.0005:
        pass
    spent.append(time.perf_counter() - began)
"""
SPIN = """
import time
while len(spent) < 200: time.sleep(0.01)
first = len(spent)
until = time.perf_counter() + {seconds}
while time.perf_counter() < until: pass
beside = spent[first:]
over.set()
"""
TOLD = "import json; print(json.dumps([each * 1e3 for each in beside]))"


def measure(quick: bool) -> list[Measured]:
    """Three or ten panels one after the other in a page; a step beside a cell that spins."""
    os.environ["OMP_NUM_THREADS"] = "1"
    with (
        tempfile.TemporaryDirectory() as home,
        JupyterServer(Path(home) / "home") as server,
        sync_playwright() as playwright,
        chromium(playwright) as browser,
    ):
        count = 3 if quick else 10
        server.write_notebook("shown", [BEGIN, *["Panel(begin())"] * count])
        with OpenNotebook(server, browser, "shown") as book:
            shown = _shown(book, count)
        server.end_kernels()
        spin = SPIN.format(seconds=1.0 if quick else 5.0)
        setup = "%load_ext it2nb\nimport threading\nover = threading.Event()"
        server.write_notebook("spun", [setup, LOOP, spin, TOLD])
        with OpenNotebook(server, browser, "spun") as book:
            for index in range(4):
                book.run(index)
            beside: list[float] = json.loads(book.text(3))
    first, others = shown[0], shown[1:]
    return [
        Measured("first panel of a page: until its first curve is drawn", first, "ms", 500.0),
        Measured("next panel of a page", *middle(others)[:1], "ms", 200.0, *middle(others)[1:]),
        Measured("a step of 0.5 ms beside a cell that spins: p95", p95(beside), "ms", 15.0,
                 *middle(beside)[1:]),
    ]  # fmt: skip


def _shown(book: OpenNotebook, count: int) -> list[float]:
    book.run(0)
    book.page.evaluate(WATCH)
    for index in range(1, count + 1):
        book.run(index)
        book.panel(index)
        drawn = "(count) => window.__panels.length >= count"
        book.page.wait_for_function(drawn, arg=index)
    found: Any = book.page.evaluate("() => window.__panels")
    return [float(each) for each in found]
