"""A language model and rounds: it plans, acts in them and looks back; and replays without it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import it2nb
from it2nb.controllers.llm import LLMAgent
from tests.controllers.endpoint import Endpoint, Says
from tests.controllers.modelled import KEY, set_lr

pytestmark = pytest.mark.usefixtures("no_keys_no_waits", "ended")


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
