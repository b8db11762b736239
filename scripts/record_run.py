"""Record workflows' notebooks with a hand on the panel: JupyterLab in a real Chromium.

    python -m scripts.record_run 03_sentiment_mixing

Runs every cell at laptop scale with the package that is installed in this interpreter. While the
loop trains, numbers are typed, sliders moved and buttons pressed in the panel below its cell; the
notebook's own cells steer from the prompt as they stand. Then keeps all of it: the outputs in the
notebook, the journals with the manifest of their hashes in it2nb/assets/runs, and the tables of
docs/workflows.md that are computed from them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat
from playwright.sync_api import Browser, expect, sync_playwright

from it2nb.workflows.recorded import FOLDER
from scripts import demo, workflow_runs, workflow_tables
from tests.browser.harness import OpenNotebook, chromium
from tests.browser.server import JupyterServer
from tests.browser.steering import Steered

BOOKS = Path(__file__).resolve().parent.parent / "notebooks"
#: Of one cell; runs of minutes are waited for.
CELL_MS = 3_600_000.0
ANSWER_MS = 60_000.0


@dataclass(frozen=True)
class Touch:
    """One thing that a hand does in the panel.

    Attributes
    ----------
    at : float
        Share of the run that is done by then.
    how : {"type", "slide", "press"}
        Type `value` into a knob's field, move its slider by `value` of its 200 ticks with the
        arrow keys, or press the button of an action.
    what : str
        A knob's name, or an action's.
    value : str
    said : str
        Part of what the panel answers below the knob.
    """

    at: float
    how: Literal["type", "slide", "press"]
    what: str
    value: str = ""
    said: str = "applied"


#: By notebook: before its own steering cells, and while it waits for the end.
HANDS: dict[str, tuple[Sequence[Touch], Sequence[Touch]]] = {
    "02_hf_sentiment": (
        (Touch(0.15, "type", "weight_decay", "0.05"), Touch(0.2, "slide", "max_grad_norm", "-10")),
        (Touch(0.8, "press", "evaluate"),),
    ),
    "03_sentiment_mixing": (
        (
            Touch(0.1, "type", "weight/films", "2"),
            Touch(0.15, "slide", "weight/tweets", "20"),
            Touch(0.2, "type", "clip", "much", "rejected"),
        ),
        (Touch(0.7, "type", "lr", "2.5e-4"), Touch(0.8, "press", "evaluate")),
    ),
    "04_layerwise_gpt": (
        (
            Touch(0.08, "type", "lr[block.0]", "5e-4"),
            Touch(0.12, "slide", "lr[embedding]", "6"),
            Touch(0.15, "type", "clip", "none", "rejected"),
        ),
        (Touch(0.7, "type", "lr", "5e-4"), Touch(0.9, "press", "save_checkpoint")),
    ),
    "05_muon_adamw_gpt": (
        (
            Touch(0.1, "slide", "muon.lr", "-6"),
            Touch(0.2, "type", "muon.lr", "fast", "rejected"),
        ),
        (Touch(0.7, "type", "muon.lr", "1e-2"), Touch(0.8, "press", "evaluate")),
    ),
    "06_rlvr_countdown": (
        (
            Touch(0.1, "type", "temperature", "1.1"),
            Touch(0.2, "slide", "entropy", "20"),
        ),
        (Touch(0.75, "type", "kl", "0.1"), Touch(0.8, "press", "evaluate")),
    ),
}


def touch_all(panel: Steered, touches: Sequence[Touch]) -> None:
    """Do what a hand does in the panel, each thing when the run is so far."""
    for touch in touches:
        panel.page.wait_for_function(
            "([root, share]) => {"
            " const head = root.it2nb.channel.store.head;"
            " return head !== null && head.step >= share * head.total_steps; }",
            arg=[panel.root.element_handle(), touch.at],
        )
        match touch.how:
            case "press":
                before = len(panel.results())
                OpenNotebook.press(panel.root, touch.what)
                panel.page.wait_for_function(
                    "([root, before]) => root.it2nb.channel.store.rows"
                    ".filter((row) => row.type === 'action_result').length > before",
                    arg=[panel.root.element_handle(), before],
                )
                continue
            case "type":
                panel.enter(touch.what, touch.value)
            case "slide":
                ticks = int(touch.value)
                for _ in range(abs(ticks)):
                    panel.slider(touch.what).press("ArrowRight" if ticks > 0 else "ArrowLeft")
        expect(panel.said(touch.what)).to_contain_text(touch.said, timeout=ANSWER_MS)
        print(f"  {touch.what}: {panel.said(touch.what).inner_text()}", flush=True)


def run_all(server: JupyterServer, browser: Browser, name: str) -> dict[str, list[Any]]:
    """Run a notebook's cells; return their outputs by the cells' ids."""
    early, late = HANDS[name]
    cells = [c for c in nbformat.read(BOOKS / f"{name}.ipynb", 4).cells if c.cell_type == "code"]
    # As high as a person's window can be: what is far out of it is not drawn.
    with OpenNotebook(server, browser, name, size=(1440, 1400)) as book:
        book.context.set_default_timeout(CELL_MS)
        try:
            for cell in cells:
                index = book.index(cell.id)
                book.run(index, wait=False)
                if cell.id == "wait":
                    touch_all(Steered.under(book, book.index("loop")), late)
                book.wait(index)
                if "Error" in book.text(index):
                    raise RuntimeError(f"cell {cell.id}: {book.text(index)}")
                if cell.id == "loop":
                    touch_all(Steered.under(book, index), early)
                print(f"{name}: {cell.id}", flush=True)
            return {cell.id: book.outputs(book.index(cell.id)) for cell in cells}
        except BaseException:
            # Whatever ends it, a timeout or Ctrl-C: the page's own words are the way to the cause.
            print(book.told(), file=sys.stderr)
            raise


def record(name: str, browser: Browser, scale: str, site: Path | None) -> None:
    """Record one notebook and keep what came of it."""
    path = BOOKS / f"{name}.ipynb"
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        with JupyterServer(home, site=site) as server:
            server.put_notebook(name, path)
            outputs = run_all(server, browser, name)
            server.end_kernels()
        shutil.copy(path, home)
        file = FOLDER / "manifest.json"
        manifest = json.loads(file.read_text())
        workflow_runs.keep(home, scale, manifest)
        file.write_text(json.dumps(dict(sorted(manifest.items())), indent=1) + "\n")
    book = nbformat.read(path, as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(each) for each in outputs[cell.id]]
    demo.write(book, path, static=True)
    workflow_tables.main()


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("notebook", nargs="+", choices=HANDS)
    parser.add_argument("--scale", default="laptop")
    parser.add_argument("--site", type=Path, help="of `pip install --target`, else the installed")
    asked = parser.parse_args(arguments)
    # The server's kernels inherit these; one thread, so that a replay elsewhere has a chance.
    os.environ |= {"IT2NB_SCALE": asked.scale, "OMP_NUM_THREADS": "1"}
    with sync_playwright() as playwright, chromium(playwright) as browser:
        for name in asked.notebook:
            record(name, browser, asked.scale, asked.site)
    return 0


if __name__ == "__main__":
    sys.exit(main())
