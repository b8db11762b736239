"""Pictures of the panel at three widths and in two themes, without a kernel.

    python scripts/panel_shots.py OUT [--story paused|failed|many] [--unfolded]

Needs what `npm --prefix js run build` makes, and a Chromium.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import sync_playwright

from tests.browser.harness import chromium

JS = Path(__file__).resolve().parents[1] / "js"
WIDTHS = (480, 900, 1400)
THEMES = ("light", "dark")


@contextmanager
def dev_page() -> Iterator[str]:
    """Serve js/dev and yield its address."""
    vite = [str(JS / "node_modules" / ".bin" / "vite"), "dev", "--port", "5199"]
    server = subprocess.Popen(vite, cwd=JS, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        for line in server.stdout:
            plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
            found = re.search(r"http://127\.0\.0\.1:\d+/", plain)
            if found:
                break
        else:
            raise RuntimeError("vite did not start; run npm --prefix js ci")
        yield found.group() + "dev/index.html"
    finally:
        server.terminate()
        server.wait()


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--story", default="")
    parser.add_argument("--unfolded", action="store_true", help="with the folded sections open")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    story = f"&story={options.story}" if options.story else ""
    with dev_page() as address, sync_playwright() as playwright, chromium(playwright) as browser:
        for theme in THEMES:
            for width in WIDTHS:
                # Tall enough: curves that nobody sees are not drawn.
                page = browser.new_page(viewport={"width": width, "height": 1500})
                page.on("console", lambda message: print(message.type, message.text))
                page.on("pageerror", lambda error: print("error", error))
                page.goto(f"{address}?theme={theme}{story}")
                page.wait_for_selector(".it2-plot-area .plot-container")
                page.wait_for_timeout(700)  # all plots are drawn, one a frame
                suffix = f"-{options.story}" if options.story else ""
                panel = page.locator("section.it2")
                if options.unfolded:
                    suffix += "-unfolded"
                    for summary in panel.locator("details:not([hidden], [open]) > summary").all():
                        summary.click()
                panel.screenshot(path=options.out / f"{theme}-{width}{suffix}.png")
                page.close()


if __name__ == "__main__":
    main(sys.argv[1:])
