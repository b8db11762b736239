"""In real JupyterLab and Chromium: clicks, panel updates, and a training with an open panel."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, sync_playwright

from scripts.bench.measured import Measured, middle, of_the_median, p95
from tests.browser.harness import OpenNotebook, chromium
from tests.browser.server import JupyterServer

ROOT = Path(__file__).resolve().parents[2]
# A run of 2 ms a step, and what its kernel noted of each request: when its result was there.
CLICKED = """
import threading, time
from it2nb.core.session import Session
from it2nb.notebook.panel import Panel
values = {"lr": 1e-3}
session = Session(directory="runs", title="clicked", watch=("loss",))
session.register_knob("lr", lambda: values["lr"], lambda v: values.update(lr=v), min=0.0, max=1.0)
ends = []
def train():
    with session.run():
        for step in range(10**9):
            until = time.perf_counter() + 0.002
            while time.perf_counter() < until:
                time.sleep(0.0005)
            if session.step({"loss": 1 / (step + 1)}).stop:
                break
            ends.append(time.time() * 1e3)
threading.Thread(target=train, daemon=True).start()
Panel(session)
"""
SPIN = "import sys\nspinning = True\nwhile spinning and values['lr'] < 0.9: pass"
TOLD = """
import json
told = session.journal.tail(1_000, types=["action_result"])
print(json.dumps([[[each.payload["after"], each.ts * 1e3] for each in told], ends]))
"""
# In the page: when Enter was pressed, and when a frame with the answer had been drawn.
WATCH = """(root) => {
  const field = root.querySelector('[data-knob="lr"] input[type=text]');
  const said = root.querySelector('[data-knob="lr"]');
  const now = () => performance.timeOrigin + performance.now();
  window.__clicks = [];
  field.addEventListener('keydown', (e) => {
    if (e.key === 'Enter') window.__clicks.push([now(), 0, field.value]);
  }, true);
  new MutationObserver(() => {
    const last = window.__clicks.at(-1);
    const text = said.querySelector('.it2-said')?.textContent ?? '';
    if (last && !last[1] && /applied|step/.test(text) && !/…|sent|waiting/.test(text)) {
      last[1] = -1;
      requestAnimationFrame(() => setTimeout(() => { last[1] = now(); }, 0));
    }
  }).observe(said, {childList: true, subtree: true, characterData: true, attributes: true});
}"""

GROWN = """
import threading, time
import numpy as np
from it2nb.core.session import Session
from it2nb.notebook.panel import Panel
names = ["loss", "acc", "lr", "norm"]
session = Session(directory=None, title="grown", watch=names)
session.register_knob("x", lambda: 1.0, lambda v: None, min=0.0, max=2.0)
rng = np.random.default_rng(0)
session.step(dict.fromkeys(names, 1.0))
for first in range(2, {points}, 1_000_000):
    steps = np.arange(first, min({points}, first + 1_000_000), dtype=float)
    rows = [steps, steps * 1e-3, *(rng.random(len(steps)) for _ in names)]
    session.metrics.extend(names, np.column_stack(rows), branch_id=0, round=0)
def train():
    for step in range({points}, {points} + 10**9):
        if session.step(dict.fromkeys(names, 0.5), step=step).stop:
            break
        time.sleep(0.002)
def begin():
    session._owner = None
    threading.Thread(target=train, daemon=True).start()
begin()
Panel(session)
"""
TRAINED = """
import sys, json, threading
sys.path.append({root!r})
from it2nb.core.session import Session
from it2nb.notebook.panel import Panel
from scripts.bench.training import Training
session = Session(directory="runs", title="trained", watch=("loss", "log", "half", "twice"))
values, ready = [], threading.Event()
def train():
    training = Training({step_ms})
    with session.run():
        training.seconds(session, 200)
        ready.wait()
        values.extend(training.slow_downs(session, {blocks}, {block_s}))
thread = threading.Thread(target=train, daemon=True)
thread.start()
Panel(session)
"""


class Bench:
    """One server and one browser; each measure has a notebook of its own."""

    def __init__(self, server: JupyterServer, browser: Browser, quick: bool) -> None:
        self._server, self._browser, self.quick = server, browser, quick
        self._count = 0

    def open(self, cells: list[str]) -> OpenNotebook:
        """Open a notebook with these cells."""
        self._count += 1
        name = f"bench{self._count}"
        self._server.write_notebook(name, cells)
        return OpenNotebook(self._server, self._browser, name)

    def clicks(self, spin: bool) -> list[Measured]:
        """Enter in the lr field, until the result's row and until it is on the screen."""
        with self.open([CLICKED, SPIN, TOLD]) as book:
            book.run(0)
            panel = book.panel(0)
            panel.locator(".plot-container").first.wait_for()
            panel.evaluate(WATCH)
            if spin:
                book.run(1, wait=False)
            count = 12 if self.quick else 60
            for index in range(count):
                field = panel.locator('[data-knob="lr"] input[type=text]')
                field.fill(str(0.1 + index / 1000))
                field.press("Enter")
                book.page.wait_for_function("() => window.__clicks.at(-1)?.[1] > 0")
                time.sleep(0.05)
            clicks = book.page.evaluate("() => window.__clicks")
            if spin:
                field.fill("0.95")
                field.press("Enter")
                book.wait(1)
            book.run(2)
            results, ends = _said(book, 2)
        told = {round(after, 6): ts for after, ts in results}
        kernel = [told[round(float(text), 6)] - began for began, _, text in clicks]
        screen = [shown - began for began, shown, _ in clicks]
        # Beside a cell that spins a step takes longer than alone.
        ends = [end for end in ends if clicks[0][0] <= end <= clicks[-1][1]]
        step_ms = middle([b - a for a, b in pairwise(ends)])[0]
        where = "while a cell spins" if spin else "idle"
        return [
            Measured(f"click to result in the kernel, {where}: p95", p95(kernel), "ms",
                     50.0 + step_ms, *middle(kernel)[1:],
                     note=f"50 ms and one step, here {step_ms:.1f} ms"),
            Measured(f"click to the screen, {where}: p95", p95(screen), "ms", 150.0,
                     *middle(screen)[1:]),
        ]  # fmt: skip

    def update(self, points: int) -> float:
        """What an update adds to the page's task time, ms; JupyterLab's own is taken off."""
        with self.open([GROWN.format(points=points), "session.stop()"]) as book:
            book.run(0)
            panel = book.panel(0)
            panel.locator(".plot-container").first.wait_for()
            time.sleep(3.0)
            page = book.context.new_cdp_session(book.page)
            page.send("Performance.enable")
            seconds = 3.0 if self.quick else 15.0
            batches = "(root) => root.it2nb.channel.store.n"
            before, n = _task_s(page), panel.evaluate(batches)
            time.sleep(seconds)
            used = _task_s(page) - before
            count = panel.evaluate(batches) - n
            book.run(1)
            time.sleep(3.0)
            before = _task_s(page)
            time.sleep(seconds)
            used -= _task_s(page) - before
        return used * 1e3 / float(max(1, count))

    def updates(self) -> list[Measured]:
        """The same at three lengths of the curves."""
        found = {points: self.update(points) for points in (10**3, 10**5, 10**7)}
        ratio = found[10**7] / found[10**3]
        note = ", ".join(f"{points:,} points: {ms:.1f} ms" for points, ms in found.items())
        return [
            Measured("panel update in the page, longest curve against shortest", ratio, "x",
                     1.2, note=note),
            Measured("panel update in the page, the dearest of these", max(found.values()), "ms",
                     8.0),
        ]  # fmt: skip

    def trained(self, step_ms: float) -> list[Measured]:
        """A real training whose panel is open: how much longer it takes."""
        blocks, block_s = (4, 2.0) if self.quick else (20, 6.0)
        text = TRAINED.format(root=str(ROOT), step_ms=step_ms, blocks=blocks, block_s=block_s)
        with self.open([text, "ready.set()", "thread.join(); print(json.dumps(values))"]) as book:
            book.run(0)
            book.panel(0).locator(".plot-container").first.wait_for()
            book.run(1)
            book.context.set_default_timeout(600_000)
            book.page.set_default_timeout(600_000)
            book.run(2)
            values = _said(book, 2)
        value, low, high = of_the_median(values)
        return [Measured(f"training at {step_ms:g} ms a step, panel open: slow-down", value, "%",
                         3.0, low, high, note="interval of the median")]  # fmt: skip


def measure(quick: bool) -> list[Measured]:
    """All that needs a browser. Uses the package that is installed in this interpreter."""
    os.environ["OMP_NUM_THREADS"] = "1"
    found: list[Measured] = []
    with (
        tempfile.TemporaryDirectory() as home,
        JupyterServer(Path(home) / "home") as server,
        sync_playwright() as playwright,
        chromium(playwright) as browser,
    ):
        bench = Bench(server, browser, quick)
        parts: list[Callable[[], list[Measured]]] = [
            lambda: bench.clicks(False),
            lambda: bench.clicks(True),
            bench.updates,
            lambda: bench.trained(1.0),
            lambda: bench.trained(5.0),
        ]
        for part in parts:
            found += part()
            print(f"    {found[-1].what}", file=sys.stderr, flush=True)
            server.end_kernels()
    return found


def _said(book: OpenNotebook, index: int) -> Any:
    """What a cell printed as JSON; what went wrong, if it did not."""
    text = book.text(index)
    try:
        return json.loads(text)
    except ValueError:
        raise RuntimeError(book.told()) from None


def _task_s(page: CDPSession) -> float:
    metrics: list[dict[str, Any]] = page.send("Performance.getMetrics")["metrics"]
    return float(next(each["value"] for each in metrics if each["name"] == "TaskDuration"))
