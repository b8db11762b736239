"""The life of a run: its beginning, its one end, and the wait for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import Any

import pytest

from it2nb.core.control import CONTINUE, StopTraining
from it2nb.core.errors import SessionEnded
from it2nb.core.session import Session
from it2nb.core.wire import Action
from tests.core.driving import LIMIT_S, Loop
from tests.core.sessions import made, rows


@pytest.mark.parametrize("how", ["finish", "raise", "stop", "end"])
def test_rule_2_however_the_run_ends_what_waits_gets_a_result(how: str) -> None:
    _, session = made()
    handles: list[Any] = []

    def ask() -> None:
        handles.extend(
            session.submit(Action(type="set_knob", payload={"name": "lr", "value": 0.5}))
            for _ in range(3)
        )

    def train() -> None:
        with session.run():
            session.step()
            if how == "stop":
                session.submit(Action(type="stop"))
            ask()
            if how == "raise":
                raise ValueError("boom")
            if how == "stop":
                assert session.step().stop

    if how == "raise":
        with pytest.raises(ValueError, match="boom"):
            train()
    elif how == "end":
        session.start()
        ask()
        session.end()
    else:
        train()
    results = [handle.result(0) for handle in handles]
    assert [each.status for each in results] == ["cancelled"] * 3
    late = session.submit(Action(type="pause"))
    assert late.result(0).status == "rejected"
    assert "over" in (late.result(0).reason or "")
    ids = [row["id"] for row in rows(session, "action_result")]
    assert len(ids) == len(set(ids))


def test_rule_2_a_process_that_exits_in_good_order_seals_the_journal(tmp_path: Any) -> None:
    script = (
        "from it2nb.core.session import Session\n"
        "s = Session(directory='it2runs', run_id='r')\n"
        "s.register_knob('x', lambda: 0.0, lambda v: None)\n"
        "s.step({'loss': 1.0})\n"
        "s.submit({'type': 'pause'})\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, timeout=60)
    from it2nb.core.opened import open as open_run

    opened = open_run(tmp_path / "it2runs" / "r" / "journal.jsonl")
    statuses = [
        event.payload["status"] for event in opened.since(0) if event.type == "action_result"
    ]
    assert statuses == ["cancelled"]
    opened.verify()


def test_a_wait_for_a_paused_run_says_that_it_waits_to_be_resumed() -> None:
    session = Session(directory=None)
    session.start()
    session.change_status("paused")
    with pytest.raises(TimeoutError, match=r"still paused .* waits to be resumed") as caught:
        session.wait(0.01)
    assert "goes on:" not in str(caught.value)
    session.finish()


def test_wait_times_out_without_ending_the_run_and_raises_what_the_loop_raised() -> None:
    _, session = made()
    loop = Loop(session)
    loop.advance()
    with pytest.raises(TimeoutError, match="it goes on"):
        session.wait(0.01)
    assert session.status == "running"
    loop.finish()
    assert session.wait(LIMIT_S) == "finished"

    _, other = made()

    def train() -> None:
        with pytest.raises(ValueError), other.run():
            other.step()
            raise ValueError("boom")

    thread = threading.Thread(target=train)
    thread.start()
    with pytest.raises(ValueError, match="boom"):
        other.wait(LIMIT_S)
    thread.join(LIMIT_S)
    assert (other.status, other.error) == ("failed", "ValueError: boom")


def test_a_run_has_one_beginning_and_one_end() -> None:
    _, session = made()
    with session.run():
        session.step()
        with pytest.raises(SessionEnded, match="runs already"), session.run():
            pass
        session.step()
    assert (session.status, session.step_count) == ("finished", 2)
    with pytest.raises(SessionEnded, match="is over"), session.run():
        pass
    with pytest.warns(UserWarning, match="nothing of what comes now is recorded"):
        assert session.step({"loss": 1.0}) is CONTINUE
    assert session.step({"loss": 1.0}) is CONTINUE


def test_a_script_that_is_paused_on_its_main_thread_says_why(
    capfd: pytest.CaptureFixture[str],
) -> None:
    _, session = made()
    with session.run():
        session.step()
        session.alert("non-finite loss")
        session.submit(Action(type="pause"))
        session.submit(Action(type="resume"))
        session.step()
        assert capfd.readouterr().err == ""
        session.submit(Action(type="pause"))
        waker = threading.Timer(0.05, lambda: session.submit(Action(type="resume")))
        waker.start()
        session.step()
        waker.join()
    assert "is paused after step 3 (non-finite loss); it goes on with resume" in (
        capfd.readouterr().err
    )


@pytest.mark.parametrize(
    "end, status",
    [
        (lambda s: s.end(), "finished"),
        (lambda s: s.finish("stopped"), "stopped"),
        (lambda s: s.fail(ValueError("no")), "failed"),
        (lambda s: (s.end(), s.end("failed")), "finished"),
    ],
)
def test_a_handler_that_ends_the_run_has_its_result_in_the_journal(end: Any, status: str) -> None:
    _, session = made()
    session.action("over", "ends the run")(lambda: (end(session), {"said": 1})[1])
    with session.run():
        session.step({"loss": 1.0})
        handle, later = session.do("over"), session.submit(session_set(0.5))
        assert session.step({"loss": 1.0}).stop
    assert session.status == status
    assert handle.result(0).status == "applied"
    assert later.result(0).status == "cancelled"
    written = [(row["type"], row["status"]) for row in rows(session, "action_result")]
    assert written == [("over", "applied"), ("set_knob", "cancelled")]


def test_a_handler_that_ends_the_run_and_raises_has_failed_in_the_journal() -> None:
    _, session = made()

    def over() -> None:
        session.end()
        raise ValueError("no")

    session.action("over", "ends the run")(over)
    with session.run():
        session.pump()
        session.do("over")
        session.pump()
    assert session.status == "finished"
    assert [row["status"] for row in rows(session, "action_result")] == ["failed"]


def session_set(value: float) -> dict[str, Any]:
    return {"type": "set_knob", "payload": {"name": "lr", "value": value}}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, StopTraining, GeneratorExit])
def test_whatever_a_callback_of_the_end_raises_the_run_is_ended_and_sealed(
    error: type[BaseException],
) -> None:
    _, session = made()
    called: list[str] = []

    def bad() -> None:
        called.append("bad")
        raise error

    session.on_end(bad)
    session.on_end(lambda: called.append("good"))
    session.when_ended(bad)
    session.when_ended(lambda: called.append("told"))
    with session.run():
        session.step({"loss": 1.0})
    session.end()
    assert called == ["bad", "good", "bad", "told"]
    assert session.status == "finished" and session.is_ended
    assert any(f"on_end bad: {error.__name__}" in each for each in session.warnings)
    report = session.journal.verify()
    assert report is not None and report.is_sealed


def test_ctrl_c_in_a_callback_of_the_end_passes_on_once_when_the_run_is_sealed() -> None:
    _, session = made()

    def press() -> None:
        signal.raise_signal(signal.SIGINT)

    session.on_end(press)
    session.start()
    with pytest.raises(KeyboardInterrupt):
        session.finish()
    session.finish()
    assert session.status == "finished"
    report = session.journal.verify()
    assert report is not None and report.is_sealed


def test_a_callback_of_the_end_may_end_the_run_and_ask_to_be_told() -> None:
    _, session = made()
    told: list[str] = []

    def again() -> None:
        session.when_ended(lambda: told.append(session.status))
        session.finish("stopped")

    session.on_end(again)
    session.start()
    thread = threading.Thread(target=session.finish, daemon=True)
    thread.start()
    thread.join(LIMIT_S)
    assert not thread.is_alive()
    assert told == ["stopped"] and rows(session, "status_changed")[-1] == {"status": "stopped"}
