"""A language model beside a run, with a real HTTP server that answers from a script."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest

import it2nb
from it2nb.controllers.llm import LLMAgent
from it2nb.controllers.thinking import MAX_REQUESTS
from it2nb.core.errors import It2nbError, MissingDependency
from tests.controllers.endpoint import Drops, Endpoint, Fails, Hangs, Line, Raw, Says
from tests.controllers.modelled import KEY, LIMIT_S, Run, set_lr

pytestmark = pytest.mark.usefixtures("no_keys_no_waits", "ended")


def test_what_the_model_asks_for_is_a_request_like_any_other():
    run = Run(set_lr(0.05)).train()
    assert run.values["lr"] == 0.05
    assert [each[:2] for each in run.requests()] == [("set_knob", "applied")]
    (submitted,) = run.rows("action_submitted")
    assert submitted["source"] == "agent"
    assert submitted["actor"] == "llm"
    assert submitted["reason"] == "flat"
    assert submitted["observed"]["step"] == 10
    assert submitted["observed"]["metrics"]["loss"] == pytest.approx(0.1)
    (asked,) = run.endpoint.asked
    assert {"set_knob", "evaluate", "stop"} <= set(asked.tools)
    assert "pause" not in asked.tools  # forbidden to agents
    assert '\\"step\\":10' in asked.text


def test_the_journal_holds_prompt_answer_tokens_cost_and_latency():
    run = Run(set_lr(0.05), prices=(10, 20)).train()
    (row,) = run.rows("agent_call")
    assert row["name"] == "llm"
    assert row["model"] == "tiny"
    assert row["tokens"] == 120
    assert row["cost"] == pytest.approx((100 * 10 + 20 * 20) / 1e6)
    assert row["requests"] == 1
    (exchange,) = row["exchanges"]
    assert '"metrics":{"loss":0.1}' in exchange["prompt"]
    assert exchange["answer"] == "lower"
    assert exchange["answer_calls"][0]["name"] == "set_knob"
    assert exchange["latency_s"] > 0
    spent = run.session.policy.spent("agent")
    assert spent.tokens == 120
    assert spent.cost == pytest.approx(0.0014)


FORMS: list[tuple[str, Line, list[str], float]] = [
    # What the model says, what becomes of it, and the lr afterwards.
    ("fenced", Says('```json\n{"type":"set_knob","payload":{"name":"lr","value":0.2}}\n```'),
     ["applied"], 0.2),
    ("prose", Says('I would say {"type":"set_knob","payload":{"name":"lr","value":0.2}}, bye'),
     ["applied"], 0.2),
    ("truncated", Says('{"type":"set_knob","payload":{"name":"lr","val'), ["rejected"], 0.1),
    ("text number", set_lr("1e-3"), ["applied"], 1e-3),
    ("no number", set_lr("tiny"), ["rejected"], 0.1),
    ("nan", set_lr("nan"), ["rejected"], 0.1),
    ("out of range", set_lr(50), ["clamped"], 1.0),
    ("wrong keys", Says(None, [("set_knob", {"knob": "lr", "to": 0.5})]), ["rejected"], 0.1),
    ("unknown knob", Says(None, [("set_knob", {"name": "rl", "value": 0.5})]), ["rejected"], 0.1),
    ("unknown tool", Says(None, [("launch_missiles", {"now": True})]), ["rejected"], 0.1),
    ("broken arguments", Says(None, [("set_knob", '{"name": "lr", "val')]), ["rejected"], 0.1),
    ("forbidden", Says(None, [("pause", {})]), ["rejected"], 0.1),
    ("twice", Says(None, [("set_knob", {"name": "lr", "value": 0.3})] * 2),
     ["rejected", "applied"], 0.3),
    ("prose only", Says("All is well."), [], 0.1),
    ("empty", Says(None), [], 0.1),
]  # fmt: skip


@pytest.mark.parametrize(("form", "line", "statuses", "lr"), FORMS, ids=[each[0] for each in FORMS])
def test_what_is_meant_is_done_once_and_the_rest_is_a_rejected_row(form, line, statuses, lr):
    run = Run(line).train(12)
    asked = run.requests()
    assert sorted(status for _, status, _ in asked) == sorted(statuses), form
    assert all(reason for _, status, reason in asked if status == "rejected")
    assert run.values["lr"] == lr
    assert run.session.status == "finished"
    assert run.session.step_count == 12


def test_the_model_is_told_what_became_of_its_request():
    run = Run(set_lr(50), Says(None, [("launch", {})]), Says("ok")).train(30)
    second, third = run.endpoint.asked[1:]
    assert "clamped" in second.text
    assert "max is 1.0" in second.text
    assert "no action is named 'launch'" in third.text


def test_an_answer_that_cannot_be_read_is_asked_for_once_more_with_the_reason():
    run = Run(Says('{"type": "set_kn'), set_lr(0.2)).train()
    assert run.values["lr"] == 0.2
    assert "of no use" in run.endpoint.asked[1].text
    (row,) = run.rows("agent_call")
    assert len(row["exchanges"]) == 2
    assert row["tokens"] == 240
    assert run.session.policy.spent("agent").tokens == 240


def test_two_hundred_calls_at_once_are_few_requests_and_many_rejected_rows():
    calls = [("set_knob", {"name": "lr", "value": n / 1000}) for n in range(1, 201)]
    run = Run(Says("all", calls)).train()
    asked = run.requests()
    assert len(asked) == 200
    assert [status for _, status, _ in asked].count("rejected") == 192
    assert "8 requests of one answer are taken, 200 came" in asked[0][2] + asked[-1][2]
    assert run.values["lr"] == pytest.approx(0.008)


def test_beyond_what_any_controller_may_ask_for_at_once_the_rest_is_one_row():
    calls = [("set_knob", {"name": "lr", "value": n / 10_000}) for n in range(1, 1_001)]
    run = Run(Says("all", calls)).train()
    assert len(run.requests()) == MAX_REQUESTS
    (note,) = (each for each in run.rows("note") if "the rest was left out" in each["text"])
    assert "asked for 1000 things at once" in note["text"]


@pytest.mark.parametrize(
    "trouble", [Fails(500, f"broken, {KEY}"), Fails(429), Fails(400), Raw("<html>"), Drops()]
)
def test_an_endpoint_in_trouble_is_a_row_and_no_end(trouble):
    run = Run(trouble).train(25)
    calls = run.rows("agent_call")
    assert calls
    assert all("AgentError" in each["error"] for each in calls if "error" in each)
    assert KEY not in str(run.session.journal.frame()["payload"].tolist())
    assert run.attached.errors == 2
    assert run.session.status == "finished"
    assert run.requests() == []


def test_after_failures_it_keeps_silent_for_longer_and_longer():
    run = Run(Fails(500)).train(100)
    # Asked at 10, 20, then 1, 2, 4 turns left out.
    assert len(run.endpoint.asked) == 4


def test_an_endpoint_that_hangs_holds_nobody_up():
    until = threading.Event()
    run = Run(Hangs(until), blocking=False).train(5_000)
    assert run.session.step_count == 5_000
    assert run.session.status == "finished"
    assert run.values["lr"] == 0.1


def test_a_late_answer_is_applied_and_says_what_it_was_based_on():
    until = threading.Event()
    arrived = threading.Event()
    run = Run(Hangs(until, set_lr(0.05)), Says("ok"), blocking=False)

    def hold(session: Any) -> None:
        session.before_change(lambda handle: arrived.set())

        def release(session: Any) -> None:
            if session.step_count == 50:
                assert run.endpoint.called.wait(LIMIT_S)
                until.set()
            if session.step_count == 60:
                limit = threading.Event()
                for _ in range(3_000):
                    if session.queue or arrived.is_set():
                        break
                    limit.wait(0.01)

        session.every(1, release)

    run.train(70, hold)
    (submitted,) = run.rows("action_submitted")
    assert submitted["observed"]["step"] == 10
    assert run.values["lr"] == 0.05


@pytest.mark.parametrize(
    ("caps", "said"),
    [
        ({"max_tokens": 2_500}, "tokens are used up"),
        ({"max_cost": 0.002, "prices": (1, 1)}, "money is used up"),
    ],
)
def test_when_its_budget_is_used_up_the_agent_stops_asking_and_a_row_says_so(caps, said):
    line = Says("ok", tokens=(900, 100))
    run = Run(line, **caps).train(200)
    assert 0 < len(run.endpoint.asked) < 20
    (row,) = run.rows("agent_enabled")
    assert said in row["reason"]
    assert not run.attached.enabled
    assert run.agent is not None
    told = run.agent.describe()
    assert told["tokens"] <= 2_500
    assert run.session.status == "finished"


def test_the_policys_budget_for_agents_holds_too():
    run = Run(Says("ok", tokens=(900, 100)))
    run.session.policy.budget("agent", tokens=1_500)
    run.train(200)
    assert len(run.endpoint.asked) == 2
    assert "budget of agent is used up" in run.rows("agent_enabled")[0]["reason"]


def test_an_approval_is_waited_for_by_the_request_and_not_by_the_run():
    run = Run(set_lr(0.05))
    run.session.policy.require_approval("lr")
    run.train(30)
    statuses = [status for _, status, _ in run.requests()]
    assert "applied" not in statuses
    assert run.values["lr"] == 0.1


@pytest.mark.parametrize(
    "call",
    [
        ("set\ud800", {"name": "lr"}),
        ("set_knob", '{"name": "lr", "value": 0.2, "reason": "\\ud800"}'),
        ("set_knob", '{"name": "\\ud800", "value": 0.2}'),
        ("", "{}"),
    ],
    ids=["name", "reason", "knob", "nameless"],
)
def test_half_a_character_is_a_request_too(call):
    run = Run(Says("so \ud800", [call])).train()
    (row,) = run.rows("agent_call")
    assert "error" not in row
    assert len(run.requests()) == 1


def test_a_prompt_stays_small_however_much_there_is_to_tell():
    run = Run(Says("ok"), max_prompt_chars=6_000)
    values = {f"knob{n}": 0.5 for n in range(120)}
    for name in values:
        run.session.register_knob(
            name, functools.partial(values.get, name), functools.partial(values.__setitem__, name),
            description="what it does " * 40,
        )  # fmt: skip
    run.session.context = "context " * 2_000
    with run.endpoint as endpoint:
        agent = LLMAgent("tiny", base_url=endpoint.url, api_key=KEY, every=300,
                         max_prompt_chars=6_000, retries=0)  # fmt: skip
        run.session.attach(agent, blocking=True)
        with run.session.run():
            for step in range(1, 301):
                run.session.step({f"metric{n}": step + n for n in range(60)} | {"loss": 1 / step})
    (asked,) = endpoint.asked
    prompt = asked.body["messages"][-1]["content"]
    assert len(prompt) <= 6_000
    assert '"loss"' in prompt


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"every": 0}, "every"),
        ({"max_prompt_chars": 100}, "at least 4000"),
        ({"max_requests": True}, "whole number"),
        ({"prices": "cheap"}, "prices"),
        ({"max_cost": 1}, "needs prices"),
    ],
)
def test_values_that_make_no_sense_are_refused(options, said):
    with pytest.raises(It2nbError, match=said):
        LLMAgent("tiny", base_url="http://127.0.0.1:9/v1", **options)


def test_without_the_library_it_says_how_to_install_it(monkeypatch):
    import importlib

    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingDependency, match=r"it2nb\[llm\]"):
        LLMAgent("openai:gpt")


def test_one_agent_works_for_one_session_after_the_other():
    with Endpoint(set_lr(0.05)) as endpoint:
        agent = LLMAgent("tiny", base_url=endpoint.url, api_key=KEY, every=10)
        for _ in range(2):
            values = {"lr": 0.1}
            session = it2nb.TrainingSession(goal="loss", directory=None)
            session.register_knob(
                "lr",
                functools.partial(values.get, "lr"),
                functools.partial(values.__setitem__, "lr"),
            )
            session.attach(agent, blocking=True)
            with session.run():
                for step in range(1, 11):
                    session.step({"loss": 1 / step})
            assert values["lr"] == 0.05
    assert len(endpoint.asked) == 2


def test_no_thread_outlives_the_session():
    run = Run(Says("ok")).train(20)
    names = [each.name for each in threading.enumerate()]
    assert "it2nb model tiny" not in names
    assert run.session.is_ended
