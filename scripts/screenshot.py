"""Take the README's picture of the panel from a real run in a real JupyterLab and Chromium.

    python -m scripts.screenshot docs

Writes ``panel.png``. Runs the quickstart with the package that is installed in this interpreter,
steers it a little, and takes the picture when there is something to see.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.browser.harness import OpenNotebook, chromium
from tests.browser.server import JupyterServer

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "notebooks" / "01_quickstart.ipynb"


def steer(book: OpenNotebook) -> None:
    """Run the quickstart's cells up to its pause, with a hand on the panel."""
    for cell in ("load", "data", "model", "loop", "until"):
        book.run(book.index(cell))
    panel = book.panel(book.index("loop"))
    for name, value in (("lr", "1e-3"), ("shift", "5"), ("weight_decay", "much")):
        expect(book.set_knob(panel, name, value)).to_be_visible()
    for cell in ("set-python", "evaluate"):
        book.run(book.index(cell))


def main(folder: Path) -> None:
    """Write the pictures into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    # The kernel inherits these: a shorter run, and one that does not wait for a busy machine.
    os.environ |= {"IT2NB_SCALE": "0.1", "OMP_NUM_THREADS": "1"}
    with (
        tempfile.TemporaryDirectory() as home,
        JupyterServer(Path(home) / "home") as server,
        sync_playwright() as playwright,
        chromium(playwright) as browser,
    ):
        server.put_notebook("quickstart", QUICKSTART)
        with OpenNotebook(server, browser, "quickstart", size=(1440, 1400), scale=1.5) as book:
            try:
                steer(book)
                book.panel(book.index("loop")).screenshot(path=folder / "panel.png")
            except BaseException:
                print(book.told(), file=sys.stderr)
                raise
        server.end_kernels()
    print(folder / "panel.png")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m scripts.screenshot FOLDER")
    main(Path(sys.argv[1]))
