"""The hand that records the workflows' runs, on a run of seconds."""

from __future__ import annotations

import json

import nbformat
import pytest

from scripts.record_run import BOOKS, HANDS, Touch, touch_all

from .conftest import OpenWith
from .steering import RUN, Steered

STEPS = 600
SHOW = RUN.replace("run = begin()", f"run = begin({STEPS}, 0.02, total_steps={STEPS})")
REQUESTS = """
frame = run.session.journal.requests()
frame[["type", "name", "source", "status", "step"]].to_json(orient="values")
"""
HAND = (
    Touch(0.1, "type", "lr", "2e-3"),
    Touch(0.2, "slide", "dropout", "4"),
    Touch(0.25, "type", "lr", "fast", "rejected"),
    Touch(0.3, "press", "pause"),
    Touch(0.3, "press", "resume"),
)


def test_a_hand_does_each_thing_when_the_run_is_so_far(open_notebook: OpenWith) -> None:
    book = open_notebook([SHOW + "\ndisplay(panel)", REQUESTS])
    book.run(0)
    touch_all(Steered.under(book, 0), HAND)
    book.run(1)
    found = [tuple(row) for row in json.loads(book.text(1).strip().strip("'"))]
    assert [row[:4] for row in found] == [
        ("set_knob", "lr", "panel", "applied"),
        ("set_knob", "dropout", "panel", "applied"),
        ("set_knob", "lr", "panel", "rejected"),
        ("pause", None, "panel", "applied"),
        ("resume", None, "panel", "applied"),
    ]
    for touch, row in zip(HAND, found, strict=True):
        assert row[4] >= touch.at * STEPS


@pytest.mark.parametrize("name", HANDS)
def test_each_notebook_has_the_cells_that_a_recording_hangs_on(name: str) -> None:
    book = nbformat.read(BOOKS / f"{name}.ipynb", as_version=4)
    ids = [cell.id for cell in book.cells if cell.cell_type == "code"]
    assert ids.index("loop") < ids.index("wait")
