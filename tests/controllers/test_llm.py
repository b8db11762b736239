"""A language model beside a run, with a real HTTP server that answers from a script."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import it2nb
from it2nb.controllers import provider
from it2nb.controllers.interview import MAX_TEXT
from it2nb.controllers.llm import LLMAgent
from it2nb.controllers.thinking import MAX_REQUESTS
from it2nb.core.errors import It2nbError, MissingDependency
from tests.controllers.endpoint import Drops, Endpoint, Fails, Hangs, Line, Raw, Says

KEY = "sk-secret-12345"
LIMIT_S = 30.0


@pytest.fixture(autouse=True)
def no_keys_no_waits(monkeypatch):
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "IT2NB_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(provider, "BACKOFF_S", 0.001)


class Run:
    """A session with a bounded lr, whose loop waits for an agent at every tenth step."""

    def __init__(self, *script: Line, **options: Any) -> None:
        given = {"lr": 0.1}
        self.values = given
        self.endpoint = Endpoint(*script)
        self.options: dict[str, Any] = {"every": 10, "retries": 0, "timeout_s": LIMIT_S, **options}
        self.session = it2nb.TrainingSession(
            goal="loss", directory=self.options.pop("directory", None), title="agents"
        )
        self.session.register_knob(
            "lr", lambda: given["lr"], lambda v: given.update(lr=v), min=1e-5, max=1.0
        )
        self.blocking = self.options.pop("blocking", True)
        self.agent: LLMAgent | None = None

    def train(self, steps: int = 10, before: Callable[[Any], Any] = lambda session: None) -> Run:
        """Train with the agent; the endpoint lives as long."""
        with self.endpoint as endpoint:
            self.agent = LLMAgent("tiny", base_url=endpoint.url, api_key=KEY, **self.options)
            self.attached = self.session.attach(self.agent, blocking=self.blocking)
            before(self.session)
            with self.session.run():
                for step in range(1, steps + 1):
                    if self.session.step({"loss": 1 / step}).stop:
                        break
        return self

    def requests(self) -> list[tuple[str, str, str]]:
        """Type, status and reason of each request of the agent."""
        frame = self.session.journal.requests()
        asked = frame[frame["source"] == "agent"]
        assert set(asked["actor"]) <= {"llm"}
        reasons = asked["reason"].where(asked["reason"].notna(), "")
        return list(zip(asked["type"], asked["status"], reasons, strict=True))

    def rows(self, type: str) -> list[dict[str, Any]]:
        """The rows of one type."""
        frame = self.session.journal.frame()
        return list(frame[frame["type"] == type]["payload"])


def set_lr(value: Any, reason: str = "flat") -> Says:
    return Says("lower", [("set_knob", {"name": "lr", "value": value, "reason": reason})])


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


def test_a_wrong_key_pauses_the_agent_with_the_reason():
    run = Run(Fails(401, f"no such key {KEY}")).train(40)
    assert len(run.endpoint.asked) == 1
    assert not run.attached.enabled
    (row,) = run.rows("agent_enabled")
    assert row["enabled"] is False
    assert "401" in row["reason"]
    assert KEY not in str(row)


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


def test_an_approval_is_waited_for_by_the_request_and_not_by_the_run():
    run = Run(set_lr(0.05))
    run.session.policy.require_approval("lr")
    run.train(30)
    statuses = [status for _, status, _ in run.requests()]
    assert "applied" not in statuses
    assert run.values["lr"] == 0.1


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


def test_a_steered_run_replays_bit_equal_and_asks_nobody(tmp_path):
    def train(session: Any, pace: Callable[[int], object] = lambda step: None) -> list[float]:
        settings = {"lr": 0.5}
        session.register_knob(
            "lr", lambda: settings["lr"], lambda v: settings.update(lr=v), min=1e-6, max=1.0
        )
        weight, seen = 5.0, []
        with session.run():
            for step in range(60):
                weight -= settings["lr"] * 0.1 * (weight - 1)
                seen.append(weight)
                session.step({"loss": (weight - 1) ** 2})
                pace(step)
        return seen

    with Endpoint(set_lr(0.3), set_lr(0.9), Says("ok"), set_lr(0.05)) as endpoint:
        first = it2nb.TrainingSession(directory=tmp_path, title="first")
        first.attach(LLMAgent("tiny", base_url=endpoint.url, api_key=KEY, every=7))
        entered = threading.Event()

        def wait_for_answer(step: int) -> None:
            # Two steps after the question: the answer comes between the turns.
            if step == 9:
                while first.journal.requests().empty and not entered.wait(0.01):
                    pass

        weights = train(first, wait_for_answer)
        asked = len(endpoint.asked)
        assert first.path is not None
        again = it2nb.replay(first.path)
        second = it2nb.TrainingSession(directory=tmp_path, title="second", replay=again)
        second.attach(LLMAgent("tiny", base_url=endpoint.url, api_key=KEY, every=7))
        assert train(second) == weights
        assert len(endpoint.asked) == asked
    requests = first.journal.requests()
    assert "applied" in set(requests["status"])
    assert again.verify()


def test_rounds_are_planned_acted_in_and_looked_back_at():
    settings = {"lr": 0.1}

    def train(session: Any, ctx: Any) -> None:
        settings["lr"] = 0.1 if ctx.round == 0 else settings["lr"]
        session.register_knob(
            "lr", lambda: settings["lr"], lambda v: settings.update(lr=v), min=1e-5, max=1.0,
            replace=True,
        )  # fmt: skip
        weight = 5.0
        for _ in range(20):
            weight -= settings["lr"] * (weight - 1)
            session.step({"loss": (weight - 1) ** 2})

    def line(body: dict[str, Any]) -> Any:
        tools = [each["function"]["name"] for each in body.get("tools", [])]
        if "plan_round" in tools:
            return Says(None, [("plan_round", {"settings": {"lr": "0.5"}, "reason": "faster"})])
        if not tools:
            return Says("A larger lr helps.")
        return Says("nothing to do")

    with Endpoint(line) as endpoint:
        session = it2nb.TrainingSession(goal="loss", directory=None)
        agent = LLMAgent("tiny", base_url=endpoint.url, api_key=KEY, every=10)
        session.attach(agent, blocking=True)
        records = session.run_rounds(train, 3)
    assert records[0]["plan"] is None
    assert records[1]["plan"]["settings"] == {"lr": 0.5}
    assert records[1]["value"] < records[0]["value"]
    assert records[1]["reflection"] == "A larger lr helps."
    frame = session.journal.frame()
    (plan, *_) = frame[frame["type"] == "agent_plan"]["payload"]
    assert plan["plan"]["reason"] == "faster"
    assert plan["tokens"] == 120
    assert "agent_reflection" in set(frame["type"])
    planned = [each for each in endpoint.asked if "plan_round" in each.tools]
    assert "A larger lr helps." in planned[-1].text
    assert session.agent is not None
    assert session.agent["about"]["plan"]["text"] == "faster"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (Says("no idea"), "can't be read"),
        (Says('{"settings": {"lr": 0.'), "can't be read"),
        (Says(None, [("set_knob", {"name": "lr", "value": 1})]), "not plan_round"),
        (Says(None, [("plan_round", {"settings": [1]})]), "settings"),
    ],
)
def test_a_plan_that_cannot_be_read_is_a_row_and_the_round_is_trained(line, said):
    def train(session: Any, ctx: Any) -> None:
        for step in range(1, 6):
            session.step({"loss": 1 / step})

    with Endpoint(line) as endpoint:
        session = it2nb.TrainingSession(goal="loss", directory=None)
        session.attach(LLMAgent("tiny", base_url=endpoint.url, api_key=KEY), blocking=True)
        records = session.run_rounds(train, 2)
    assert len(records) == 2
    assert records[1]["plan"] is None
    frame = session.journal.frame()
    (plan,) = frame[frame["type"] == "agent_plan"]["payload"]
    assert said in plan["error"]
    assert len(plan["exchanges"]) == 2  # it was asked once more


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


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    yield
    for each in it2nb.runs():
        each.end()
