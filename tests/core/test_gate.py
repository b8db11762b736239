"""Control points: where requests get in, what the loop owes, pauses and stops."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from it2nb.core.control import CONTINUE, StopTraining
from it2nb.core.errors import WrongThread
from it2nb.core.session import Session
from it2nb.core.wire import Action, ActionResult
from tests.core.driving import LIMIT_S, Loop, until
from tests.core.sessions import made


def test_rule_1_setters_run_on_the_training_thread_at_a_control_point_only() -> None:
    cell, session = made()
    where: list[str] = []

    def put(value: float) -> None:
        where.append(threading.current_thread().name)
        cell["wd"] = value

    cell["wd"] = 0.0
    session.register_knob("wd", lambda: cell["wd"], put)
    loop = Loop(session, read=lambda: cell["wd"])
    loop.advance()
    handle = session.submit(Action(type="set_knob", payload={"name": "wd", "value": 0.5}))
    assert cell["wd"] == 0.0 and not handle.done()
    loop.advance()
    assert handle.result(LIMIT_S).status == "applied"
    loop.advance()
    loop.finish()
    assert loop.used == [0.0, 0.0, 0.5]
    assert where == ["training"]


def test_rule_1_a_control_point_on_another_thread_is_refused() -> None:
    _, session = made()
    loop = Loop(session)
    loop.advance()
    with pytest.raises(WrongThread, match="training"):
        session.step({"loss": 1.0})
    with pytest.raises(WrongThread):
        session.record({"loss": 1.0})
    loop.finish()


def test_rule_3_an_evaluation_by_function_carries_its_metrics() -> None:
    _, session = made()
    session.on_evaluate(lambda: {"val_loss": 0.25})
    with session.run():
        session.step({"loss": 1.0})
        result = session.submit(Action(type="evaluate"), wait=True)
        assert result.status == "applied"
        assert result.data == {"val_loss": 0.25}
    assert session.metrics.latest()["val_loss"] == (1, 0.25)


def test_rule_3_what_the_loop_does_itself_is_applied_when_it_reports_it() -> None:
    _, session = made()
    with session.run():
        session.step()
        wanted = [
            session.submit(Action(type="evaluate")),
            session.submit(Action(type="save_checkpoint", payload={"tag": "best"})),
            session.submit(Action(type="load_checkpoint", payload={"path": "a.pt"})),
            session.submit(Action(type="reset_module", payload={"name": "head"})),
        ]
        control = session.step()
        assert not any(each.done() for each in wanted)
        assert (control.evaluate, control.save, control.tag) == (True, True, "best")
        assert (control.load, control.reload_required, control.reset) == ("a.pt", True, ("head",))
        session.report_eval({"val_loss": 0.5})
        session.checkpoint_saved("x.pt", tag=control.tag)
        session.checkpoint_loaded("a.pt")
        session.module_reset("head")
        session.step()
    assert [each.result(0).status for each in wanted] == ["applied"] * 4
    assert wanted[0].result(0).data == {"val_loss": 0.5}
    assert wanted[1].result(0).data["path"] == "x.pt"


def test_rule_3_what_the_loop_did_not_do_has_failed_at_its_next_control_point() -> None:
    _, session = made()
    with session.run():
        session.step()
        wanted = session.submit(Action(type="evaluate"))
        assert session.step().evaluate
        session.step()
        result = wanted.result(0)
        assert result.status == "failed"
        assert "the loop did not do it" in str(result.reason)


def test_rule_3_in_a_loop_that_never_looks_it_is_rejected_with_the_remedy() -> None:
    _, session = made()
    session.honours_control = False
    with session.run():
        session.step()
        result = session.submit(Action(type="evaluate"), wait=True)
    assert result.status == "rejected"
    assert "--evaluate" in str(result.reason)
    schema = next(each for each in session.state().actions if each.name == "evaluate")
    assert not schema.enabled


def test_rule_5_a_direct_loop_is_told_and_then_made_to_stop() -> None:
    _, session = made()
    with session.run():
        session.step()
        session.stop()
        assert session.step().stop
        assert session.status == "stopped"
        with pytest.raises(StopTraining):
            session.step()
        with pytest.raises(StopTraining):
            session.pump()
    assert session.status == "stopped"


def test_rule_5_a_loop_driven_by_hooks_is_stopped_at_once_and_again() -> None:
    _, session = made()
    session.honours_control = False
    steps = 0
    with session.run():
        session.step()
        session.stop()
        for _ in range(3):
            try:
                session.step()
            except BaseException:  # noqa: BLE001 - a bare except in the user's loop
                continue
            steps += 1
    assert steps == 0
    assert session.status == "stopped"


def test_c57_a_stop_from_inside_of_a_handler_lets_no_further_step_through() -> None:
    session = Session(directory=None)

    @session.action("enough")
    def enough() -> str:
        return session.stop()

    steps = 0
    with session.run():
        session.submit({"type": "enough"})
        for _ in range(3):
            steps += 1
            if session.step({"loss": 1.0}).stop:
                break
    assert (steps, session.status) == (1, "stopped")


def test_c57_stop_is_idempotent_before_during_and_after() -> None:
    _, session = made()
    assert session.stop() == "created"
    assert session.stop() == "created"
    with session.run():
        assert session.step().stop
    assert session.stop() == "stopped"
    assert session.stop() == "stopped"
    _, other = made()
    loop = Loop(other)
    loop.advance()
    other.stop()
    loop.advance()
    loop.thread.join(LIMIT_S)
    assert other.status == "stopped"


def test_rule_8_a_control_point_with_nothing_asked_returns_one_shared_object() -> None:
    _, session = made()
    with session.run():
        session.step()
        assert session.step({"loss": 1.0}) is session.pump() is CONTINUE


def test_c03_an_edit_while_paused_holds_for_the_first_step_after_resume() -> None:
    cell, session = made()
    loop = Loop(session, read=lambda: cell["lr"])
    loop.advance(2)
    pause = session.submit(Action(type="pause"))
    loop.advance(wait=False)
    assert pause.result(LIMIT_S).status == "applied"
    assert session.status == "paused"
    count = session.step_count
    result = session.set("lr", 0.01, timeout=LIMIT_S)
    assert isinstance(result, ActionResult) and result.status == "applied"
    assert session.step_count == count == 3
    assert session.resume().status == "applied"
    loop.came_back()
    loop.advance(3)
    loop.finish()
    assert loop.used == [0.1, 0.1, 0.1, 0.01, 0.01, 0.01]


def test_c04_stop_while_paused_lets_no_step_through_and_loses_nothing() -> None:
    cell, session = made()
    session.on_evaluate(lambda: {"val_loss": 1.0})
    loop = Loop(session, read=lambda: cell["lr"])
    loop.advance(4)
    session.submit(Action(type="pause"))
    loop.advance(wait=False)
    until(lambda: session.status == "paused")
    asked = [
        session.submit(Action(type="evaluate")),
        session.submit(Action(type="save_checkpoint")),
        session.submit(Action(type="stop")),
    ]
    assert session.wait(LIMIT_S) == "stopped"
    assert session.step_count == 5 == len(loop.used)
    assert [each.result(0).status for each in asked] == ["applied", "failed", "applied"]
    requests = session.journal.requests()
    assert requests["status"].tolist() == ["applied", "applied", "failed", "applied"]
    assert session.set("lr", 0.9).status == "rejected"
    assert cell["lr"] == 0.1


def test_what_was_applied_at_a_control_point_is_in_its_control() -> None:
    _, session = made()
    with session.run():
        session.step()
        session.set("lr", 0.5)
        session.set("lr", "x")
        control = session.step()
    assert [(each.name, each.after) for each in control.applied] == [("lr", 0.5)]


def test_an_interrupt_in_the_midst_of_a_submit_leaves_no_request_without_a_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, session = made()
    with session.run():
        session.step()
        monkeypatch.setattr(session.queue, "put", _interrupted)
        with pytest.raises(KeyboardInterrupt):
            session.submit(Action(type="pause", id="interrupted"))
        monkeypatch.undo()
        session.step()
        result = session.result("interrupted")
    assert result is not None and result.status == "failed"
    assert "KeyboardInterrupt" in str(result.reason)
    assert session.status == "finished"


def _interrupted(handle: Any) -> None:
    raise KeyboardInterrupt


def test_after_an_interrupt_in_a_handler_the_others_are_served_all_the_same() -> None:
    cell, session = made()

    @session.action("leave")
    def leave() -> None:
        raise KeyboardInterrupt

    with session.run():
        session.step()
        asked = [
            session.submit(Action(type="note", payload={"text": "set aside"})),
            session.submit(Action(type="leave")),
            session.submit(Action(type="set_knob", payload={"name": "lr", "value": 0.5})),
        ]
        session.gate.only = frozenset({"leave", "set_knob"})
        with pytest.raises(KeyboardInterrupt):
            session.step()
        session.gate.only = None
        session.step()
        assert [each.status for each in asked] == ["applied", "failed", "applied"]
        assert cell["lr"] == 0.5


def test_a_pause_outlives_an_interrupt_that_the_loop_swallows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, session = made()
    with session.run():
        session.step()
        session.submit(Action(type="pause"))
        with monkeypatch.context() as patched:
            patched.setattr(session.gate.wake, "wait", _interrupted)
            for _ in range(3):
                with pytest.raises(KeyboardInterrupt):
                    session.step()
                assert session.status == "paused"
        threading.Timer(0.1, session.resume).start()
        session.step()
        assert session.status == "running"


def test_what_is_approved_while_steps_are_of_a_trial_waits_for_its_end() -> None:
    cell, session = made()
    session.policy.confirm("lr")
    session.policy.approval_timeout_s = None
    with session.run():
        session.step()
        asked = session.submit(
            Action(type="set_knob", payload={"name": "lr", "value": 0.5}), source="agent"
        )
        session.step()
        assert asked.status == "waiting"
        session.gate.only = frozenset({"stop"})
        assert session.approve(asked.id)
        session.step()
        assert (asked.status, cell["lr"]) == ("waiting", 0.1)
        session.gate.only = None
        session.step()
        assert (asked.status, cell["lr"]) == ("applied", 0.5)


def test_turns_of_many_steps_do_not_begin_before_the_first_update() -> None:
    session = Session(directory=None)
    seen: list[int] = []
    session.every(4, lambda each: seen.append(each.step_count))
    with session.run():
        session.pump(0)  # a trainer's control point before its first update
        for _ in range(9):
            session.step()
    assert seen == [4, 8]
