"""Actions over HTTP; CASES C05: what was refused is never acknowledged as success."""

from __future__ import annotations

import json
import threading
from typing import Any
from urllib.parse import quote

import pytest

from tests.core.driving import LIMIT_S, until

from .conftest import Served


def rows(served: Served, action_id: str) -> list[Any]:
    return [
        event
        for event in served.session.journal.since()
        if event.type == "action_result" and event.action_id == action_id
    ]


def ask(served: Served, type: str, payload: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Ask, let the loop pass a control point, and return the result."""
    told = served.post(type, payload, **more)
    served.loop.advance()
    path = "/actions/" + quote(told["id"], safe="")
    answer = served.http.get(path, params={"wait": LIMIT_S})
    result: dict[str, Any] = answer.json()["result"]
    return result


def test_a_request_is_taken_at_once_and_its_result_is_told_when_it_is_done(served: Served) -> None:
    told = served.post("set_knob", {"name": "lr", "value": 0.05})
    assert set(told) == {"v", "id", "status", "result"}
    assert (told["v"], told["status"], told["result"]) == (2, "pending", None)
    assert served.values["lr"] == 0.1
    served.loop.advance()
    found = served.http.get(f"/actions/{told['id']}").json()
    assert found["status"] == "applied"
    result = found["result"]
    assert (result["requested"], result["before"], result["after"]) == (0.05, 0.1, 0.05)
    assert (result["source"], result["ok"], result["step"]) == ("http", True, 1)


@pytest.mark.parametrize(
    ("type", "payload"),
    [
        ("set_knob", {"name": "lr", "value": -1}),
        ("set_knob", {"name": "lr", "value": "abc"}),
        ("set_knob", {"name": "lr", "value": None}),
        ("set_knob", {"name": "lr", "value": True}),
        ("set_knob", {"name": "foo", "value": 3}),
        ("update_dataset", {"split": "train"}),
        ("save_checkpoint", {"tag": 3}),
        ("stop", {"now": True}),
    ],
)
def test_a_refused_request_is_rejected_with_a_reason_and_one_row(
    served: Served, type: str, payload: dict[str, Any]
) -> None:
    result = ask(served, type, payload)
    assert (result["ok"], result["status"]) == (False, "rejected")
    assert result["reason"]
    assert result["error"]
    assert served.values == {"lr": 0.1, "wd": 0.0}
    (row,) = rows(served, result["id"])
    assert row.payload["status"] == "rejected"
    assert row.source == "http"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e999"])
def test_a_number_that_is_none_never_reaches_a_setter(served: Served, number: str) -> None:
    body = f'{{"type": "set_knob", "payload": {{"name": "lr", "value": {number}}}}}'
    answer = served.http.post(
        "/actions", content=body, headers={"content-type": "application/json"}
    )
    served.loop.advance()
    assert served.values["lr"] == 0.1
    if answer.status_code == 200:
        result = served.http.get(f"/actions/{answer.json()['id']}").json()["result"]
        assert result["status"] == "rejected"
    else:
        assert answer.status_code == 400
        assert "JSON" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b'{"type": "\xff"}', 400),
        (b'{"type": "note", "payload": {"text": "\\ud800"}}', 400),
        (b"[" * 5000 + b"]" * 5000, 400),
        (b"null", 422),
        (b"3", 422),
        (b'"text"', 422),
        (b"[]", 422),
        (b"{}", 422),
        (b'{"type": ""}', 422),
        (b'{"type": 3}', 422),
        (b'{"type": "note", "payload": []}', 422),
        (b'{"type": "note", "id": ""}', 422),
        (b'{"type": "note", "valid_until_step": "3"}', 422),
        (b'{"type": "note", "expect": [1]}', 422),
        (b'{"v": 3, "type": "note"}', 422),
    ],
)
def test_a_bad_body_gets_4xx_with_the_reason_and_leaves_no_row(
    served: Served, body: bytes, status: int
) -> None:
    before = len(served.session.journal)
    answer = served.http.post(
        "/actions", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert set(told) == {"v", "detail"}
    assert told["detail"]
    assert len(served.session.journal) == before


@pytest.mark.parametrize("levels", [100, 500, 900])
def test_what_is_nested_too_deep_is_rejected_with_both_its_rows(
    served: Served, levels: int
) -> None:
    deep = "[" * levels + "]" * levels
    body = f'{{"type": "set_knob", "id": "d", "payload": {{"name": "lr", "value": {deep}}}}}'
    answer = served.http.post(
        "/actions", content=body, headers={"content-type": "application/json"}
    )
    types = [each.type for each in served.session.journal.since() if each.action_id == "d"]
    if answer.status_code == 400:
        assert types == []
    else:
        assert answer.status_code in (200, 202), answer.text
        assert answer.json()["result"]["status"] == "rejected"
        assert types == ["action_submitted", "action_result"]


def test_the_entry_decides_the_source_and_the_senders_own_is_the_actor(served: Served) -> None:
    result = ask(served, "set_knob", {"name": "lr", "value": 0.2}, source="human:client")
    assert (result["source"], result["actor"]) == ("http", "human:client")
    result = ask(served, "set_knob", {"name": "lr", "value": 0.3}, source="python", actor="anna")
    assert (result["source"], result["actor"]) == ("http", "anna")


def test_a_permission_of_http_holds_for_all_that_comes_this_way(served: Served) -> None:
    served.session.policy.forbid("http", "lr")
    assert ask(served, "set_knob", {"name": "lr", "value": 0.2}, source="panel")["ok"] is False
    assert ask(served, "set_knob", {"name": "wd", "value": 0.2})["ok"] is True
    assert served.values == {"lr": 0.1, "wd": 0.2}


def test_a_used_id_gets_the_first_result_and_is_not_run_again(served: Served) -> None:
    first = ask(served, "set_knob", {"name": "lr", "value": 0.2}, id="mine")
    again = served.post("set_knob", {"name": "lr", "value": 0.9}, id="mine")
    assert again["result"] == first
    assert len(rows(served, "mine")) == 1
    assert served.values["lr"] == 0.2


def test_ids_of_any_text_can_be_looked_up(served: Served) -> None:
    for given in ("a/b?c#d", "ü ñ", "%2F", "x/approval", "x" * 128):
        result = ask(served, "note", {"text": "x"}, id=given)
        assert result["id"] == given


def test_waiting_for_a_result_ends_with_it_or_with_its_time(served: Served) -> None:
    answers: list[dict[str, Any]] = []

    def post() -> None:
        with served.client() as http:
            body = {"type": "note", "payload": {"text": "x"}, "id": "waited"}
            answers.append(http.post("/actions", params={"wait": 20}, json=body).json())

    thread = threading.Thread(target=post)
    thread.start()
    while served.session.queue.known("waited") is None:
        thread.join(0.001)
    served.loop.advance()
    thread.join(LIMIT_S)
    assert answers[0]["status"] == "applied"
    late = served.http.post(
        "/actions", params={"wait": 0.01}, json={"type": "note", "payload": {"text": "y"}}
    ).json()
    assert (late["status"], late["result"]) == ("pending", None)


def test_a_request_can_be_taken_back_before_it_is_served(served: Served) -> None:
    told = served.post("set_knob", {"name": "lr", "value": 0.2})
    found = served.http.delete(f"/actions/{told['id']}").json()
    assert found == {"v": 2, "id": told["id"], "cancelled": True}
    served.loop.advance()
    assert served.values["lr"] == 0.1
    assert served.http.delete(f"/actions/{told['id']}").json()["cancelled"] is False
    assert served.http.get(f"/actions/{told['id']}").json()["status"] == "cancelled"


def test_a_person_can_answer_a_request_that_waits_for_one(served: Served) -> None:
    served.session.policy.require_approval("lr", sources=("http",))
    told = served.post("set_knob", {"name": "lr", "value": 0.2})
    served.loop.advance()
    assert served.http.get(f"/actions/{told['id']}").json()["status"] == "waiting"
    (waiting,) = served.http.get("/state").json()["waiting"]
    assert waiting["id"] == told["id"]
    path = f"/actions/{told['id']}/approval"
    assert served.http.post(path, json={"approve": True, "by": "anna"}).json()["answered"] is True
    served.loop.advance()
    assert served.values["lr"] == 0.2
    assert served.http.post(path, json={"approve": True}).json()["answered"] is False
    assert served.http.post(path, json={"approve": "yes"}).status_code == 422


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/actions/none"), ("DELETE", "/actions/none"), ("GET", "/nothing"), ("GET", "/docs")],
)
def test_what_is_not_there_is_told_so(served: Served, method: str, path: str) -> None:
    answer = served.http.request(method, path)
    assert answer.status_code == 404
    assert answer.json()["detail"]


def test_a_wrong_method_is_told_so(served: Served) -> None:
    for method, path in (("PUT", "/state"), ("DELETE", "/events"), ("GET", "/actions")):
        answer = served.http.request(method, path)
        assert answer.status_code in (404, 405)
        assert answer.json()["detail"]


def test_after_the_end_requests_are_rejected_and_everything_can_still_be_read(
    served: Served,
) -> None:
    served.loop.advance(3)
    served.loop.finish()
    told = served.post("set_knob", {"name": "lr", "value": 0.2})
    assert told["status"] == "rejected"
    assert told["result"]["durable"] is False
    state = served.http.get("/state").json()
    assert (state["status"], state["step"]) == ("finished", 3)
    assert served.http.get("/events").json()["events"][-1]["type"] != "metrics"


def test_the_state_is_strict_json_whatever_the_numbers(served: Served) -> None:
    served.values["lr"] = float("nan")
    text = served.http.get("/state").text
    state = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in the state"))
    assert state["knobs"][0]["value"] is None
    assert state["v"] == 2


def test_a_result_that_is_no_number_tells_its_kind(served: Served) -> None:
    served.session.on_evaluate(lambda: {"loss": float("nan"), "acc": float("inf"), "n": 3})
    result = ask(served, "evaluate", {})
    assert result["data"] == {"loss": None, "acc": None, "n": 3}
    assert result["nonfinite"] == {"data.loss": "nan", "data.acc": "inf"}


def test_a_fault_inside_is_recorded_and_answered_and_the_run_goes_on(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise RuntimeError("out of order")

    with monkeypatch.context() as patch:
        patch.setattr(served.session, "state", broken)
        answer = served.http.get("/state")
    assert answer.status_code == 500
    assert "out of order" not in answer.text
    assert answer.json()["detail"]
    # The answer may be here before the fault has been written down.
    until(lambda: any("out of order" in warning for warning in served.session.warnings))
    served.loop.advance()
    assert served.http.get("/state").status_code == 200
