from __future__ import annotations

import base64
import io
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from it2nb.core.goals import Goal
from it2nb.core.round_runner import run_rounds
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.notebook.panel import Panel
from it2nb.notebook.picture import SCALE, WIDTH, draw
from it2nb.notebook.static_view import StaticView, settle, summary
from it2nb.panel.rows import mark_of

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(directory=None, title="digits", watch=("loss", "acc"), total_steps=400)
    for number in range(27):
        made.register_knob(f"lr[{number}]", lambda: 3e-5, lambda value: None, group="opt")
    made.start()
    for step in range(300):
        loss = math.nan if step == 50 else 2 / (step + 1)
        made.step({"loss": loss, "acc": 0.5, EVIL: 1.0})
    yield made
    made.end()


def size_of(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", png[16:24])
    return width, height


def test_the_picture_is_sharp_and_small(session: Session) -> None:
    png = draw(session.state(), session.metrics)
    width, height = size_of(png)
    assert width == WIDTH * SCALE and height > 300
    # A panel adds under 50 kB to a saved notebook, base64 included.
    assert len(png) * 4 / 3 < 45_000


def test_the_past_of_the_runs_branch_has_the_colour_of_now() -> None:
    session = Session(directory=None, watch=("loss",))
    session.start()
    for branch in (0, 1):
        for _ in range(100):
            session.step({"loss": 1.0 + branch})
        if branch == 0:
            session.fork_branch(50, "back to step 50")
    from PIL import Image

    image = Image.open(io.BytesIO(draw(session.state(), session.metrics))).convert("RGB")
    session.end()
    red, green, blue = np.asarray(image)[60 * SCALE :].astype(int).transpose(2, 0, 1)
    columns = np.flatnonzero(((blue - red > 100) & (green < 150)).any(axis=0))
    # The curve of step 1 to 150 fills the plot from its left to its right edge.
    assert columns.min() < 60 * SCALE and columns.max() > (WIDTH - 60) * SCALE
    assert len(columns) > 0.9 * (WIDTH - 100) * SCALE


@pytest.mark.parametrize(
    "values", [[], [1.0], [math.nan] * 3, [0.0, 0.0], [1e308, -1e308], [math.inf]]
)
def test_any_curve_can_be_drawn(values: list[float]) -> None:
    session = Session(directory=None, watch=("loss",))
    session.start()
    for value in values:
        session.step({"loss": value})
    session.end(status="failed", error=f"RuntimeError: {EVIL} ✓ 数")
    assert size_of(draw(session.state(), session.metrics))[0] == WIDTH * SCALE


def test_the_bundle_is_strict_json_and_tells_state_values_and_the_python_call(
    session: Session,
) -> None:
    session.end()
    bundle = StaticView(session, "session", "id").bundle()
    json.dumps(bundle, allow_nan=False)
    assert set(bundle) == {"text/plain", "image/png"}
    size_of(base64.b64decode(bundle["image/png"]))
    text = bundle["text/plain"]
    assert "digits: finished, step 300 of 400" in text
    assert "loss 0.00666667" in text
    assert "lr[26]" in text and "3e-5" in text
    assert "session.journal.requests()" in text


def test_a_panel_says_what_it_is_where_nothing_can_be_shown(session: Session) -> None:
    # C31
    text = summary(session, "it2nb.current()", problem="no front end")
    assert "running, step 300" in text and "it2nb.current().set(" in text and "no front end" in text


class Shown:
    """Stands in for IPython's display functions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.first: list[dict[str, Any]] = []
        self.updates: list[dict[str, Any]] = []
        monkeypatch.setattr("IPython.display.display", lambda data, **_: self.first.append(data))
        monkeypatch.setattr(
            "IPython.display.update_display", lambda data, **_: self.updates.append(data)
        )


def test_it_is_renewed_at_the_end_and_not_at_every_turn(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(monkeypatch)
    view = StaticView(session, "session", "id")
    assert view.keep_up("running") is None  # nobody shows it
    view.show()
    for _ in range(5):
        assert (view.keep_up("running") or 0) > 0
    assert shown.updates == []
    session.end()
    assert view.keep_up("finished") is None
    view.keep_up("finished")
    view.freeze()
    assert len(shown.updates) == 1
    assert "finished" in shown.updates[0]["text/plain"]


def test_the_end_is_sent_once_by_whoever_waited_and_nothing_older_after_it(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(monkeypatch)
    view = StaticView(session, "session", "id")
    settle(session)
    assert shown.updates == []  # nobody shows it
    view.show()
    settle(session)
    session.end()
    for _ in range(2):
        settle(session)
    assert view.keep_up("running") is None
    assert view.keep_up("finished") is None
    texts = [each["text/plain"] for each in shown.updates]
    assert ["finished" in text for text in texts] == [False, True]


def test_a_sender_that_was_first_does_not_keep_the_waiting_cell_from_sending(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = Shown(monkeypatch)
    view = StaticView(session, "session", "id")
    view.show()
    session.end()
    view.keep_up("finished")  # perhaps for a cell that nobody listens to any more
    settle(session)
    assert len(shown.updates) == 2


def test_earlier_rounds_are_not_shown_as_the_one_under_way() -> None:
    session = Session(directory=None, title="digits", watch=("loss",), goal=Goal("val_loss"))
    values = {"lr": 0.1}
    session.register_knob("lr", lambda: values["lr"], lambda value: values.update(lr=value))
    told: list[tuple[bytes, bytes]] = []

    def train(session: Session, context: Any) -> None:
        for step in range(20):
            if step == 10 and context.round == 0:
                session.submit(Action(type="set_knob", payload={"name": "lr", "value": 0.2}))
            session.step({"loss": 1 / (step + 1)})
        if context.round == 0:
            session.report_eval({"val_loss": 0.5})
            return
        state = session.state()
        marks = [mark for mark in map(mark_of, session.journal.tail(99)) if mark is not None]
        assert any(mark.label.startswith("lr") and mark.round == 0 for mark in marks)
        own = [mark for mark in marks if mark.round == 1]
        told.append((draw(state, session.metrics, marks), draw(state, session.metrics, own)))
        watched = state.model_copy(update={"watch": ["val_loss"]})
        nothing = watched.model_copy(update={"metrics": {}})
        told.append((draw(watched, session.metrics), draw(nothing, session.metrics)))
        assert "digits: running, round 2 of 2, step 20" in summary(session, "session")

    run_rounds(session, train, 2)
    (marked, own), (valued, empty) = told
    assert marked == own, "the marks of the first round stand in the second one"
    assert valued == empty, "the first round's value stands as the second one's"


def test_where_there_is_no_live_panel_the_picture_is_of_the_end_too(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(panel: Panel) -> None:
        raise FileNotFoundError("loader.js")

    monkeypatch.setattr(Panel, "_open", cannot)
    shown = Shown(monkeypatch)
    panel = Panel(session)
    panel._ipython_display_()
    assert "loader.js" in str(panel.problem)
    assert "running" in shown.first[0]["text/plain"] and shown.updates == []
    session.end()
    (update,) = shown.updates
    assert "digits: finished, step 300" in update["text/plain"]
