"""How a request comes in: its id, its shape, its size, and what never gets through."""

from __future__ import annotations

from typing import Any

import pytest

from it2nb.core.wire import Action
from tests.core.driving import Loop
from tests.core.sessions import made, rows


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
