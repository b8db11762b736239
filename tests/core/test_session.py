"""A session as one: faults, the disk, branches, copies, forks."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading
import warnings
import weakref
from typing import Any

import pytest

from it2nb.core.control import CONTINUE
from it2nb.core.errors import It2nbError
from it2nb.core.session import Session
from it2nb.core.wire import Action
from tests.core.driving import LIMIT_S, Loop, until
from tests.core.sessions import made, rows


def test_rule_6_faults_at_every_boundary_are_rows_and_the_run_goes_on() -> None:
    _, session = made()

    def boom(*_: Any) -> Any:
        raise RuntimeError("boom")

    session.register_knob("broken", boom, boom)
    session.every(1, boom)
    session.before_change(boom)
    session.on_end(boom)
    session.on_evaluate(boom)
    with session.run():
        for _ in range(5):
            session.step({"loss": 0.5, "odd": object(), "text": "three"})
        assert session.submit(Action(type="evaluate"), wait=True).status == "failed"
        assert (
            session.submit(
                Action(type="set_knob", payload={"name": "broken", "value": 1.0}), wait=True
            ).status
            == "failed"
        )
        assert session.state().step == 5
    assert session.status == "finished"
    assert any("boom" in row["text"] for row in rows(session, "note"))


def test_rule_7_nobody_sees_a_result_before_its_write_has_returned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, session = made()
    loop = Loop(session)
    loop.advance()
    mailbox = session.subscribe()
    handle = session.submit(Action(type="set_knob", payload={"name": "lr", "value": 0.5}))
    reached, release = threading.Event(), threading.Event()
    write = os.write

    def slow(fd: int, data: Any) -> int:
        if b"action_result" in bytes(data):
            reached.set()
            assert release.wait(LIMIT_S)
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow)
    loop.advance(wait=False)
    assert reached.wait(LIMIT_S)
    assert not handle.done()
    assert handle.status == "pending"
    assert "action_result" not in [event.type for event in mailbox.drain()[0]]
    release.set()
    loop.came_back()
    assert handle.result(LIMIT_S).durable
    until(lambda: "action_result" in [event.type for event in mailbox.drain()[0]])
    loop.finish()


def test_rule_7_a_full_disk_costs_durability_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cell, session = made()
    write = os.write
    full = threading.Event()

    def limited(fd: int, data: Any) -> int:
        if full.is_set():
            write(fd, bytes(data)[:7])  # the disk fills up in mid-line
            raise OSError(28, "No space left on device")
        return write(fd, data)

    with session.run():
        session.step({"loss": 1.0})
        monkeypatch.setattr(os, "write", limited)
        full.set()
        result = session.submit(
            Action(type="set_knob", payload={"name": "lr", "value": 0.5}), wait=True
        )
        assert (result.status, result.durable, cell["lr"]) == ("applied", False, 0.5)
        session.step({"loss": 0.5})
        assert session.state().degraded
        full.clear()
        session.step({"loss": 0.4})
    from it2nb.core.opened import open as open_run

    assert session.path is not None
    open_run(session.path).verify()


def test_c13_a_step_number_that_goes_back_opens_a_branch_and_drops_nothing() -> None:
    _, session = made()
    with session.run():
        for step in range(1, 31):
            session.step({"loss": 1.0}, step=step)
        for step in range(11, 41):
            session.step({"loss": 0.5}, step=step)
    frame = session.metrics.frame()
    assert len(frame) == 60
    assert not frame.duplicated(["branch_id", "step"]).any()
    assert list(frame["branch_id"].unique()) == [0, 1]
    assert (session.branches[1].parent, session.branches[1].step) == (0, 10)
    events = [event for event in session.journal.since(0) if event.type == "metrics"]
    assert len(events) == 60


def test_two_metrics_logged_for_one_step_from_two_places_are_one_row() -> None:
    _, session = made()
    with session.run():
        session.step({"loss": 1.0}, step=1)
        session.step({"acc": 0.5}, step=1, act=False)
        session.record({"val": 2.0})
    frame = session.metrics.frame()
    assert len(frame) == 1
    assert frame[["loss", "acc", "val"]].to_numpy().tolist() == [[1.0, 0.5, 2.0]]


def test_a_deep_copy_is_the_session_itself_and_pickle_explains_itself() -> None:
    _, session = made()
    assert copy.deepcopy({"s": session})["s"] is session
    assert copy.copy(session) is session
    with pytest.raises(TypeError, match=r"it2nb\.open"):
        pickle.dumps(session)


def test_a_forked_child_is_inert(tmp_path: Any) -> None:
    _, session = made()
    with session.run():
        session.step({"loss": 1.0})
        before = session.path.read_bytes() if session.path else b""
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                # C54: a loop that trains in the child is told that nobody hears of it.
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    controls = [session.step({"loss": 2.0}), session.pump()]
                session.emit("note", {"text": "from the child"})
                told = [str(each.message) for each in caught]
                fine = len(told) == 1 and "inside of what is launched" in told[0]
                code = 0 if fine and controls == [CONTINUE, CONTINUE] else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert session.path is not None and session.path.read_bytes() == before
        session.step({"loss": 3.0})


def test_c77_a_failed_run_keeps_text_and_not_the_frames_of_the_loop() -> None:
    class Big:
        pass

    _, session = made()

    def train() -> weakref.ref[Big]:
        big = Big()
        ref = weakref.ref(big)
        with session.run():
            session.step()
            raise ValueError("boom")
        return ref

    refs: list[weakref.ref[Any]] = []

    def outer() -> None:
        big = Big()
        refs.append(weakref.ref(big))
        try:
            with session.run():
                session.step()
                raise ValueError("boom")
        except ValueError:
            pass

    outer()
    gc.collect()
    assert refs[0]() is None
    assert session.error == "ValueError: boom"


def test_prefix_reads_of_state_never_raise_while_training_runs() -> None:
    _, session = made()
    loop = Loop(session)
    loop.advance(20)
    state = session.state()
    assert (state.step, state.status) == (20, "running")
    assert [knob.name for knob in state.knobs] == ["lr"]
    loop.finish()
    over = session.state()
    assert over.status == "finished"
    assert not any(action.enabled for action in over.actions)


@pytest.mark.parametrize(
    "run_id", ["../out", "/abs", "..", "a/b", "a\\b", "x" * 300, "\n", 5, b"x"]
)
def test_a_run_id_never_leads_out_of_its_directory(run_id: Any) -> None:
    with pytest.raises(It2nbError, match="name of a folder"):
        Session(run_id=run_id)


def test_a_journal_file_that_is_replaced_is_told_of_in_the_state() -> None:
    _, session = made()
    with session.run():
        session.step({"loss": 1.0})
        assert session.path is not None
        other = session.path.with_name("other")
        other.write_bytes(b"hi\n")
        os.replace(other, session.path)
        session.journal.seal()
        [told] = session.state().warnings
        assert told.startswith("the journal's file was replaced by another")
    report = session.journal.verify()
    assert report is not None and report.is_sealed
