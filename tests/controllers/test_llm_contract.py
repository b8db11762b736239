"""A language model stands up to what every controller does; its answers come over HTTP."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from it2nb.controllers.base import Asked
from it2nb.controllers.llm import LLMAgent
from it2nb.controllers.observation import Observation
from it2nb.controllers.thinking import MAX_ERRORS, listed
from it2nb.core.rounds import Plan, RoundContext
from tests.controllers.endpoint import Endpoint, Fails, Says

from ..core.driving import until
from .contract import Answer, Bench, ControllerContract, PlannerContract, ask


class Watched(LLMAgent):
    """Keeps what it is shown, so that the endpoint can answer to that."""

    seen: Any = None

    def ask(self, observation: Observation) -> list[Any]:
        self.seen = observation
        return super().ask(observation)

    def plan(self, ctx: RoundContext) -> Plan | None:
        self.seen = ctx
        return super().plan(ctx)


def plain(value: Any) -> Any:
    """JSON has no NaN; a model writes it as text."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value


def calls(answer: Asked) -> Says:
    """What the contract's answer is as tool calls."""
    return Says("so", [(each.type, plain(each.payload)) for each in listed(answer)])


class Over:
    """Makes agents whose endpoint says what an answer function returns or raises."""

    endpoints: list[Endpoint]

    @pytest.fixture(autouse=True)
    def _endpoints(self) -> Iterator[None]:
        self.endpoints = []
        yield
        for each in self.endpoints:
            each.__exit__()

    def make(self, answer: Callable[[Any], Any], said: Callable[[Any], Says]) -> Watched:
        def line(body: dict[str, Any]) -> Says | Fails:
            try:
                return said(answer(agent.seen))
            except ValueError as error:
                return Fails(500, str(error))

        endpoint = Endpoint(line).__enter__()
        self.endpoints.append(endpoint)
        agent = Watched("tiny", base_url=endpoint.url, retries=0, every=1)
        return agent


class TestActs(Over, ControllerContract):
    def controller(self, answer: Answer) -> Watched:
        return self.make(answer, calls)

    @pytest.mark.parametrize("blocking", [False, True])
    def test_an_exception_is_a_row_and_the_training_goes_on(
        self, bench: Bench, blocking: bool
    ) -> None:
        """It is asked less and less often, so that ten errors in a row take longer."""

        def answer(seen: Observation) -> Any:
            raise ValueError("no idea")

        attached = self.attach(bench, answer, blocking=blocking)
        bench.turn(attached)
        assert "no idea" in str(attached.error)
        assert any("no idea" in each["text"] for each in bench.events("note"))
        for _ in range(300):
            if not attached.enabled:
                break
            bench.loop.advance()
            until(lambda: not attached.is_thinking)
        assert bench.session.status == "running"
        assert attached.errors == MAX_ERRORS
        assert "errors in a row" in bench.events("agent_enabled")[-1]["reason"]

    def test_it_is_told_what_became_of_its_requests(self, bench: Bench) -> None:
        """An answer over HTTP may take longer than a step: one turn more."""
        seen_results: list[Any] = []

        def answer(seen: Observation) -> Any:
            seen_results[:] = [(each.type, each.status) for each in seen.results]
            return ask("set_knob", name="lr", value=0.2) if seen.step == 1 else None

        attached = self.attach(bench, answer)
        for _ in range(3):
            bench.turn(attached)
        assert ("set_knob", "applied") in seen_results


class TestPlans(Over, PlannerContract):
    def planner(self, answer: Callable[[Any], Any]) -> Watched:
        made = self.make(answer, lambda plan: Says(None, [("plan_round", plain(plan))]))
        made.reflect = None  # type: ignore[method-assign, assignment]  # it only plans
        return made
