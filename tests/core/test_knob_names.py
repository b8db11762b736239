"""Aliases: every name of a knob is as good as its own, wherever somebody names one."""

from __future__ import annotations

from typing import Any

import pytest

import it2nb
from it2nb.controllers.observation import observe
from it2nb.controllers.optuna import OptunaController
from it2nb.controllers.planning import PLAN_TOOL, plan_of
from it2nb.controllers.provider import Answer, ToolCall
from it2nb.controllers.reading import wishes
from it2nb.controllers.scripted import ScriptedAgent
from it2nb.controllers.tools import Toolbox
from it2nb.core.errors import UnknownKnob
from it2nb.core.knob_names import KnobViews
from it2nb.core.session import Session
from it2nb.core.wire import Action


def with_knobs(session: Session) -> dict[str, Any]:
    values = {"lr": 0.1, "lr[0]": 0.1, "lr[decay]": 0.1, "smooth": 0.5}

    def register(name: str, *aliases: str) -> None:
        session.register_knob(
            name, lambda: values[name], lambda value: values.update({name: value}),
            min=1e-6, max=1.0, scale="log", aliases=aliases,
        )  # fmt: skip

    register("lr")
    register("lr[0]")
    register("lr[decay]", "lr[1]")
    register("smooth", "smoothing")
    return values


@pytest.fixture
def session() -> Session:
    made = Session(directory=None, goal="loss")
    with_knobs(made)
    return made


NAMES = {
    "lr": "lr",
    "learning_rate": "lr",
    "learning_rate[0]": "lr[0]",
    "lr[1]": "lr[decay]",
    "learning_rate[1]": "lr[decay]",
    "learning_rate[decay]": "lr[decay]",
    "smoothing": "smooth",
}


@pytest.mark.parametrize(("asked", "own"), NAMES.items())
def test_registry_views_and_values_find_the_same_knob(
    session: Session, asked: str, own: str
) -> None:
    views = KnobViews(session.knobs.views())
    assert session.knobs[asked].name == views[asked].name == own
    assert session.knobs.own_name(asked) == views.own_name(asked) == own
    values = observe(session, "agent").values
    assert asked in session.knobs and asked in views and asked in values
    assert values[asked] == values.get(asked) == session.knobs[own].value
    assert list(values) == list(views) == list(session.knobs)


@pytest.mark.parametrize("name", ["nope", "learning_rate[7]", "lr[", "", "smoothing[0]", 3, None])
def test_other_names_are_none(session: Session, name: Any) -> None:
    views = KnobViews(session.knobs.views())
    values = observe(session, "agent").values
    assert name not in session.knobs and name not in views and name not in values
    assert values.get(name) is None and views.get(name) is None
    for each in (session.knobs, views):
        with pytest.raises(UnknownKnob):
            each[name]
    with pytest.raises(KeyError):
        values[name]


def test_a_knobs_own_name_wins_over_an_alias(session: Session) -> None:
    session.register_knob("learning_rate", lambda: 3.0, lambda value: None)
    assert session.knobs["learning_rate"].value == 3.0
    assert KnobViews(session.knobs.views())["learning_rate"].value == 3.0


@pytest.mark.parametrize("name", ["learning_rate", "lr"])
@pytest.mark.parametrize("ruled", ["learning_rate", "lr"])
def test_rules_of_the_policy_hold_for_every_name(session: Session, ruled: str, name: str) -> None:
    def ask(value: float = 0.2) -> Any:
        action = Action(type="set_knob", payload={"name": name, "value": value})
        return session.submit(action, source="agent", wait=True)

    policy = session.policy
    session.start()
    session.pump()  # from here on this is its training thread
    policy.forbid("agent", ruled)
    assert ask().reason == "agent may not use lr"
    assert [each.name for each in observe(session, "agent").knobs] == ["smooth"]
    policy.allow("agent", name)
    assert ask().status == "applied"
    policy.lock(ruled, against=["agent"])
    assert "is locked for agent" in ask().reason
    policy.unlock(name)
    policy.limit(ruled, max_change=2)
    assert "factor of 2 at most" in ask(0.9).reason
    policy.limit(name)
    assert ask(0.9).status == "applied"
    policy.require_approval(ruled)
    action = Action(type="set_knob", payload={"name": name, "value": 0.3})
    handle = session.submit(action, source="agent")
    session.step({"loss": 1.0})
    assert handle.status == "waiting"
    session.end()


def test_an_alias_that_is_an_actions_name_opens_no_way_round_a_rule(session: Session) -> None:
    session.register_knob("remark", lambda: 0.5, lambda value: None, aliases=["note"])
    session.policy.allow("agent").forbid("agent", "note")
    session.start()
    session.pump()  # from here on this is its training thread
    for action in (
        Action(type="note", payload={"text": "x"}),
        Action(type="set_knob", payload={"name": "remark", "value": 0.5}),
    ):
        result = session.submit(action, source="agent", wait=True)
        assert result.status == "rejected" and "may not use" in result.reason
    session.end()


def test_a_model_may_use_any_name(session: Session) -> None:
    views = session.knobs.views()
    box = Toolbox([spec.schema() for spec in session.actions.values()], views)
    call = ToolCall("set_knob", {"name": "learning_rate", "value": "0.3"})
    assert wishes("", [call], box)[0].payload["value"] == 0.3
    later = [{"step": 3, "set": {"learning_rate": "1e-2"}}]
    told = {"settings": {"learning_rate": "0.3"}, "schedule": later}
    plan = plan_of(Answer("", [ToolCall(PLAN_TOOL, told)], None, 0.0, 1), views)
    assert plan.settings == {"learning_rate": 0.3}
    assert plan.schedule[0].action.payload == {"name": "learning_rate", "value": 0.01}


def train(session: Any, ctx: Any = None) -> None:
    values = {"lr": 0.1}
    session.register_knob(
        "lr", lambda: values["lr"], lambda value: values.update(lr=value),
        min=1e-6, max=1.0, scale="log",
    )  # fmt: skip
    for _ in range(4):
        session.step({"loss": abs(values["lr"] - 0.3)})


@pytest.mark.parametrize(
    "controller",
    [
        OptunaController(["learning_rate"], prune=False),
        OptunaController({"learning_rate": (0.2, 0.4)}, prune=False),
        ScriptedAgent("learning_rate"),
    ],
    ids=["optuna", "optuna with a range", "scripted"],
)
def test_searches_take_aliases(controller: Any) -> None:
    session = it2nb.TrainingSession(goal="loss", directory=None)
    session.attach(controller, blocking=True)
    records = session.run_rounds(train, 4)
    assert session.warnings == []
    planned = [each["plan"]["settings"]["lr"] for each in records[1:]]
    assert [each["settings"]["lr"] for each in records[1:]] == pytest.approx(planned)
    assert len({round(each, 6) for each in planned}) == 3


def test_a_knob_is_not_searched_twice() -> None:
    session = it2nb.TrainingSession(goal="loss", directory=None)
    session.attach(OptunaController(["lr", "learning_rate"]), blocking=True)
    session.run_rounds(train, 2)
    assert any("lr is to be searched twice" in each for each in session.warnings)


def test_rules_and_plans_take_aliases() -> None:
    class Planner:
        source = "plan"

        def plan(self, ctx: Any) -> dict[str, Any]:
            later = [{"step": 2, "set": {"learning_rate": 0.05}}]
            return {"settings": {"learning_rate": 0.2}, "schedule": later}

    session = it2nb.TrainingSession(goal="loss", directory=None)
    session.attach("at 3: learning_rate x 0.5, from step 1")
    session.attach(Planner())
    session.run_rounds(train, 2)
    found = session.journal.requests().query("round == 1")
    assert found["after"].tolist() == [0.2, 0.05, 0.025]
    assert set(found["name"]) == {"lr"} and set(found["status"]) == {"applied"}


@pytest.mark.parametrize("ruled", ["lr", "learning_rate", "lr[0]", "opt_g.lr", "opt_g.lr[0]"])
def test_a_rule_for_lr_holds_for_the_lr_of_every_optimizer(ruled: str) -> None:
    session = Session(directory=None)
    for name in ("opt_g.lr", "opt_g.lr[0]", "opt_d.lr", "opt_d.lr[0]", "opt_g.lrs", "slr"):
        session.register_knob(name, lambda: 0.1, lambda value: None)
    session.policy.forbid("agent", ruled)
    open_to_agents = {each.name for each in observe(session, "agent").knobs}
    closed = set(session.knobs) - open_to_agents
    assert not closed & {"opt_g.lrs", "slr"}
    assert {"opt_g.lr", "opt_g.lr[0]"} <= closed
    assert ({"opt_d.lr", "opt_d.lr[0]"} <= closed) is ("opt_g" not in ruled)


def test_a_knob_that_has_the_name_is_what_the_rule_means() -> None:
    session = Session(directory=None)
    for name in ("lr", "opt_d.lr", "cfg.note"):
        session.register_knob(name, lambda: 0.1, lambda value: None)
    session.policy.forbid("agent", "lr", "note")
    assert [each.name for each in observe(session, "agent").knobs] == ["opt_d.lr", "cfg.note"]


def test_what_a_name_means_changes_with_the_knobs(session: Session) -> None:
    assert session.knobs.own_name("learning_rate") == "lr"
    kept = session.knobs.kept()
    session.register_knob("learning_rate", lambda: 0.1, lambda value: None)
    assert session.knobs.own_name("learning_rate") == "learning_rate"
    session.knobs.unregister("learning_rate")
    assert session.knobs.own_name("learning_rate") == "lr"
    session.register_knob("learning_rate", lambda: 0.1, lambda value: None)
    session.knobs.put_back(kept)
    assert session.knobs.own_name("learning_rate") == "lr"


def test_an_alias_may_be_what_was_meant() -> None:
    session = Session(directory=None)
    session.register_knob("lr", lambda: 0.1, lambda value: None, aliases=["eta"])
    for said, meant in (("learning_rat", "learning_rate"), ("etaa", "eta")):
        for knobs in (session.knobs, KnobViews(session.state().knobs)):
            with pytest.raises(UnknownKnob, match=f"did you mean '{meant}'"):
                knobs[said]
    with pytest.raises(UnknownKnob, match=r"known: lr$"):
        session.knobs["x"]


def test_the_other_names_of_a_knob_that_is_gone_are_not_suggested(session: Session) -> None:
    session.knobs.unregister("lr[decay]")
    with pytest.raises(UnknownKnob) as caught:
        session.knobs["lr[1]"]
    assert str(caught.value) == "no knob is named 'lr[1]'; did you mean 'lr[0]' or 'lr'?"
