"""The session: one request, one result, at a control point, whatever happens."""

from __future__ import annotations

import asyncio
import copy
import gc
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import warnings
import weakref
from typing import Any

import pytest

from it2nb.core.control import CONTINUE, StopTraining
from it2nb.core.errors import It2nbError, Rejected, SessionEnded, WrongThread
from it2nb.core.session import Session
from it2nb.core.wire import Action, ActionResult
from tests.core.driving import LIMIT_S, Loop, until


def made(**options: Any) -> tuple[dict[str, Any], Session]:
    cell: dict[str, Any] = {"lr": 0.1}
    session = Session(directory="it2runs", **options)
    session.register_knob(
        "lr", lambda: cell["lr"], lambda v: cell.__setitem__("lr", v), min=0.0, max=1.0
    )
    return cell, session


def rows(session: Session, kind: str) -> list[dict[str, Any]]:
    return [event.payload for event in session.journal.since(0) if event.type == kind]


# --- rule 1: only the training thread changes the run, and only at a control point -------------


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


# --- rule 2: every request gets exactly one result ---------------------------------------------


def test_rule_2_a_second_request_with_a_used_id_is_not_run_again() -> None:
    cell, session = made()
    loop = Loop(session)
    loop.advance()
    action = Action(type="set_knob", payload={"name": "lr", "value": 0.5}, id="once")
    first = session.submit(action)
    loop.advance()
    cell["lr"] = 0.3
    second = session.submit(action)
    other_entry = session.submit({"type": "stop", "payload": {}, "id": "once"}, source="panel")
    loop.advance()
    assert second.result(0) is first.result(0) is other_entry.result(0)
    assert cell["lr"] == 0.3
    assert session.status == "running"
    loop.finish()
    assert len(rows(session, "action_result")) == 1


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


def test_rule_2_a_handler_that_raises_has_failed_and_training_goes_on() -> None:
    _, session = made()

    @session.action("explode")
    def explode() -> None:
        raise RuntimeError("inside")

    with session.run():
        session.step()
        result = session.submit(Action(type="explode"), wait=True)
        assert session.step() is CONTINUE
    assert (result.status, result.error) == ("failed", "RuntimeError: inside")
    assert session.status == "finished"


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


def test_a_request_can_be_taken_back_before_it_was_served() -> None:
    cell, session = made()
    with session.run():
        session.step()
        handle = session.submit(Action(type="set_knob", payload={"name": "lr", "value": 0.5}))
        assert handle.cancel()
        assert not handle.cancel()
        session.step()
    assert handle.result(0).status == "cancelled"
    assert cell["lr"] == 0.1


def test_a_full_queue_is_a_clear_rejection() -> None:
    _, session = made(queue_size=2)
    with session.run():
        session.step()
        handles = [session.submit(Action(type="pause")) for _ in range(3)]
        assert handles[2].result(0).status == "rejected"
        assert "queue is full" in str(handles[2].result(0).reason)
        session.submit(Action(type="resume"))


# --- rule 3: a result is sent when the thing is done -------------------------------------------


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


# --- rule 4: a non-finite number never reaches a setter ----------------------------------------


@pytest.mark.parametrize("entry", ["python", "panel", "magic", "http"])
@pytest.mark.parametrize(
    "value", [-1, math.nan, math.inf, "0.01", True, None, [0.1], 10**400, {"a": 1}, "abc"]
)
def test_c05_c16_rule_4_bad_values_are_rejected_or_clamped_and_training_goes_on(
    value: Any, entry: str
) -> None:
    cell, session = made()
    with session.run():
        session.step()
        result = session.submit(
            Action(type="set_knob", payload={"name": "lr", "value": value}), source=entry, wait=True
        )
        assert math.isfinite(cell["lr"])
        session.step()
    if value == -1:
        assert (result.status, cell["lr"], result.after) == ("clamped", 0.0, 0.0)
    else:
        assert (result.status, cell["lr"]) == ("rejected", 0.1)
        assert result.reason
        assert (result.before, result.after) == (0.1, 0.1)
    row = session.journal.requests().iloc[0]
    assert (row["status"], row["source"], row["name"]) == (result.status, entry, "lr")


def test_c05_unknown_knob_and_action_are_rejected_with_the_nearest() -> None:
    _, session = made()
    with session.run():
        session.step()
        knob = session.submit(
            Action(type="set_knob", payload={"name": "lrr", "value": 1}), wait=True
        )
        action = session.submit({"type": "puase"}, wait=True)
    assert "did you mean 'lr'" in str(knob.reason)
    assert "did you mean 'pause'" in str(action.reason)


@pytest.mark.parametrize(
    "asked", [{}, {"type": 3}, {"type": ""}, {"type": "stop", "payload": []}, "stop", None, 7,
              {"type": "stop", "id": ""}, {"type": "stop", "id": 5}, {"type": "x" * 500}]
)  # fmt: skip
def test_what_is_no_action_at_all_gets_a_rejected_result(asked: Any) -> None:
    _, session = made()
    with session.run():
        session.step()
        result = session.submit(asked, wait=True)
        assert result.status == "rejected"
        assert session.status == "running"
    assert len(rows(session, "action_result")) == 1


def test_an_oversized_payload_is_rejected_with_its_size() -> None:
    _, session = made()
    with session.run():
        session.step()
        result = session.submit({"type": "note", "payload": {"text": "x" * 20_000}}, wait=True)
    assert result.status == "rejected"
    assert "at most 16384" in str(result.reason)


# --- rule 5: stop means stop -------------------------------------------------------------------


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


# --- rule 6: a fault in steering never ends the training ---------------------------------------


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


# --- rule 7: nothing acknowledged is lost ------------------------------------------------------


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


# --- rule 8: memory and time don't grow --------------------------------------------------------


def test_rule_8_a_control_point_with_nothing_asked_returns_one_shared_object() -> None:
    _, session = made()
    with session.run():
        session.step()
        assert session.step({"loss": 1.0}) is session.pump() is CONTINUE


# --- pause ------------------------------------------------------------------------------------


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


# --- late and stale ---------------------------------------------------------------------------


def test_too_late_is_expired_and_overtaken_is_stale() -> None:
    cell, session = made()
    payload = {"name": "lr", "value": 0.5}
    with session.run():
        session.step(step=10)
        late = session.submit(
            Action(type="set_knob", payload=payload, valid_until_step=9), wait=True
        )
        stale = session.submit(
            Action(type="set_knob", payload=payload, expect={"lr": 0.2}), wait=True
        )
        good = session.submit(
            Action(type="set_knob", payload=payload, valid_until_step=10,
                   expect={"lr": 0.1, "step": 10, "branch_id": 0}),
            wait=True,
        )  # fmt: skip
        odd = session.submit(Action(type="pause", expect={"nothing": 1}), wait=True)
    assert late.status == "expired"
    assert (stale.status, stale.reason) == ("rejected", "stale: expected lr = 0.2, but it is 0.1")
    assert good.status == "applied"
    assert odd.status == "rejected"
    assert cell["lr"] == 0.5


def test_a_batch_is_all_or_none_in_order_with_one_id() -> None:
    cell, session = made()
    seen: list[tuple[str, float]] = []
    for name in ("a", "b"):
        cell[name] = 0.0

        def put(value: float, name: str = name) -> None:
            if value == 13.0:
                raise ValueError("unlucky")
            seen.append((name, value))
            cell[name] = value

        session.register_knob(name, lambda name=name: cell[name], put)  # type: ignore[misc]
    with session.run():
        session.step()
        good = session.submit(
            Action(type="batch", payload={"set": {"b": 1.0, "a": 2.0}}), wait=True
        )
        bad = session.submit(Action(type="batch", payload={"set": {"a": 5.0, "b": "x"}}), wait=True)
        broken = session.submit(
            Action(type="batch", payload={"set": {"a": 5.0, "b": 13.0}}), wait=True
        )
    assert good.status == "applied"
    assert [each["name"] for each in good.data] == ["b", "a"]
    assert seen[:2] == [("b", 1.0), ("a", 2.0)]
    assert bad.status == "rejected" and "nothing was set" in str(bad.reason)
    assert broken.status == "failed" and "put back: a" in str(broken.reason)
    assert (cell["a"], cell["b"]) == (2.0, 1.0)


# --- steps and branches -------------------------------------------------------------------------


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


# --- waiting ------------------------------------------------------------------------------------


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


def test_a_handler_may_ask_for_more_and_get_its_result_at_once() -> None:
    cell, session = made()

    @session.action("halve")
    def halve(session: Session) -> Any:
        return session.set("lr", cell["lr"] / 2).after

    with session.run():
        session.step()
        result = session.submit(Action(type="halve"), wait=True)
    assert (result.status, result.data, cell["lr"]) == ("applied", 0.05, 0.05)


def test_set_on_the_training_thread_is_served_at_its_next_control_point() -> None:
    cell, session = made()
    with session.run():
        session.step()
        handle = session.set("lr", 0.5)
        assert (handle.status, cell["lr"]) == ("pending", 0.1)
        session.step()
        assert (handle.status, cell["lr"]) == ("applied", 0.5)


# --- actions ------------------------------------------------------------------------------------


def test_the_papers_way_of_declaring_actions_works() -> None:
    _, session = made()
    seen: list[Any] = []

    @session.action("switch_dataset", "Switch the active dataset", ["name"])
    def switch_dataset(payload: dict[str, Any], session: Session) -> dict[str, Any]:
        seen.append(payload["name"])
        return {"now": payload["name"]}

    with session.run():
        session.step()
        good = session.submit(Action(type="switch_dataset", payload={"name": "b"}), wait=True)
        bad = session.submit(Action(type="switch_dataset"), wait=True)
    assert (good.status, good.data, seen) == ("applied", {"now": "b"}, ["b"])
    assert bad.status == "rejected"


def test_a_handler_may_reject_with_a_reason() -> None:
    _, session = made()

    @session.action("maybe")
    def maybe(n: int) -> None:
        raise Rejected("not today")

    with session.run():
        session.step()
        result = session.submit(Action(type="maybe", payload={"n": 1}), wait=True)
        wrong = session.submit(Action(type="maybe", payload={"n": "1"}), wait=True)
    assert (result.status, result.reason) == ("rejected", "not today")
    assert wrong.status == "rejected" and "n:" in str(wrong.reason)


# --- identity -----------------------------------------------------------------------------------


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


def test_a_check_that_raises_fails_the_request_and_not_the_training() -> None:
    def boom() -> Any:
        raise RuntimeError("boom")

    _, session = made()
    session.action("odd", unavailable=boom)(lambda payload: None)
    session.register_knob("broken", boom, lambda v: None)
    session.policy.limit("broken", max_change=2.0)
    with session.run():
        session.step()
        odd = session.submit(Action(type="odd"), wait=True)
        limited = session.submit(
            Action(type="set_knob", payload={"name": "broken", "value": 1.0}), wait=True
        )
        session.step()
    assert (odd.status, limited.status) == ("failed", "failed")
    assert "boom" in str(odd.reason) and "boom" in str(limited.reason)
    assert session.status == "finished"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, StopTraining])
def test_c51_an_exit_inside_of_a_handler_leaves_no_request_without_a_result(
    kind: type[BaseException],
) -> None:
    _, session = made()

    @session.action("leave")
    def leave() -> None:
        raise kind

    handle = None
    try:
        with session.run():
            session.step()
            handle = session.submit(Action(type="leave"))
            session.step()
    except (KeyboardInterrupt, SystemExit):
        assert kind is not StopTraining
    assert handle is not None
    assert handle.result(0).status == "failed"
    assert kind.__name__ in str(handle.result(0).reason)
    assert session.status == ("stopped" if kind is StopTraining else "failed")


def test_a_result_keeps_plain_values_and_no_object_of_the_run() -> None:
    class Heavy:
        pass

    kept = [Heavy()]
    ref = weakref.ref(kept[0])
    _, session = made()
    session.action("give")(lambda payload: {"heavy": kept[0], "nan": math.nan})
    with session.run():
        session.step()
        result = session.submit(Action(type="give"), wait=True)
    session.actions.unregister("give")
    kept.clear()
    gc.collect()
    assert isinstance(result.data["heavy"], str)
    assert math.isnan(result.data["nan"])
    assert ref() is None


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


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("boom")


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "note", "id": "\ud800", "payload": {"text": "a"}},
        {"type": "\ud800", "payload": {}},
        {"type": "note", "payload": {_Unprintable(): 1}},
        {"type": "set_knob", "payload": {"name": "lr", "value": 10**5000}},
    ],
)
def test_rule_2_what_can_not_be_printed_is_rejected_and_not_raised(odd: dict[str, Any]) -> None:
    _, session = made()
    with session.run():
        session.step()
        handle = session.submit(odd)
        session.step()
    assert handle.status == "rejected"


def test_rule_6_a_result_of_thousands_of_digits_does_not_end_the_training() -> None:
    _, session = made()
    session.action("count")(lambda payload: {"found": 10**5000})
    with session.run():
        session.step()
        result = session.submit(Action(type="count"), wait=True)
        session.step()
    assert result.status == "applied"
    assert session.status == "finished"


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit])
def test_rule_6_a_cancelled_task_in_a_handler_does_not_end_the_training(
    kind: type[BaseException],
) -> None:
    _, session = made()

    @session.action("fetch")
    def fetch() -> None:
        raise kind

    with session.run():
        session.step()
        result = session.submit(Action(type="fetch"), wait=True)
        session.step()
    assert result.status == "failed"
    assert kind.__name__ in str(result.error)
    assert session.status == "finished"


@pytest.mark.parametrize(
    "run_id", ["../out", "/abs", "..", "a/b", "a\\b", "x" * 300, "\n", 5, b"x"]
)
def test_a_run_id_never_leads_out_of_its_directory(run_id: Any) -> None:
    with pytest.raises(It2nbError, match="name of a folder"):
        Session(run_id=run_id)


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


def test_a_mode_alone_can_be_set_and_a_value_is_never_forgotten_in_silence() -> None:
    _, session = made()
    with session.run():
        session.step()
        handle = session.set("lr", mode="release")
        session.step()
        with pytest.raises(TypeError, match="needs a value"):
            session.set("lr")
    assert (handle.action.type, handle.status) == ("set_mode", "rejected")


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


def test_the_text_of_a_result_holds_what_came_of_it() -> None:
    _, session = made()
    session.on_evaluate(lambda: {"val_loss": 0.25, "confusion": [[1, 0], [0, 1]]})
    with session.run():
        session.step()
        result = session.submit(Action(type="evaluate"), wait=True)
    assert str(result) == (
        "evaluate: applied, after step 1, val_loss 0.25 (not recorded as metrics, for it is no "
        "number: confusion is a list)"
    )


def test_a_handle_and_its_result_are_read_alike() -> None:
    session = Session(directory=None)
    settings = {"x": 1.0}
    session.register_knob("x", lambda: settings["x"], lambda v: settings.update(x=v), max=2.0)
    handle = session.set("x", 5.0)  # before the first control point
    assert (handle.done(), handle.ok, handle.after, handle.reason) == (False, False, None, None)
    with session.run():
        session.step()
    result = handle.result(0)
    assert result.done() and result.result(0) is result
    for name in ("ok", "status", "requested", "before", "after", "step", "reason", "error", "data"):
        assert getattr(handle, name) == getattr(result, name), name
    assert handle.after == 2.0


def test_turns_of_many_steps_do_not_begin_before_the_first_update() -> None:
    session = Session(directory=None)
    seen: list[int] = []
    session.every(4, lambda each: seen.append(each.step_count))
    with session.run():
        session.pump(0)  # a trainer's control point before its first update
        for _ in range(9):
            session.step()
    assert seen == [4, 8]


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


def test_a_request_after_the_end_names_what_it_was_for() -> None:
    cell, session = made()
    with session.run():
        session.step()
    asked = {"name": "learning_rate", "value": 0.5}
    result = session.submit({"type": "set_knob", "payload": asked})
    said = "set_knob lr: rejected, after step 1 (the run is over (finished))"
    assert str(result.result(0)) == said
    assert (result.requested, result.before, result.after) == (0.5, 0.1, 0.1)
    result = session.submit({"type": "set_mode", "payload": {"name": "no_such", "mode": "hold"}})
    assert str(result.result(0)).startswith("set_mode no_such: rejected")
    assert cell["lr"] == 0.1


def test_what_a_result_has_to_note_stands_in_its_text() -> None:
    _, session = made()

    @session.action("turn_back")
    def turn_back() -> dict[str, Any]:
        return {"step": 3, "notes": ["the data goes on", "no snapshot of step 4 is kept"]}

    with session.run():
        session.step()
        handle = session.submit({"type": "turn_back"})
        session.step()
    assert str(handle.result(0)).splitlines() == [
        "turn_back: applied, after step 2",
        "  note: the data goes on",
        "  note: no snapshot of step 4 is kept",
    ]


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
