"""Controllers as a panel is told of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import it2nb
from it2nb.controllers.scripted import ScriptedAgent
from it2nb.core.wire import Event
from it2nb.panel.agents import MAX_DECISIONS, agent_views, call_text
from it2nb.panel.bridge import Bridge
from it2nb.panel.rows import row_of

from .pages import Page


class Run:
    """A session with an agent, whose training thread is the test, and a page that shows it."""

    def __init__(self) -> None:
        self.session = it2nb.TrainingSession(goal="loss", directory=None, resources_every_s=3600)
        self.values = {"lr": 0.1}
        self.session.register_knob(
            "lr", lambda: self.values["lr"], lambda v: self.values.update(lr=v), min=1e-5, max=1.0
        )
        self.page = Page()
        self.bridge = Bridge(self.session, self.page.send)

    def ask(self, type: str, **payload: Any) -> Any:
        return self.session.submit({"type": type, "payload": payload}, source="panel")


@pytest.fixture
def run() -> Iterator[Run]:
    made = Run()
    yield made
    made.session.end()
    made.bridge.close()


def has_agent(message: dict[str, Any], **wanted: Any) -> bool:
    return any(
        all(agent[name] == value for name, value in wanted.items())
        for agent in message.get("agents") or ()
    )


def test_a_page_is_told_of_an_agent_its_decisions_and_its_switch(run: Run) -> None:
    run.session.attach(ScriptedAgent(every=10, patience=20), blocking=True)
    run.session.step({"loss": 0.5})
    run.bridge.receive(run.page.hello())
    snapshot = run.page.wait(lambda message: message["kind"] == "snapshot")
    assert [each["name"] for each in snapshot["agents"]] == ["scripted"]
    assert snapshot["state"]["agent"] is None  # told once
    for _ in range(60):
        run.session.step({"loss": 0.5})
    told = run.page.wait(
        lambda message: any(
            decision["requests"]
            for agent in message.get("agents") or ()
            for decision in agent["decisions"]
        )
    )
    (agent,) = told["agents"]
    (asked,) = next(each["requests"] for each in agent["decisions"] if each["requests"])
    assert (asked["type"], asked["name"], asked["requested"]) == ("set_knob", "lr", 0.05)
    assert "no better loss than 0.5" in asked["reason"]
    assert agent["kind"] == "scripted"
    assert len(agent["decisions"]) <= MAX_DECISIONS
    run.ask("set_agent", enabled=False, name="scripted")
    run.ask("set_context", context="be brave")
    run.session.step({"loss": 0.5})
    run.page.wait(lambda message: has_agent(message, enabled=False))
    run.page.wait(lambda message: message.get("context") == "be brave")


def test_after_detaching_there_is_none(run: Run) -> None:
    attached = run.session.attach(ScriptedAgent(), name="mine")
    run.session.step({"loss": 0.5})
    run.bridge.receive(run.page.hello())
    run.page.wait(lambda message: message["kind"] == "snapshot")
    attached.detach()
    run.session.step({"loss": 0.5})
    run.page.wait(lambda message: message.get("agents") == [])


def test_rules_are_no_agents() -> None:
    rule = {"name": "drop", "source": "rule"}
    told = {**rule, "controllers": [rule, {"name": "llm", "source": "agent", "about": None}]}
    assert [each.name for each in agent_views(told)] == ["llm"]
    assert agent_views(None) == agent_views({}) == []


@pytest.mark.parametrize(
    "about",
    [
        "text", {"decisions": "none"}, {"decisions": [1, {"step": "x", "requests": {"a": 1}}]},
        {"decisions": [{"requests": [{"id": None, "status": "odd", "requested": object()}]}]},
        {"tokens": True, "cost": "dear", "plan": 7, "max_tokens": 1.5},
    ],
)  # fmt: skip
def test_whatever_a_controller_says_of_itself_something_is_shown(about: Any) -> None:
    (view,) = agent_views({"name": "odd", "source": "agent", "about": about})
    assert view.name == "odd"
    assert view.tokens is None
    assert all(each.status == "pending" for one in view.decisions for each in one.requests)


def test_long_texts_and_long_lists_are_cut() -> None:
    decisions = [{"step": n, "said": "x" * 9_000, "requests": [{}] * 50} for n in range(50)]
    about = {"decisions": decisions, "plan": {"text": "y" * 9_000, "settings": {"lr": 0.5}}}
    (view,) = agent_views({"name": "n" * 500, "about": about})
    assert len(view.model_dump_json()) < 8_000
    assert view.decisions[-1].step == 49
    assert view.plan.startswith("lr 0.5: yyy")


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"requests": 2, "took_s": 1.234, "tokens": 1_234}, "2 requests, 1,234 tokens, 1.2 s"),
        ({"requests": 0, "took_s": 0.5}, "no request, 0.5 s"),
        ({"requests": 0, "took_s": 0.5, "error": "boom"}, "boom, no request, 0.5 s"),
        ({"plan": {"settings": {"lr": 0.5}, "reason": "faster"}}, "lr 0.5: faster"),
        ({"reflection": "it helped"}, "it helped"),
        ({"enabled": False, "reason": "tokens used up"}, "tokens used up, paused"),
        ({"options": {"every": 5, "late": "apply"}}, "every 5, late apply"),
    ],
)
def test_rows_of_agents_say_what_matters(payload: dict[str, Any], said: str) -> None:
    assert call_text(payload) == said
    event = Event(seq=1, type="agent_call", payload={"name": "llm", **payload}, ts=1.0)
    assert row_of(event).text == said


def test_a_decision_is_told_with_its_round() -> None:
    about = {"decisions": [{"step": 3}, {"step": 3, "round": 1}, {"step": 3, "round": "x"}]}
    (view,) = agent_views({"name": "n", "about": about})
    assert [each.round for each in view.decisions] == [0, 1, 0]
