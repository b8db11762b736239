"""Controllers of every shape: each stands up to the contract; foreign objects are adapted."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from it2nb.controllers.base import Adapted, Controller, ControllerError
from it2nb.controllers.fixed import is_fixed
from it2nb.controllers.observation import Observation
from it2nb.controllers.thinking import MAX_REQUESTS
from it2nb.core.control import StopTraining
from it2nb.core.errors import SessionEnded
from it2nb.core.wire import Action
from it2nb.session import TrainingSession

from ..core.driving import LIMIT_S, until
from .contract import Answer, Bench, ControllerContract, PlannerContract, ask, once


class Native:
    name = "native"
    source = "agent"

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.told: list[Any] = []

    def ask(self, observation: Observation) -> Any:
        return self.answer(observation)

    def tell(self, result: Any) -> None:
        self.told.append(result)


class Papers:
    """As the paper's objects are: act, plan, reflect, describe, every."""

    every = 1

    def __init__(self, answer: Any) -> None:
        self.act = answer

    def describe(self) -> dict[str, Any]:
        return {"model": "none", "api_key": "sk-1"}


class Plans:
    name = "planner"
    source = "plan"

    def __init__(self, answer: Any) -> None:
        self.plan = answer


class TestNative(ControllerContract):
    def controller(self, answer: Answer) -> Native:
        return Native(answer)


class TestPapersObject(ControllerContract):
    def controller(self, answer: Answer) -> Papers:
        return Papers(answer)


class TestFunction(ControllerContract):
    def controller(self, answer: Answer) -> Any:
        return answer


class TestPlanner(PlannerContract):
    def planner(self, answer: Any) -> Plans:
        return Plans(answer)


class TestAdapting:
    def test_what_the_protocol_says_is_enough(self) -> None:
        assert isinstance(Native(lambda seen: None), Controller)

    def test_names_and_sources(self) -> None:
        adapted = Adapted(Papers(lambda seen: None))
        assert (adapted.name, adapted.source, adapted.every) == ("Papers", "agent", 1)

        def lower(observation: Observation) -> None:
            return None

        function = Adapted(lower)
        assert (function.name, function.source) == ("lower", "rule")
        assert Adapted(lower, "mine").name == "mine"

    @pytest.mark.parametrize("target", [3, None, object(), Native, []])
    def test_what_is_no_controller_is_refused_in_words(self, target: Any) -> None:
        with pytest.raises(ControllerError, match="is no controller"):
            Adapted(target)

    def test_no_controller_may_come_through_a_persons_entry(self) -> None:
        native = Native(lambda seen: None)
        native.source = "python"
        with pytest.raises(ControllerError, match="source='python' has to be one of"):
            Adapted(native)

    def test_functions_get_what_they_ask_for(self) -> None:
        seen, session = Observation(step=3), object()
        assert Adapted(lambda: 1).ask(seen, session) == 1
        assert Adapted(lambda observation: observation).ask(seen, session) is seen
        assert Adapted(lambda session: session).ask(seen, session) is session
        assert Adapted(lambda a, b: (a, b)).ask(seen, session) == (seen, session)
        assert Adapted(lambda *args: args).ask(seen, session) == (seen,)

    @pytest.mark.parametrize(
        ("name", "fixed"),
        [("endpoint", True), ("base_url", True), ("apiKey", True), ("openai_api_key", True),
         ("max_tokens", False), ("temperature", False), ("keyboard", False), ("hostile", False)],
    )  # fmt: skip
    def test_options_that_no_request_changes(self, name: str, fixed: bool) -> None:
        assert is_fixed(name) is fixed


class TestAttached:
    def test_a_blocking_one_is_served_at_the_control_point_it_was_asked_at(
        self, bench: Bench
    ) -> None:
        native = Native(lambda seen: ask("set_knob", name="lr", value=0.1 / (seen.step + 1)))
        bench.session.attach(native, every=1, blocking=True)
        bench.loop.advance(4)
        assert bench.loop.used == [0.1, 0.1 / 2, 0.1 / 3, 0.1 / 4]
        assert [each["step"] for each in bench.rows()] == [1, 2, 3, 4]
        bench.loop.advance()
        assert [each.status for each in native.told] == ["applied"] * 4

    def test_a_blocking_one_that_hangs_is_waited_for_no_longer_than_said(
        self, bench: Bench
    ) -> None:
        never = threading.Event()
        native = Native(lambda seen: never.wait(LIMIT_S) and None)
        attached = bench.session.attach(native, every=1, blocking=True, timeout_s=0.05)
        bench.loop.advance(3)
        assert attached.skipped == 2
        assert any("has not answered" in each["text"] for each in bench.events("note"))
        never.set()

    def test_a_stop_ends_the_waiting_for_a_blocking_one(self, bench: Bench) -> None:
        asked, never = threading.Event(), threading.Event()

        def answer(seen: Observation) -> Any:
            asked.set()
            never.wait(LIMIT_S)

        bench.session.attach(Native(answer), every=1, blocking=True)
        bench.loop.advance(1, wait=False)
        assert asked.wait(LIMIT_S)
        bench.session.submit(ask("stop"))
        bench.loop.came_back()
        assert bench.loop.controls[-1].stop
        never.set()

    @pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopTraining()])
    @pytest.mark.parametrize("blocking", [False, True])
    def test_what_would_end_a_thread_ends_nothing(
        self, bench: Bench, error: BaseException, blocking: bool
    ) -> None:
        def answer(seen: Observation) -> Any:
            if seen.step == 1:
                raise error
            return ask("set_knob", name="lr", value=0.3)

        attached = bench.session.attach(Native(answer), every=1, blocking=blocking)
        bench.turn(attached)
        assert type(error).__name__ in str(attached.error)
        bench.turn(attached)
        assert bench.held["lr"] == 0.3

    def test_answers_of_every_kind_are_rows(self, bench: Bench) -> None:
        def answer(seen: Observation) -> Any:
            answers: list[Any] = [
                "lower the learning rate",
                42,
                {"payload": {}},
                {"type": "set_knob", "payload": {"name": "lr", "value": 0.2}, "actor": "human:a"},
                [None, object()],
            ]
            return answers[seen.step - 1] if seen.step <= len(answers) else None

        bench.session.attach(Native(answer), every=1, blocking=True)
        bench.loop.advance(6)
        rows = bench.rows()
        assert [each["status"] for each in rows] == [
            "rejected", "rejected", "rejected", "applied", "rejected", "rejected",
        ]  # fmt: skip
        assert {each["actor"] for each in rows} == {"native"}

    def test_what_it_gave_before_it_raised_counts(self, bench: Bench) -> None:
        def answer(seen: Observation) -> Any:
            if seen.step == 1:
                yield ask("set_knob", name="lr", value=0.2)
                raise ValueError("and no more")

        bench.session.attach(Native(answer), every=1, blocking=True)
        bench.loop.advance(2)
        assert bench.held["lr"] == 0.2
        assert any("and no more" in each["text"] for each in bench.events("note"))

    def test_an_endless_answer_is_cut(self, bench: Bench) -> None:
        def answer(seen: Observation) -> Any:
            while seen.step == 1:
                yield ask("note", text="again")

        bench.session.policy.allow("agent")
        bench.session.attach(Native(answer), every=1, blocking=True)
        bench.loop.advance(2)
        assert len(bench.rows()) == MAX_REQUESTS

    def test_turns_at_which_it_thinks_are_skipped_and_it_is_told_once_that_it_is_slow(self) -> None:
        clock = _Clock()
        bench = Bench(clock=clock)
        go = threading.Event()
        attached = bench.session.attach(Native(lambda seen: go.wait(LIMIT_S) and None), every=2)
        bench.loop.advance(2)
        until(lambda: attached.is_thinking)
        bench.loop.advance(2)
        assert attached.skipped == 1
        clock.now += 61
        bench.loop.advance(4)
        said = [each["text"] for each in bench.events("note") if "not answered" in each["text"]]
        assert said == ["native has not answered for 61 s; the training goes on without it"]
        go.set()
        bench.close()

    def test_what_moved_and_cannot_be_rebased_is_asked_again(self, bench: Bench) -> None:
        seen_moves: list[Any] = []
        go = threading.Event()

        def answer(seen: Observation) -> Any:
            seen_moves.append(seen.moved)
            if len(seen_moves) == 1:
                assert go.wait(LIMIT_S)
                return Action(type="batch", payload={"set": {"lr": 0.2}})
            return ask("set_knob", name="lr", value=0.4) if len(seen_moves) == 2 else None

        attached = bench.session.attach(Native(answer), every=1, late="rebase")
        bench.loop.advance()
        until(lambda: len(seen_moves) == 1)
        bench.session.set("lr", 0.01, timeout=0)
        bench.loop.advance(2)
        go.set()
        until(lambda: attached.calls == 1)
        assert seen_moves[1]["knobs"] == {"lr": [0.1, 0.01]}
        assert seen_moves[1]["from_step"] == 1
        bench.loop.advance()
        assert bench.held["lr"] == 0.4

    def test_attaching_one_twice_gives_the_same(self, bench: Bench) -> None:
        native = Native(lambda seen: None)
        assert bench.session.attach(native) is bench.session.attach(native)
        other = bench.session.attach(Native(lambda seen: None))
        assert other.name == "native (2)"

    def test_detaching_ends_its_turns(self, bench: Bench) -> None:
        attached = bench.session.attach(Native(lambda seen: None), every=1, blocking=True)
        bench.loop.advance(2)
        attached.detach()
        attached.detach()
        bench.loop.advance(2)
        assert attached.calls == 2
        assert bench.session.controllers == []
        assert bench.session.agent is None

    def test_state_and_journal_tell_of_it_and_of_no_secret(self, bench: Bench) -> None:
        papers = Papers(lambda seen: None)
        bench.session.attach(papers, blocking=True)
        bench.loop.advance()
        agent = bench.session.state().agent
        assert agent is not None
        assert agent["name"] == "Papers"
        assert agent["about"] == {"model": "none", "api_key": "***"}
        assert [each["name"] for each in agent["controllers"]] == ["Papers"]
        assert bench.events("agent_attached")[0]["about"]["api_key"] == "***"
        [call] = bench.events("agent_call")
        assert (call["name"], call["requests"], call["observed_step"]) == ("Papers", 0, 1)

    def test_what_a_call_cost_is_booked_and_the_budget_holds(self, bench: Bench) -> None:
        native = Native(lambda seen: ask("set_knob", name="lr", value=0.2))
        native.call_row = lambda: {"tokens": 60, "cost": 0.5, "prompt": "p"}  # type: ignore[attr-defined]
        bench.session.policy.budget("agent", tokens=100)
        bench.session.attach(native, every=1, blocking=True)
        bench.loop.advance(3)
        assert bench.session.policy.spent("agent").tokens == 180
        assert bench.session.policy.spent("agent").cost == 1.5
        assert [each["status"] for each in bench.rows()] == ["applied", "rejected", "rejected"]
        assert bench.events("agent_call")[0]["prompt"] == "p"

    def test_options_of_its_own_can_be_changed_where_it_says_so(self, bench: Bench) -> None:
        native = Native(lambda seen: None)
        changed: dict[str, Any] = {}
        native.configurable = ("temperature",)  # type: ignore[attr-defined]
        native.configure = changed.update  # type: ignore[attr-defined]
        attached = bench.session.attach(native, every=1)
        bench.loop.advance()
        for options in ({"temperature": 0.2, "every": 5}, {"every": 0}, {"size": 1}):
            bench.session.submit({"type": "configure_agent", "payload": {"options": options}})
        bench.loop.advance()
        assert [each["status"] for each in bench.rows()] == ["applied", "rejected", "rejected"]
        assert changed == {"temperature": 0.2}
        assert attached.every == 5

    def test_options_that_were_changed_hold_in_later_rounds(self) -> None:
        steps: list[tuple[int, int]] = []
        session = TrainingSession("loss", directory=None)
        session.attach(
            Native(lambda seen: steps.append((seen.round, seen.step))), every=1, blocking=True
        )

        def train(session: Any, ctx: Any) -> None:
            for step in range(1, 7):
                if (ctx.round, step) == (1, 2):
                    session.do("configure_agent", options={"every": 3}, name="native")
                session.step({"loss": 1.0})

        session.run_rounds(train, 3)
        assert steps == [(1, 1), (1, 2), (1, 3), (1, 6), (2, 3), (2, 6)]

    def test_several_are_asked_in_the_order_in_which_they_were_attached(self, bench: Bench) -> None:
        for value in (0.2, 0.3, 0.4):
            bench.session.attach(
                Native(once(ask("set_knob", name="lr", value=value))), every=1, blocking=True
            )
        bench.loop.advance(1)
        assert [each["requested"] for each in bench.rows()] == [0.2, 0.3, 0.4]

    def test_the_last_results_are_told_when_the_run_ends(self) -> None:
        bench = Bench()
        heard = threading.Event()

        class Stopper(Native):
            def tell(self, result: Any) -> None:
                assert result.type == "stop"
                heard.set()

        bench.session.attach(Stopper(once(ask("stop"))), every=1, blocking=True)
        bench.loop.advance()
        bench.close()
        assert heard.wait(LIMIT_S)

    def test_one_whose_hook_raises_is_not_attached(self, bench: Bench) -> None:
        class Wrong(Native):
            def on_attach(self, attached: Any) -> None:
                raise OSError("no model there")

        with pytest.raises(OSError, match="no model there"):
            bench.session.attach(Wrong(lambda seen: None))
        assert bench.session.controllers == []
        assert bench.session.agent is None

    def test_a_function_that_says_nothing_leaves_no_rows(self, bench: Bench) -> None:
        attached = bench.session.attach(lambda seen: None, blocking=True)
        bench.loop.advance(5)
        assert attached.calls == 5
        assert bench.events("agent_call") == []

    def test_an_ended_session_takes_none(self) -> None:
        session = TrainingSession(directory=None)
        session.finish()
        with pytest.raises(SessionEnded):
            session.attach(Native(lambda seen: None))

    @pytest.mark.parametrize(
        "options",
        [{"every": 0}, {"every": 1.5}, {"late": "never"}, {"timeout_s": 0}, {"timeout_s": "1"}],
    )
    def test_wrong_options_are_refused(self, bench: Bench, options: Any) -> None:
        with pytest.raises(ControllerError):
            bench.session.attach(Native(lambda seen: None), **options)
        assert bench.session.controllers == []


class _Clock:
    now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now
