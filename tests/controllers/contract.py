"""What every controller has to stand up to; each one's test subclasses these."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

from it2nb.controllers.attached import Attached
from it2nb.controllers.observation import Observation
from it2nb.controllers.thinking import MAX_ERRORS, MAX_REQUESTS
from it2nb.core.wire import Action
from it2nb.session import TrainingSession

from ..core.driving import LIMIT_S, Loop, until

Answer = Callable[[Observation], Any]


class Bench:
    """A run with one knob, `lr`, whose loop moves when the test says so."""

    def __init__(self, **options: Any) -> None:
        self.held = {"lr": 0.1}
        self.session = TrainingSession(
            "val_loss", directory=None, resources_every_s=3600, **options
        )
        self.session.register_knob(
            "lr", lambda: self.held["lr"], lambda value: self.held.update(lr=value),
            min=0.0, max=1.0, scale="log",
        )  # fmt: skip
        self._loop: Loop | None = None

    @property
    def loop(self) -> Loop:
        if self._loop is None:
            self._loop = Loop(self.session, read=lambda: self.held["lr"])
        return self._loop

    def rows(self, **wanted: Any) -> list[dict[str, Any]]:
        frame = self.session.journal.requests()
        for name, value in wanted.items():
            frame = frame[frame[name] == value]
        return [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]

    def events(self, type: str) -> list[dict[str, Any]]:
        return [each.payload for each in self.session.journal.tail(1000, (type,))]

    def turn(self, attached: Attached, steps: int = 1) -> None:
        """Do a step at which it is asked, and one at which its answer is served."""
        calls = attached.calls
        self.loop.advance(steps)
        until(lambda: attached.calls > calls and not attached.is_thinking)
        self.loop.advance()

    def close(self) -> None:
        if self._loop is not None:
            self._loop.finish()
        self.session.finish()


class ControllerContract:
    """For controllers that act between two steps.

    A subclass makes one that answers with what ``answer(observation)`` returns or raises, in
    its own way: a stub of a model, a scripted policy.
    """

    def controller(self, answer: Answer) -> Any:
        raise NotImplementedError

    def attach(self, bench: Bench, answer: Answer, **options: Any) -> Attached:
        return bench.session.attach(self.controller(answer), **{"every": 1, **options})

    def test_its_request_is_served_with_source_actor_and_what_it_saw(self, bench: Bench) -> None:
        attached = self.attach(bench, once(ask("set_knob", name="lr", value=0.05)))
        bench.turn(attached)
        [row] = bench.rows(type="set_knob")
        assert (row["source"], row["actor"]) == (attached.source, attached.name)
        assert (row["status"], bench.held["lr"]) == ("applied", 0.05)
        [asked] = [each for each in bench.events("action_submitted") if each["type"] == "set_knob"]
        assert asked["observed"]["step"] == 1
        assert asked["observed"]["metrics"] == {"loss": 1.0}
        assert asked["observed"]["knobs"] == {"lr": 0.1}

    @pytest.mark.parametrize("blocking", [False, True])
    def test_an_exception_is_a_row_and_the_training_goes_on(
        self, bench: Bench, blocking: bool
    ) -> None:
        def answer(seen: Observation) -> Any:
            raise ValueError("no idea")

        attached = self.attach(bench, answer, blocking=blocking)
        bench.turn(attached)
        assert "no idea" in str(attached.error)
        assert any("no idea" in each["text"] for each in bench.events("note"))
        assert bench.session.status == "running"
        for _ in range(MAX_ERRORS):
            if attached.enabled:
                bench.turn(attached)
        assert not attached.enabled
        assert "errors in a row" in bench.events("agent_enabled")[-1]["reason"]

    def test_a_hang_holds_neither_the_loop_nor_the_end(self, bench: Bench) -> None:
        never = threading.Event()

        def answer(seen: Observation) -> Any:
            never.wait(LIMIT_S)

        attached = self.attach(bench, answer)
        bench.loop.advance(20)
        until(lambda: attached.is_thinking)
        assert bench.session.step_count == 20
        bench.loop.finish()
        assert bench.session.status == "finished"
        never.set()

    def test_nonsense_is_rejected_in_rows_of_its_own(self, bench: Bench) -> None:
        wrong = [
            ask("set_knob", name="lr", value=math.nan),
            ask("set_knob", name="lr", value="fast"),
            ask("set_knob", name="lrr", value=0.1),
            ask("no_such_action"),
        ]
        attached = self.attach(bench, once(*wrong))
        bench.turn(attached)
        rows = bench.rows(source=attached.source)
        assert [each["status"] for each in rows] == ["rejected"] * len(wrong)
        assert all(each["reason"] for each in rows)
        assert bench.held["lr"] == 0.1

    def test_a_flood_is_cut_and_told(self, bench: Bench) -> None:
        attached = self.attach(
            bench, once(*(ask("set_knob", name="lr", value=0.2) for _ in range(3000)))
        )
        bench.turn(attached)
        assert 0 < len(bench.rows(source=attached.source)) <= MAX_REQUESTS
        assert any("the rest was left out" in each["text"] for each in bench.events("note"))

    def test_what_the_policy_forbids_never_happens(self, bench: Bench) -> None:
        attached = self.attach(bench, once(ask("set_knob", name="lr", value=0.2), ask("stop")))
        bench.session.policy.forbid(attached.source, "lr", "stop")
        bench.turn(attached)
        assert [each["status"] for each in bench.rows()] == ["rejected", "rejected"]
        assert bench.held["lr"] == 0.1
        assert bench.session.status == "running"

    @pytest.mark.parametrize(
        ("late", "status", "lr"),
        [("apply", "applied", 0.05), ("expire", "expired", 0.01), ("rebase", "applied", 0.005)],
    )
    def test_a_late_answer_is_applied_expired_or_rebased(
        self, bench: Bench, late: Any, status: str, lr: float
    ) -> None:
        go, asked = threading.Event(), threading.Event()

        def answer(seen: Observation) -> Any:
            if asked.is_set():
                return None
            asked.set()
            assert go.wait(LIMIT_S)
            return ask("set_knob", name="lr", value=0.05)  # a half of what it saw

        attached = self.attach(bench, answer, late=late)
        bench.loop.advance()
        assert asked.wait(LIMIT_S)
        bench.session.set("lr", 0.01, timeout=0)
        bench.loop.advance(3)
        go.set()
        until(lambda: attached.calls >= 1)
        bench.loop.advance(2)
        [row] = bench.rows(source=attached.source)
        assert row["status"] == status
        assert bench.held["lr"] == pytest.approx(lr)
        observed = [e for e in bench.events("action_submitted") if e["source"] == attached.source]
        assert observed[0]["observed"]["step"] == 1

    def test_it_can_be_paused_and_resumed_by_a_request(self, bench: Bench) -> None:
        attached = self.attach(bench, lambda seen: None)
        bench.turn(attached)
        bench.session.submit({"type": "set_agent", "payload": {"enabled": False}})
        bench.loop.advance()
        until(lambda: not attached.is_thinking)
        calls = attached.calls
        bench.loop.advance(5)
        assert attached.calls == calls
        assert bench.session.state().agent["enabled"] is False  # type: ignore[index]
        bench.session.submit({"type": "set_agent", "payload": {"enabled": True}})
        bench.loop.advance()
        bench.turn(attached)
        assert attached.calls > calls

    def test_where_its_answers_come_from_is_changed_by_no_request(self, bench: Bench) -> None:
        attached = self.attach(bench, lambda seen: None)
        for name in ("endpoint", "base_url", "api_key", "model_url", "headers", "token"):
            bench.session.submit(
                {
                    "type": "configure_agent",
                    "payload": {"options": {name: "x"}, "name": attached.name},
                }
            )
        bench.loop.advance()
        rows = bench.rows(type="configure_agent")
        assert [each["status"] for each in rows] == ["rejected"] * 6
        assert all("can't be changed by a request" in each["reason"] for each in rows)

    def test_it_is_told_what_became_of_its_requests(self, bench: Bench) -> None:
        seen_results: list[Any] = []

        def answer(seen: Observation) -> Any:
            seen_results[:] = [(each.type, each.status) for each in seen.results]
            return ask("set_knob", name="lr", value=0.2) if seen.step == 1 else None

        attached = self.attach(bench, answer)
        for _ in range(4):
            bench.turn(attached)
        assert ("set_knob", "applied") in seen_results


class PlannerContract:
    """For controllers that plan rounds.

    A subclass makes one whose plans are what ``answer(ctx)`` returns or raises.
    """

    def planner(self, answer: Callable[[Any], Any]) -> Any:
        raise NotImplementedError

    def run(self, answer: Callable[[Any], Any], **options: Any) -> tuple[Any, list[float]]:
        bench = Bench()
        first: list[float] = []

        def train(session: Any, ctx: Any) -> None:
            first.append(bench.held["lr"])
            session.step({"val_loss": 1.0})

        attached = bench.session.attach(self.planner(answer), **options)
        bench.session.run_rounds(train, 2)
        assert bench.session.status == "finished"
        return (bench, attached), first

    def test_its_plan_is_in_force_at_the_first_step(self) -> None:
        (bench, _), first = self.run(lambda ctx: {"settings": {"lr": 0.5}})
        assert first == [0.1, 0.5]
        assert bench.rows(source="plan")[0]["status"] == "applied"

    def test_an_exception_is_a_row_and_the_round_goes_on_without(self) -> None:
        def answer(ctx: Any) -> Any:
            raise ValueError("no idea")

        (_, attached), first = self.run(answer)
        assert first == [0.1, 0.1]
        assert "no idea" in str(attached.error)

    def test_a_hang_is_given_up(self) -> None:
        never = threading.Event()
        (_, attached), first = self.run(lambda ctx: never.wait(LIMIT_S), timeout_s=0.1)
        assert first == [0.1, 0.1]
        assert "no answer in 0.1 s" in str(attached.error)
        never.set()

    def test_a_plan_for_what_there_is_not_is_rejected(self) -> None:
        (bench, _), first = self.run(lambda ctx: {"settings": {"lrr": 0.5, "lr": math.nan}})
        assert first == [0.1, 0.1]
        assert {each["status"] for each in bench.rows(source="plan")} == {"rejected"}


def ask(kind: str, **payload: Any) -> Action:
    return Action(type=kind, payload=payload)


def once(*actions: Action) -> Answer:
    """Answer with these the first time, and with nothing afterwards."""
    left = [list(actions)]
    return lambda seen: left.pop() if left else None
