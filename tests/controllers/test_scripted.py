"""An agent without a model: what follows from the goal's curve."""

from __future__ import annotations

import math
from typing import Any

import pytest

import it2nb
from it2nb.controllers.observation import Observation
from it2nb.controllers.scripted import ScriptedAgent
from it2nb.core.errors import It2nbError
from it2nb.core.goals import Goal
from it2nb.core.wire import KnobView

LR = KnobView(name="lr", dtype="float", value=0.1, min=1e-4, max=1.0)


def look(
    values: list[float], *, step: int | None = None, goal: str = "loss", **options: Any
) -> tuple[list[float], str]:
    """What is asked for a curve with a value every ten steps, and why."""
    agent = ScriptedAgent(patience=40, **options)
    points = [(10 * (n + 1), value) for n, value in enumerate(values)]
    seen = Observation(
        step=step or 10 * len(values), goal=Goal(goal), knobs=[LR], history={goal: points}
    )
    asked = [action.payload["value"] for action in agent.ask(seen)]
    (decision,) = agent.describe()["decisions"]
    return asked, decision["said"]


def test_what_still_improves_is_left_alone():
    assert look([1.0, 0.8, 0.6, 0.5, 0.4, 0.3, 0.25, 0.2]) == (
        [], "loss still improves: 0.5 to 0.2",
    )  # fmt: skip
    assert look([0.1, 0.2, 0.3, 0.4, 0.5, 0.6], goal="accuracy")[0] == []


def test_on_a_plateau_the_lr_is_halved():
    asked, why = look([1.0, 0.5, 0.3, 0.3, 0.3, 0.301, 0.3, 0.3])
    assert asked == [0.05]
    assert why == "no better loss than 0.3 in 40 steps"
    assert look([0.5, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8], goal="accuracy")[0] == [0.05]


@pytest.mark.parametrize("values", [[1.0, 0.5, 0.4, 2.0], [1.0, 0.5, 0.4, math.nan]])
def test_when_the_goal_gets_much_worse_the_lr_is_cut_to_a_third(values):
    assert look(values)[0] == [pytest.approx(0.0333, rel=1e-3)]


def test_near_the_end_of_a_run_it_changes_nothing():
    flat = {"loss": [(n, 1.0) for n in range(1, 1_000)]}
    seen = Observation(step=999, total_steps=1_000, goal=Goal("loss"), knobs=[LR], history=flat)
    assert ScriptedAgent().ask(seen) == []


@pytest.mark.parametrize(("values", "said"), [([], "no loss yet"), ([1.0, 0.9], "too early")])
def test_it_waits_until_there_is_something_to_see(values, said):
    asked, why = look(values, step=20)
    assert asked == []
    assert said in why


def test_it_waits_after_a_cut_and_cuts_so_often_only():
    agent = ScriptedAgent(patience=40, max_drops=2)
    cuts = []
    for last in range(5, 60):
        points = [(10 * n, 0.5) for n in range(1, last)]
        seen = Observation(step=10 * last, goal=Goal("loss"), knobs=[LR], history={"loss": points})
        if agent.ask(seen):
            cuts.append(seen.step)
    assert len(cuts) == 2
    assert cuts[1] - cuts[0] >= 40


def test_without_a_goal_or_a_knob_it_asks_for_nothing():
    agent = ScriptedAgent()
    assert agent.ask(Observation(step=10)) == []
    flat = {"loss": [(n, 1.0) for n in range(1, 1_000)]}
    assert agent.ask(Observation(step=1_000, goal=Goal("loss"), history=flat)) == []
    stuck = LR.model_copy(update={"value": 1e-4})
    assert agent.ask(Observation(step=1_000, goal=Goal("loss"), knobs=[stuck], history=flat)) == []


@pytest.mark.parametrize(
    "options",
    [{"every": 0}, {"patience": 0}, {"tolerance": -1}, {"factor": 1}, {"max_drops": -1},
     {"tolerance": math.nan}],
)  # fmt: skip
def test_values_that_make_no_sense_are_refused(options):
    with pytest.raises(It2nbError):
        ScriptedAgent(**options)


def test_rounds_climb_to_a_better_lr_and_leave_the_rows_of_an_agent():
    def train(session: Any, ctx: Any) -> None:
        settings = {"lr": 0.01}
        session.register_knob(
            "lr", lambda: settings["lr"], lambda v: settings.update(lr=v), min=1e-5, max=1.0,
            replace=True,
        )  # fmt: skip
        weight = 5.0
        for _ in range(60):
            weight -= settings["lr"] * (weight - 1)
            session.step({"loss": (weight - 1) ** 2})

    session = it2nb.TrainingSession(goal="loss", directory=None)
    session.attach(ScriptedAgent(every=10), blocking=True)
    records = session.run_rounds(train, 4)
    planned = [(each["plan"] or {}).get("settings") for each in records]
    assert planned == [None, {"lr": 0.03}, {"lr": 0.09}, {"lr": 0.27}]
    assert [each["improved"] for each in records[1:]] == [True, True, True]
    assert records[1]["reflection"].startswith("lr 0.03: loss ")
    frame = session.journal.frame()
    rows = {kind: list(frame[frame["type"] == kind]["payload"]) for kind in set(frame["type"])}
    assert rows["agent_call"][0]["model"] == "scripted"
    assert rows["agent_call"][0]["tokens"] == 0
    assert rows["agent_call"][0]["exchanges"][0]["answer"]
    assert len(rows["agent_plan"]) == 3
    assert len(rows["agent_reflection"]) == 4
    assert session.agent is not None
    assert session.agent["about"]["plan"]["settings"] == {"lr": 0.27}
    assert session.policy.spent("agent").tokens == 0


def test_a_plan_that_was_refused_is_not_taken_for_tried():
    def train(session: Any, ctx: Any) -> None:
        settings = {"lr": 0.01}
        session.register_knob("lr", lambda: settings["lr"], lambda v: settings.update(lr=v),
                              min=1e-5, max=1.0, replace=True)  # fmt: skip
        session.step({"loss": settings["lr"]})

    session = it2nb.TrainingSession(goal="loss", directory=None)
    session.policy.limit("lr", max_change=2, sources=["plan"])
    session.attach(ScriptedAgent())
    records = session.run_rounds(train, 3)
    assert [each["value"] for each in records] == [0.01] * 3
    assert records[1]["reflection"].startswith("lr 0.01: ")


def test_the_search_turns_round_and_grows_finer():
    agent = ScriptedAgent(factor=4.0)
    reached: dict[float, float] = {}

    def loss(lr: float) -> float:
        return abs(math.log(lr / 0.05))

    session = it2nb.TrainingSession(goal="loss", directory=None)
    session.attach(agent)

    def train(session: Any, ctx: Any) -> None:
        settings = {"lr": 0.1}
        session.register_knob("lr", lambda: settings["lr"], lambda v: settings.update(lr=v),
                              min=1e-5, max=1.0, replace=True)  # fmt: skip
        session.step({"loss": 9.0})
        reached[settings["lr"]] = loss(settings["lr"])
        session.step({"loss": loss(settings["lr"])})

    session.run_rounds(train, 7)
    assert list(reached)[:3] == [0.1, 0.4, 0.025]
    assert min(reached.values()) < 0.2


def test_the_same_observations_give_the_same_requests():
    values = [1.0, 0.5, 0.3, 0.3, 0.3, 0.301, 0.3, 0.3]
    assert look(values) == look(values)


def test_its_decisions_say_their_round() -> None:
    def train(session: Any, ctx: Any) -> None:
        settings = {"lr": 0.01}
        session.register_knob("lr", lambda: settings["lr"], lambda v: settings.update(lr=v),
                              min=1e-5, max=1.0, replace=True)  # fmt: skip
        for _ in range(4):
            session.step({"loss": settings["lr"]})

    session = it2nb.TrainingSession(goal="loss", directory=None)
    agent = ScriptedAgent(every=2)
    session.attach(agent, blocking=True)
    session.run_rounds(train, 3)
    decisions = agent.describe()["decisions"]
    assert [(each["round"], each["step"]) for each in decisions] == [(1, 2), (1, 4), (2, 2), (2, 4)]
