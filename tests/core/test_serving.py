"""Requests that are carried out: values, handlers, batches, and what their results say."""

from __future__ import annotations

import asyncio
import gc
import math
import weakref
from typing import Any

import pytest

from it2nb.core.control import CONTINUE, StopTraining
from it2nb.core.errors import Rejected
from it2nb.core.session import Session
from it2nb.core.wire import Action
from tests.core.sessions import made


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


def test_a_mode_alone_can_be_set_and_a_value_is_never_forgotten_in_silence() -> None:
    _, session = made()
    with session.run():
        session.step()
        handle = session.set("lr", mode="release")
        session.step()
        with pytest.raises(TypeError, match="needs a value"):
            session.set("lr")
    assert (handle.action.type, handle.status) == ("set_mode", "rejected")


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
