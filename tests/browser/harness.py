"""Drives a notebook in JupyterLab or Notebook 7 with a real Chromium, as a person would."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Locator, Page, Playwright

from .server import JupyterServer

App = Literal["lab", "notebook"]
TIMEOUT_MS = 90_000.0
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Whatever a page asks of another host fails at once; `foreign_requests` tells what it was.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]
KERNEL_IS_IDLE = """() => {
  const widget = window.jupyterapp?.shell.currentWidget;
  return widget?.sessionContext?.session?.kernel?.status === "idle";
}"""
RUN_CELL = """(index) => {
  const notebook = window.jupyterapp.shell.currentWidget.content;
  notebook.activeCellIndex = index;
  notebook.deselectAll();
  const runs = (window.__runs ??= {});
  runs[index] = "running";
  window.jupyterapp.commands.execute("notebook:run-cell").then(
    () => { runs[index] = "done"; },
    (error) => { runs[index] = `failed: ${error}`; },
  );
}"""
CELL_IS_DONE = "(index) => window.__runs[index] !== 'running'"
OUTPUTS = """(index) =>
  window.jupyterapp.shell.currentWidget.content.widgets[index].model.outputs.toJSON()"""
INDEX_OF = """(id) => window.jupyterapp.shell.currentWidget.content.widgets.findIndex(
  (cell) => cell.model.id === id)"""
EXECUTE = "([command, args]) => window.jupyterapp.commands.execute(command, args).then(() => null)"


def find_chromium(playwright: Playwright) -> str:
    """Return the path of a Chromium: named by IT2NB_CHROMIUM, the system's, or Playwright's."""
    named = os.environ.get("IT2NB_CHROMIUM")
    if named:
        return named
    for name in ("chromium", "chromium-browser", "google-chrome"):
        path = shutil.which(name)
        if path:
            return path
    if Path(playwright.chromium.executable_path).exists():
        return playwright.chromium.executable_path
    raise RuntimeError(
        "no Chromium found; install the package chromium, run `playwright install chromium`, "
        "or set IT2NB_CHROMIUM to its path"
    )


@contextmanager
def chromium(playwright: Playwright) -> Iterator[Browser]:
    """Start Chromium with an empty profile, and end it."""
    browser = playwright.chromium.launch(
        executable_path=find_chromium(playwright), args=CHROMIUM_FLAGS
    )
    try:
        yield browser
    finally:
        browser.close()


class OpenNotebook:
    """One notebook in one browser window. Cells are counted from 0.

    Parameters
    ----------
    server : JupyterServer
    browser : Browser
    name : str
        The notebook's name without ``.ipynb``.
    app : {"lab", "notebook"}
    size : (int, int)
        Width and height of the window, CSS pixels.
    scale : float
        Device pixels to a CSS pixel, for screenshots.
    """

    def __init__(
        self,
        server: JupyterServer,
        browser: Browser,
        name: str,
        *,
        app: App = "lab",
        size: tuple[int, int] = (1400, 1000),
        scale: float = 1.0,
    ) -> None:
        self.server = server
        self.name = name
        self.app = app
        self.console: list[str] = []
        self.requests: list[str] = []
        self.context: BrowserContext = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, device_scale_factor=scale
        )
        self.context.set_default_timeout(TIMEOUT_MS)
        self.context.on("request", lambda request: self.requests.append(request.url))
        self.page: Page = self.new_page()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the window; the kernel goes on."""
        self.context.close()

    # ------------------------------------------------------------------------- open and run

    def new_page(self) -> Page:
        """Open the notebook in one more tab, and wait until its kernel is idle."""
        page = self.context.new_page()
        page.on("console", lambda message: self.console.append(f"{message.type}: {message.text}"))
        page.on(
            "pageerror", lambda error: self.console.append(f"pageerror: {error}\n{error.stack}")
        )
        page.on("websocket", lambda socket: self.requests.append(socket.url))
        place = "lab/tree/{}.ipynb?reset" if self.app == "lab" else "notebooks/{}.ipynb?"
        page.goto(f"{self.server.url}{place.format(self.name)}&token={self.server.token}")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_function(KERNEL_IS_IDLE)
        return page

    def index(self, cell_id: str) -> int:
        """Return the place of the cell with this id in the notebook file."""
        found: int = self.page.evaluate(INDEX_OF, cell_id)
        assert found >= 0, f"no cell has the id {cell_id!r}"
        return found

    def run(self, index: int, *, wait: bool = True) -> None:
        """Run one cell; with ``wait`` until the kernel has finished with it."""
        self.page.evaluate(RUN_CELL, index)
        if wait:
            self.wait(index)

    def wait(self, index: int) -> None:
        """Wait until a cell that was run has finished."""
        self.page.wait_for_function(CELL_IS_DONE, arg=index)
        state = self.page.evaluate("(index) => window.__runs[index]", index)
        assert state == "done", f"cell {index} {state}"

    def command(self, name: str, **args: Any) -> None:
        """Execute one of the application's own commands, such as ``docmanager:save``."""
        self.page.evaluate(EXECUTE, [name, args])

    def restart_kernel(self) -> None:
        """Restart the kernel without the question, and wait until it is idle."""
        self.page.evaluate(
            "() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()"
        )
        self.page.wait_for_function(KERNEL_IS_IDLE)

    # ----------------------------------------------------------------------------- look at

    def outputs(self, index: int) -> list[dict[str, Any]]:
        """Return a cell's outputs as they would be saved."""
        found: list[dict[str, Any]] = self.page.evaluate(OUTPUTS, index)
        return found

    def text(self, index: int) -> str:
        """Return a cell's outputs as text: streams, errors and text/plain in their order."""
        parts = []
        for output in self.outputs(index):
            match output["output_type"]:
                case "stream":
                    parts.append("".join(output["text"]))
                case "error":
                    parts.append(f"{output['ename']}: {output['evalue']}\n")
                case _:
                    parts.append("".join(output["data"].get("text/plain", "")) + "\n")
        return "".join(parts)

    def cell(self, index: int) -> Locator:
        """Return one cell on the page."""
        return self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{index}"]')

    def panel(self, index: int | None = None) -> Locator:
        """Return the panel below a cell, or the only one on the page, scrolled into view."""
        scope = self.page if index is None else self.cell(index)
        panel = scope.locator("section.it2")
        panel.first.wait_for()
        panel.first.scroll_into_view_if_needed()
        return panel.first

    @staticmethod
    def press(panel: Locator, action: str) -> None:
        """Press one of a panel's buttons by its action's name, and say yes where it asks."""
        panel.locator(f".it2-do-{action}").click()
        if action == "stop":
            panel.locator(".it2-drawer .it2-danger").click()

    @staticmethod
    def set_knob(panel: Locator, name: str, value: str) -> Locator:
        """Type a value into a knob's field; return the line that says what became of it."""
        knob = panel.locator(f'.it2-knob[data-knob="{name}"]')
        knob.locator("input.it2-number").fill(value)
        knob.locator("input.it2-number").press("Enter")
        return knob.locator(".it2-said")

    def screenshot(self, path: Path) -> Path:
        """Write what the window shows as a PNG."""
        self.page.screenshot(path=path)
        return path

    @property
    def script_errors(self) -> list[str]:
        """Errors that a page did not catch and that went through the panel's scripts.

        They come from the extension's folder or from blobs; Notebook 7 has errors of its own.
        """
        ours = ("extensions/it2nb", "blob:")
        thrown = [line for line in self.console if line.startswith("pageerror")]
        return [line for line in thrown if any(place in line for place in ours)]

    def told(self) -> str:
        """Return every cell's state and outputs, and the console: what went wrong is in it."""
        states = self.page.evaluate("() => window.__runs ?? {}")
        cells = [
            f"[{index}] {state}: {self.text(int(index))[-2000:]}" for index, state in states.items()
        ]
        return "\n".join([*cells, "console:", *self.console[-30:]])

    @property
    def foreign_requests(self) -> list[str]:
        """What was asked of any other host, in order."""
        own = {urlsplit(self.server.url).netloc, ""}
        return [url for url in self.requests if urlsplit(url).netloc not in own]
