"""A tracker beside a run: what it gets, and that it can't do the run any harm."""

from __future__ import annotations

import importlib.util
import threading
from typing import Any

import pytest

import it2nb
from it2nb.core.errors import It2nbError, MissingDependency, SessionEnded
from it2nb.integrations import trackers
from it2nb.integrations.tracker import Mark, Point, RunInfo
from it2nb.notebook.commands import parse_cell
from it2nb.notebook.words import CommandError
from tests.integrations.trackers_contract import steered


class Kept:
    """Keeps what it is given."""

    name = "kept"

    def __init__(self) -> None:
        self.run: RunInfo | None = None
        self.taken: list[Point] = []
        self.marks: list[Mark] = []
        self.status = ""

    def open(self, run: RunInfo) -> None:
        self.run = run

    def points(self, points: list[Point]) -> None:
        self.taken += points

    def mark(self, mark: Mark) -> None:
        self.marks.append(mark)

    def close(self, status: str) -> None:
        self.status = status


class Broken(Kept):
    name = "broken"

    def points(self, points: list[Point]) -> None:
        raise ConnectionError("nobody answers")


class Hanging(Kept):
    name = "hanging"

    def __init__(self) -> None:
        super().__init__()
        self.let_go = threading.Event()

    def open(self, run: RunInfo) -> None:
        self.let_go.wait(60)


def faults(session: it2nb.TrainingSession) -> list[dict[str, Any]]:
    return [row.payload for row in session.journal.since(0) if row.type == "tracker_failed"]


def test_a_tracker_gets_every_metric_and_intervention_in_their_order():
    session = it2nb.TrainingSession("loss", directory=None, title="kept", seed=5)
    tracker = Kept()
    session.track(tracker)
    steered(session)
    assert tracker.run is not None and tracker.run.seed == 5
    steps = [(point.lane, point.step) for point in tracker.taken]
    assert steps == [("", n) for n in range(1, 31)] + [("branch_1", n) for n in range(21, 26)]
    kinds = {mark.text: mark.kind for mark in tracker.marks}
    assert kinds["set_knob lr: 0.1 → 0.05 (python)"] == "change"
    assert kinds["looks fine"] == "note"
    assert [m.kind for m in tracker.marks if "no_such_knob" in m.text] == ["refused"]
    assert tracker.status == "finished"


def test_the_status_of_a_stopped_run_is_told():
    session = it2nb.TrainingSession(directory=None)
    tracker = Kept()
    session.track(tracker)
    with session.run():
        session.do("stop")
        session.step({"loss": 1.0})
    assert tracker.status == "stopped"


def test_the_status_of_a_failed_run_is_told():
    session = it2nb.TrainingSession(directory=None)
    tracker = Kept()
    session.track(tracker)
    with pytest.raises(ValueError, match="broke"), session.run():
        session.step({"loss": 1.0})
        raise ValueError("broke")
    assert tracker.status == "failed"


def test_a_tracker_that_fails_is_a_row_and_the_run_goes_on():
    session = it2nb.TrainingSession(directory=None)
    tracking = session.track(Broken())
    steered(session)
    assert session.status == "finished"
    assert tracking is not None and tracking.error == "ConnectionError: nobody answers"
    assert {"tracker": "broken", "error": "ConnectionError: nobody answers"} in faults(session)


def test_a_tracker_that_can_not_even_begin_is_a_row():
    class Closed(Kept):
        def open(self, run: RunInfo) -> None:
            raise PermissionError("no")

    session = it2nb.TrainingSession(directory=None)
    tracking = session.track(Closed())
    steered(session)
    assert tracking is not None and tracking.is_over
    assert faults(session) == [{"tracker": "kept", "error": "PermissionError: no"}]


def test_a_tracker_that_hangs_does_not_keep_the_end_of_the_run_waiting():
    session = it2nb.TrainingSession(directory=None)
    tracker = Hanging()
    tracking = session.track(tracker, end_wait_s=0.2)
    steered(session)
    assert session.is_ended and session.status == "finished"
    assert tracking is not None and not tracking.is_over
    assert "not done 0.2 s after the end" in faults(session)[-1]["error"]
    tracker.let_go.set()


def test_a_tracker_that_is_too_slow_hears_how_much_it_missed(monkeypatch):
    monkeypatch.setattr("it2nb.integrations.tracking.MAILBOX", 50)
    session = it2nb.TrainingSession(directory=None)
    tracker = Hanging()
    tracking = session.track(tracker)
    with session.run():
        for _ in range(300):
            session.step({"loss": 1.0})
        session.journal.seal()
        tracker.let_go.set()
    assert tracking is not None and tracking.skipped > 200
    assert "events were skipped: the tracker was too slow" in tracker.marks[0].text


def test_closing_a_tracking_ends_its_tracker_and_not_the_run():
    session = it2nb.TrainingSession(directory=None)
    tracker = Kept()
    tracking = session.track(tracker)
    assert tracking is not None
    with session.run():
        session.step({"loss": 1.0})
        tracking.close()
        assert tracking.is_over and len(tracker.taken) == 1
        session.step({"loss": 2.0})
    assert len(tracker.taken) == 1


@pytest.mark.parametrize("name", trackers.NAMES)
def test_a_missing_extra_is_named_and_nothing_is_begun(name, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
    session = it2nb.TrainingSession(directory=None)
    with pytest.raises(MissingDependency, match=rf"pip install 'it2nb\[{name}\]'"):
        session.track(name)
    assert not session.warnings


def test_wrong_names_options_and_ended_runs_are_refused():
    session = it2nb.TrainingSession(directory=None)
    with pytest.raises(It2nbError, match="did you mean 'tensorboard'"):
        session.track("tensorbord")
    with pytest.raises(It2nbError, match="project: a tracker that is made already"):
        session.track(Kept(), project="x")
    session.end()
    with pytest.raises(SessionEnded, match="track a run before it ends"):
        session.track(Kept())


def test_the_magic_takes_trackers_by_name():
    options = parse_cell("--track tensorboard,mlflow --track wandb")
    assert options.track == ("tensorboard", "mlflow", "wandb")
    with pytest.raises(CommandError, match="did you mean 'wandb'"):
        parse_cell("--track wand")
