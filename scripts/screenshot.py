"""Take the README's pictures of the panel from a real run in a real JupyterLab and Chromium.

    python -m scripts.screenshot docs

Writes ``panel.png`` and ``panel.gif``, a picture a step. Runs the quickstart with the package that
is installed in this interpreter, steers it a little, and takes them when there is something to see.
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests.browser.harness import OpenNotebook, chromium
from tests.browser.server import JupyterServer

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "notebooks" / "01_quickstart.ipynb"


def steer(book: OpenNotebook) -> list[bytes]:
    """Run the quickstart's cells up to its pause, with a hand on the panel; a picture a step."""
    frames: list[bytes] = []
    for cell in ("load", "data", "model", "loop", "until"):
        book.run(book.index(cell))
    panel = book.panel(book.index("loop"))
    frames.append(panel.screenshot())
    for name, value in (("lr", "1e-3"), ("shift", "5"), ("weight_decay", "much")):
        expect(book.set_knob(panel, name, value)).to_be_visible()
        frames.append(panel.screenshot())
    for cell in ("set-python", "evaluate"):
        book.run(book.index(cell))
        frames.append(book.panel(book.index("loop")).screenshot())
    return frames


def write_gif(frames: list[bytes], path: Path) -> None:
    """Put pictures one after the other, 900 pixels wide and of one height."""
    pictures = [Image.open(io.BytesIO(frame)).convert("RGB") for frame in frames]
    small = [each.resize((900, each.height * 900 // each.width)) for each in pictures]
    height = max(each.height for each in small)
    shown = []
    for each in small:
        page = Image.new("RGB", (900, height), "white")
        page.paste(each)
        shown.append(page.quantize(64))
    shown[0].save(path, save_all=True, append_images=shown[1:], duration=1_600, loop=0)


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
                write_gif(steer(book), folder / "panel.gif")
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
