"""Plans of rounds: requests like any other, in force before the first step."""

from __future__ import annotations

from typing import Any

import pytest

from it2nb.core.rounds import Plan, PlanError, RoundContext
from it2nb.session import TrainingSession
from tests.core.planned import Planner, Training, cyclic, deep, rounds


def test_a_plan_is_a_request_of_source_plan_and_in_force_before_the_first_step() -> None:
    session, training, _, _ = rounds({"settings": {"lr": 0.3}, "reason": "closer"}, count=2)
    [row] = session.journal.requests().to_dict("records")
    assert (row["source"], row["actor"], row["status"]) == ("plan", "planner", "applied")
    assert (row["round"], row["step"], row["reason"]) == (1, 0, "closer")
    assert training.used[1] == [0.3] * 4


def test_a_plan_passes_the_policy() -> None:
    session = TrainingSession("val_loss", directory=None)
    session.policy.forbid("plan", "lr")
    training = Training()
    session.attach(Planner({"lr": 0.3}))
    session.run_rounds(training, 2)
    assert training.used[1] == [0.1] * 4
    [row] = session.journal.requests().to_dict("records")
    assert (row["status"], row["reason"]) == ("rejected", "plan may not use lr")


def test_what_an_agent_may_not_do_its_plan_may_not_either() -> None:
    session = TrainingSession("val_loss", directory=None)
    session.policy.lock("lr", against=["agent"])
    planner = Planner({"settings": {"lr": 0.3}, "schedule": [{"step": 2, "type": "pause"}]})
    planner.source = "agent"
    training = Training()
    session.attach(planner)
    session.run_rounds(training, 2)
    assert training.used[1] == [0.1] * 4
    statuses = session.journal.requests()[["type", "status"]].to_numpy().tolist()
    assert statuses == [["set_knob", "rejected"], ["pause", "rejected"]]


def test_a_scheduled_request_comes_at_its_step() -> None:
    plan = {"settings": {"lr": 0.2}, "schedule": [{"step": 2, "set": {"lr": 0.4}}]}
    _, training, _, _ = rounds(plan, count=2)
    assert training.used[1] == [0.2, 0.2, 0.4, 0.4]


def test_after_going_back_what_was_scheduled_comes_again() -> None:
    session = TrainingSession("val_loss", directory=None)
    session.attach(Planner({"schedule": [{"step": 2, "type": "note", "payload": {"text": "x"}}]}))

    def train(session: Any, ctx: RoundContext) -> None:
        for step in (1, 2, 3, 1, 2, 3):
            session.step({"val_loss": 1.0}, step=step)

    session.run_rounds(train, 2)
    rows = session.journal.requests()
    assert rows["step"].tolist() == [2, 2]
    assert rows["status"].tolist() == ["applied"] * 2


def test_a_plan_for_an_unknown_knob_is_rejected_with_what_was_meant() -> None:
    session, _, _, _ = rounds({"lrr": 0.3}, count=2)
    [row] = session.journal.requests().to_dict("records")
    assert row["status"] == "rejected"
    assert "did you mean 'lr'?" in row["reason"]


@pytest.mark.parametrize(
    "plan", [ValueError("out of ideas"), "lr = 0.3", {"settings": [1]}, {"schedule": [{"set": 1}]}]
)
def test_a_plan_that_fails_is_a_row_and_the_round_goes_on_without(plan: Any) -> None:
    session, training, _, records = rounds(plan, count=2)
    assert [each["status"] for each in records] == ["finished", "finished"]
    assert training.used[1] == [0.1] * 4
    assert any("planner" in each for each in session.warnings)


@pytest.mark.parametrize(
    "plan",
    [
        Plan(settings=5),  # type: ignore[arg-type]
        Plan(schedule=5),  # type: ignore[arg-type]
        Plan(schedule=(5,)),  # type: ignore[arg-type]
        Plan(reason=cyclic()),  # type: ignore[arg-type]
        cyclic(),
        {"settings": {"lr": deep()}},
        {"settings": {"lr": 0.2}, "schedule": [{"step": 1, "set": {"lr": deep()}}]},
    ],
    ids=["settings", "schedule", "scheduled", "reason", "cyclic", "deep", "deep later"],
)
def test_a_plan_of_any_kind_never_ends_the_training(plan: Any) -> None:
    session, training, _, records = rounds(plan, count=2)
    assert [len(each) for each in training.used] == [4, 4]
    assert session.status == "finished" and len(records) == 2
    rows = [each.payload for each in session.journal.since(0)]
    said = " ".join(str(each.get("error") or each.get("text")) for each in rows)
    assert any(each in said for each in ("PlanError", "ControllerError", "TypeError", "Attribute"))


def test_a_planner_may_end_the_rounds() -> None:
    _, _, _, records = rounds({"lr": 0.2}, Plan(stop=True), count=5)
    assert len(records) == 2


@pytest.mark.parametrize("said", [False, "false", "False ", None])
def test_rounds_go_on_where_a_plan_says_so(said: Any) -> None:
    _, _, _, records = rounds({"settings": {"lr": 0.2}, "stop": said}, count=2)
    assert len(records) == 2 and Plan.parse({"stop": "TRUE"}) == Plan(stop=True)


def test_apply_plan_outside_of_rounds_asks_at_once() -> None:
    session = TrainingSession(directory=None)
    held = {"lr": 0.1}
    session.register_knob("lr", lambda: held["lr"], lambda value: held.update(lr=value))
    with session.run():
        session.pump()
        [handle] = session.apply_plan({"lr": 0.5})
        assert handle.result(0).status == "applied"
        assert held["lr"] == 0.5
        session.attach(Planner({"lr": 0.7}))
        plan = session.plan_round()
        assert plan is not None
        assert plan.settings == {"lr": 0.7}


class TestPlan:
    def test_a_mapping_without_known_keys_is_one_of_knobs(self) -> None:
        assert Plan.parse({"lr": 1}) == Plan(settings={"lr": 1})
        assert Plan.parse({"settings": {"lr": 1}, "text": "why"}) == Plan({"lr": 1}, "why")
        assert Plan.parse(None) is None

    @pytest.mark.parametrize(
        "plan",
        [
            3,
            "lr=1",
            {"settings": {1: 2}},
            {"schedule": "later"},
            {"schedule": [{"step": -1, "type": "stop"}]},
            {"schedule": [{"step": 1, "type": "x" * 300}]},
            {"schedule": [{"step": 1, "type": "stop"}] * 101},
            {"stop": "no"},
            {"stop": 1},
            {"stop": [False]},
            {"settings": {f"knob {number}": 1 for number in range(1001)}},
        ],
    )
    def test_nonsense_is_a_plan_error(self, plan: Any) -> None:
        with pytest.raises(PlanError):
            Plan.parse(plan)
