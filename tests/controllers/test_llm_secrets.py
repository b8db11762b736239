"""What a language model may not do, may not know, and may not be made to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from it2nb.controllers.interview import MAX_TEXT
from tests.controllers.endpoint import Fails, Line, Says
from tests.controllers.modelled import KEY, Run

pytestmark = pytest.mark.usefixtures("no_keys_no_waits", "ended")


def test_a_wrong_key_pauses_the_agent_with_the_reason():
    run = Run(Fails(401, f"no such key {KEY}")).train(40)
    assert len(run.endpoint.asked) == 1
    assert not run.attached.enabled
    (row,) = run.rows("agent_enabled")
    assert row["enabled"] is False
    assert "401" in row["reason"]
    assert KEY not in str(row)


def test_nothing_forbidden_ever_happens():
    calls: list[tuple[str, dict[str, Any]]] = [
        ("pause", {}), ("load_checkpoint", {"path": "x"}), ("reset_module", {"name": "net"}),
        ("set_context", {"context": "obey"}), ("set_agent", {"enabled": True}),
        ("configure_agent", {"options": {"base_url": "http://evil", "max_tokens": 10**9}}),
        ("note", {"text": "hi"}), ("set_knob", {"name": "secret", "value": 1}),
    ]  # fmt: skip
    hidden = {"secret": 0}
    run = Run(Says("!", calls), Says("{}"), max_requests=20)
    run.session.register_knob(
        "secret", lambda: hidden["secret"], lambda v: hidden.update(secret=v), dtype="int"
    )
    run.session.policy.hide("secret").forbid("agent", "lr")
    run.train(30)
    asked = run.requests()
    assert len(asked) >= len(calls)
    assert {status for _, status, _ in asked} == {"rejected"}
    assert hidden == {"secret": 0}
    assert run.session.context == ""
    assert run.session.status == "finished"
    offered = {name for each in run.endpoint.asked for name in each.tools}
    assert not offered & {name for name, _ in calls}
    assert "secret" not in run.endpoint.asked[0].text


def test_secrets_reach_neither_journal_nor_state_nor_model(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "hunter2-hunter2")
    line = Says(f"your key is {KEY}, hunter2-hunter2", [("note", {"text": KEY}),
                ("set_knob", {"name": "lr", "value": 0.05, "reason": KEY})])  # fmt: skip
    given = f"the key is {KEY}, and MY_API_KEY=hunter2-hunter2"
    run = Run(line, directory=tmp_path, instructions=given)
    run.session.policy.allow("agent", "note")
    states: list[str] = []
    run.session.every(5, lambda session: states.append(session.state().model_dump_json()))
    run.train(30)
    written = Path(str(run.session.path)).read_text()
    for secret in (KEY, "hunter2"):
        assert secret not in written
        assert secret not in "".join(each.text for each in run.endpoint.asked)
    assert KEY not in "".join(states)
    assert "***" in written
    assert KEY in run.endpoint.asked[0].headers["authorization"]


def test_an_endpoint_that_says_the_key_has_it_hidden_wherever_it_stands(tmp_path):
    answers: list[Line] = [
        Says(KEY, [(KEY, {KEY: KEY}), ("set_knob", {"name": KEY, "value": KEY, "reason": KEY})]),
        Says("x" * (MAX_TEXT - 8) + KEY),
        Fails(500, f"{KEY} {KEY!r}"),
        Says(None, [("set_knob", f'{{"name": "lr", "value": "{KEY}"')]),
    ]
    run = Run(*answers, directory=tmp_path).train(50)
    path = run.session.path
    assert path is not None and KEY[:8] not in path.read_text()
    assert KEY[:8] not in run.session.state().model_dump_json()


def test_endpoint_and_key_cannot_be_changed_by_a_request():
    run = Run(Says("ok"))
    told: list[Any] = []

    def ask(session: Any) -> None:
        if session.step_count == 15:
            for options in (
                {"base_url": "http://evil"}, {"api_key": "mine"}, {"model": "other"},
                {"max_tokens": 10**9}, {"max_requests": 3, "instructions": "be brief"},
            ):  # fmt: skip
                told.append(
                    session.submit(
                        {"type": "configure_agent", "payload": {"options": options}}, source="panel"
                    )
                )

    run.session.every(1, ask)
    run.train(40)
    results = [each.result(0) for each in told]
    assert [each.status for each in results] == ["rejected"] * 4 + ["applied"]
    assert run.agent is not None
    assert run.agent.max_requests == 3
    assert "be brief" in run.endpoint.asked[-1].text
    assert {each.headers["authorization"] for each in run.endpoint.asked} == {f"Bearer {KEY}"}
