"""The worker of a controller: nothing that is thought on it ends it, or holds the loop for ever."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from it2nb.controllers.observation import Observation
from it2nb.controllers.thinking import MAX_ERRORS
from it2nb.controllers.worker import Worker
from it2nb.core.errors import It2nbError
from it2nb.core.faults import Fault
from it2nb.core.policy import Policy

from ..core.driving import LIMIT_S
from .contract import Bench


class Panic(BaseException):
    """As a Rust extension raises it: no Exception."""


class Mute(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


def cyclic() -> dict[str, Any]:
    found: dict[str, Any] = {"name": "lr"}
    found["self"] = [found, found]
    return found


def deep() -> list[Any]:
    found: list[Any] = []
    for _ in range(3000):
        found = [found]
    return found


class Agent:
    name = "agent"
    source = "agent"

    def __init__(self, ask: Any = None, row: Any = None) -> None:
        self._ask, self._row = ask, row

    def ask(self, observation: Observation) -> Any:
        return given(self._ask)

    def call_row(self) -> Any:
        return given(self._row) or {}


def given(what: Any) -> Any:
    if isinstance(what, BaseException):
        raise what
    return what


def test_a_job_may_raise_anything_and_the_next_one_is_run() -> None:
    faults: list[Fault] = []
    worker = Worker("thinker", faults.append)
    ran = threading.Event()
    for error in (Panic, SystemExit, KeyboardInterrupt, GeneratorExit, Mute):

        def job(error: type[BaseException] = error) -> None:
            raise error

        assert worker.post(job, 0.0).wait(LIMIT_S)
    assert worker.post(ran.set, 0.0).wait(LIMIT_S) and ran.is_set()
    assert [each.kind for each in faults] == [
        "Panic", "SystemExit", "KeyboardInterrupt", "GeneratorExit", "Mute",
    ]  # fmt: skip
    assert not worker.is_busy
    worker.close()


def test_a_thread_that_is_gone_is_started_again() -> None:
    worker = Worker("thinker")
    assert worker.post(lambda: None, 0.0).wait(LIMIT_S)
    worker.close()
    assert worker._thread is not None
    worker._thread.join(LIMIT_S)
    assert worker.post(lambda: None, 0.0).wait(LIMIT_S)
    worker.close()


@pytest.mark.parametrize("error", [Panic("it"), Mute(), SystemExit(3), KeyboardInterrupt()])
@pytest.mark.parametrize("where", ["ask", "row"])
def test_a_blocking_agent_that_raises_anything_is_an_error_row(
    bench: Bench, error: BaseException, where: str
) -> None:
    attached = bench.session.attach(Agent(**{where: error}), every=1, blocking=True)
    bench.loop.advance(MAX_ERRORS + 2)
    rows = bench.events("agent_call") + bench.events("note")
    told = [str(each.get("error") or each.get("text")) for each in rows]
    assert any(type(error).__name__ in each for each in told)
    if where == "ask":
        assert not attached.enabled, "paused after so many errors in a row"
    assert bench.session.status == "running"


@pytest.mark.parametrize(
    "payload",
    [cyclic(), {"name": "lr", "value": deep()}, {"name": "lr", "add": 10**400},
     {"name": "lr", "value": 10**400}, {"name": "lr", "factor": 10**5000}],
    ids=["cyclic", "deep", "add", "value", "factor"],
)  # fmt: skip
@pytest.mark.parametrize("late", ["apply", "rebase"])
def test_a_request_that_no_one_can_read_is_rejected(
    bench: Bench, payload: dict[str, Any], late: Any
) -> None:
    agent = Agent({"type": "set_knob", "payload": payload})
    bench.session.attach(agent, every=1, blocking=True, late=late)
    bench.loop.advance(2)
    rows = bench.rows(type="set_knob")
    assert rows and {each["status"] for each in rows} == {"rejected"}
    assert not bench.events("note")


@pytest.mark.parametrize("row", [cyclic(), {"said": deep()}, 5])
def test_a_call_row_that_no_one_can_read_costs_its_row_only(bench: Bench, row: Any) -> None:
    attached = bench.session.attach(Agent(row=row), every=1, blocking=True)
    bench.loop.advance(2)
    assert attached.calls == len(bench.events("agent_call")) > 0


@pytest.mark.parametrize(
    "row", [{"cost": float("nan")}, {"cost": -5.0}, {"tokens": -5}, {"tokens": float("inf")}]
)
def test_a_cost_that_is_none_is_not_booked_and_told(bench: Bench, row: dict[str, Any]) -> None:
    bench.session.policy.budget("agent", cost=1.0, tokens=10)
    bench.session.policy.spend("agent", cost=2.0)
    bench.session.attach(Agent(row=row), every=1, blocking=True)
    bench.loop.advance(2)
    assert bench.session.policy.spent("agent").cost == 2.0
    assert bench.session.policy.used_up("agent")
    assert any("can't be booked" in each["text"] for each in bench.events("note"))


def test_policy_refuses_to_book_what_is_no_amount() -> None:
    policy = Policy()
    for used in (float("nan"), float("inf"), -1, 10**400, True, "5", 10**5000):
        with pytest.raises(It2nbError, match="can't be booked"):
            policy.spend("agent", cost=used)  # type: ignore[arg-type]
    policy.spend("agent", tokens=3, cost=0.5)
    assert policy.spent("agent").cost == 0.5
