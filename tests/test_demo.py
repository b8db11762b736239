"""The demo: a front end without a screen runs the quickstart with a hand on its panel."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

from scripts import demo
from scripts.kernel_client import CellError, KernelClient

from .conftest import ROOT


@pytest.mark.kernel
def test_every_press_of_the_demo_does_what_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IT2NB_SCALE", "0.05")
    out = tmp_path / "out"
    wrong = asyncio.run(demo.run(ROOT / "notebooks" / "01_quickstart.ipynb", out))
    assert wrong == []

    rows = [json.loads(line) for line in (out / "journal.jsonl").read_text().splitlines()]
    results = [row["payload"] for row in rows if row["type"] == "action_result"]
    pressed = [(r["type"], r["status"]) for r in results if r["source"] == "panel"]
    assert pressed == [(p.type, p.expected) for ps in demo.PRESSES.values() for p in ps]

    book = nbformat.read(out / "01_quickstart.ipynb", as_version=4)
    nbformat.validate(book)
    shown = {cell.id: cell.outputs for cell in book.cells if cell.cell_type == "code"}
    assert "panel" in str(shown["requests"])
    assert "stopped" in str(shown["wait"])


@pytest.mark.kernel
def test_a_cell_that_raises_is_told_and_ends_the_demo(tmp_path: Path) -> None:
    book = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell("print(1)\n1/0"), nbformat.v4.new_code_cell("2")]
    )
    nbformat.write(book, tmp_path / "broken.ipynb")
    wrong = asyncio.run(demo.run(tmp_path / "broken.ipynb", tmp_path / "out"))
    assert len(wrong) == 2
    assert "ZeroDivisionError" in wrong[0]
    assert wrong[1] == "no journal was written"
    first, second = nbformat.read(tmp_path / "out" / "broken.ipynb", as_version=4).cells
    assert [o.output_type for o in first.outputs] == ["stream", "error"]
    assert second.outputs == []


@pytest.mark.kernel
def test_outputs_land_under_their_own_cell_and_displays_are_updated(tmp_path: Path) -> None:
    async def run() -> tuple[list[Any], list[Any]]:
        first: list[Any] = []
        second: list[Any] = []
        async with KernelClient(tmp_path) as kernel:
            await kernel.execute("h = display('old', display_id=True); print('a'); 1", first)
            await kernel.execute("h.update('new'); print('b')", second)
            with pytest.raises(CellError, match="NameError"):
                await kernel.execute("nothing", [])
        return first, second

    first, second = asyncio.run(run())
    assert [o["data"]["text/plain"] for o in (first[0], first[2])] == ["'new'", "1"]
    assert (first[1]["text"], second[0]["text"], len(second)) == ("a\n", "b\n", 1)
