"""A run to steer in a browser, and its panel as a person uses it."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Locator, Page

from .harness import OpenNotebook

#: A run on a thread of its own, without PyTorch; `lr` is what the next step would use.
RUN = """
import math, threading, time
from it2nb.core.session import Session
from it2nb.notebook.panel import Panel

class Run:
    lr = 1e-3

def begin(steps=10**9, rest=0.002, **more):
    run = Run()
    run.session = session = Session(directory=None, title="digits", watch=("loss", "acc"), **more)
    session.register_knob("lr", lambda: run.lr, lambda v: setattr(run, "lr", v),
                          min=1e-7, max=1e-1, scale="log", group="opt", description="rate")
    run.p = 0.1
    session.register_knob("dropout", lambda: run.p, lambda v: setattr(run, "p", v),
                          min=0.0, max=0.9, step=0.05)
    def train():
        with session.run():
            for i in range(steps):
                loss = math.nan if i == 30 else 2 / (i + 1)
                if session.step({"loss": loss, "acc": 1 - 1 / (i + 2)}).stop:
                    break
                if rest:
                    time.sleep(rest)
    run.thread = threading.Thread(target=train, daemon=True)
    run.thread.start()
    return run

run = begin()
panel = Panel(run.session, variable="run.session")
"""
SHOW = RUN + "display(panel)"

STORE = "(root) => root.it2nb.channel.store"


class Steered:
    """One view of a panel on a page."""

    def __init__(self, root: Locator) -> None:
        self.root = root
        self.page: Page = root.page

    @classmethod
    def under(cls, book: OpenNotebook, index: int, page: Page | None = None) -> Steered:
        """The panel below a cell, once it is live and its curves are drawn."""
        scope = book.cell(index) if page is None else page.locator(
            f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]'
        )  # fmt: skip
        root = scope.locator("section.it2[data-live]").first
        root.wait_for()
        root.scroll_into_view_if_needed()
        root.locator(".plot-container").first.wait_for()
        return cls(root)

    def knob(self, name: str) -> Locator:
        return self.root.locator(f'[data-knob="{name}"]')

    def slider(self, name: str) -> Locator:
        return self.knob(name).locator("input[type=range]")

    def field(self, name: str) -> Locator:
        return self.knob(name).locator("input[type=text]")

    def said(self, name: str) -> Locator:
        return self.knob(name).locator(".it2-said")

    def enter(self, name: str, text: str) -> None:
        self.field(name).fill(text)
        self.field(name).press("Enter")

    def store(self) -> dict[str, Any]:
        """What the page knows of the run (js/src/store.ts)."""
        found: dict[str, Any] = self.root.evaluate(STORE)
        return found

    def line(self, metric: str) -> dict[str, list[Any]]:
        """The points of a metric's newest line, NaN as None."""
        found: dict[str, list[Any]] = self.root.evaluate(
            "(root, name) => JSON.parse(JSON.stringify(root.it2nb.series.lines(name).at(-1)))",
            metric,
        )
        return found

    def results(self) -> list[dict[str, Any]]:
        return [row for row in self.store()["rows"] if row["type"] == "action_result"]
