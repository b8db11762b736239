"""Rules and schedules: when they are met, how often they ask, and what they ask for."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import it2nb
from it2nb.controllers.base import ControllerError
from it2nb.controllers.conditions import Compare, NoImprovement
from it2nb.controllers.observation import Observation
from it2nb.controllers.rules import Rule, at, every, rule, when
from it2nb.session import TrainingSession

from .contract import Bench


def train(
    made: Any, metrics: dict[str, list[float]], lr: float = 1.0, **options: Any
) -> tuple[TrainingSession, list[float]]:
    """Run one step for each value; returns the lr that each step used."""
    held = {"lr": lr}
    session = TrainingSession(directory=None, resources_every_s=3600)
    session.register_knob("lr", lambda: held["lr"], lambda v: held.update(lr=v), min=0.0)
    session.attach(made, **options)
    used = []
    with session.run():
        for step in range(max(map(len, metrics.values()))):
            used.append(held["lr"])
            values = {k: v[step] for k, v in metrics.items() if v[step] is not None}
            if session.step(values).stop:
                break
    return session, used


def steps(count: int) -> dict[str, list[float]]:
    return {"loss": [1.0] * count}


def fired(made: Rule, values: list[float], metric: str = "loss") -> list[int]:
    """Return the steps after which a rule asked."""
    session, _ = train(made.note("x"), {metric: values})
    frame = session.journal.requests()
    return frame["step"].tolist()


class TestSchedules:
    def test_at_a_step_it_holds_from_the_next(self) -> None:
        _, used = train(at(3).set("lr", 0.5), steps(6))
        assert used == [1.0, 1.0, 1.0, 0.5, 0.5, 0.5]

    def test_every_so_many_steps(self) -> None:
        _, used = train(every(2).multiply("lr", 0.5), steps(6))
        assert used == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]

    def test_the_source_is_rule_and_the_actor_its_text(self) -> None:
        session, _ = train(at(1).add("lr", 0.5), steps(2))
        [row] = session.journal.requests().to_dict("records")
        assert (row["source"], row["actor"]) == ("rule", "at 1: lr + 0.5")
        assert (row["before"], row["after"], row["reason"]) == (1.0, 1.5, "step 1")

    def test_a_step_that_is_left_out_counts_at_the_next_one(self) -> None:
        session = TrainingSession(directory=None)
        session.attach(at(5).note("x"))
        with session.run():
            for step in (3, 7, 11):
                session.step({"loss": 1.0}, step=step)
        assert session.journal.requests()["step"].tolist() == [7]

    def test_attached_later_it_begins_there(self) -> None:
        session = TrainingSession(directory=None)
        with session.run():
            for _ in range(5):
                session.step({"loss": 1.0})
            session.attach(at(3).note("past"))
            session.attach(every(2).note("x"))
            for _ in range(3):
                session.step({"loss": 1.0})
        assert session.journal.requests()["step"].tolist() == [6, 8]

    def test_after_going_back_it_comes_again(self) -> None:
        session = TrainingSession(directory=None)
        session.attach(at(3).note("x"))
        with session.run():
            for step in (1, 2, 3, 4, 2, 3, 4):
                session.step({"loss": 1.0}, step=step)
        assert session.journal.requests()["step"].tolist() == [3, 3]

    def test_a_factor_meets_what_is_there_when_it_is_served(self, bench: Bench) -> None:
        bench.session.attach(at(1).multiply("lr", 0.5))
        bench.session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.8}})
        bench.loop.advance()
        assert bench.held["lr"] == 0.4

    def test_a_result_out_of_bounds_is_clamped_as_anybodys(self, bench: Bench) -> None:
        bench.session.attach(every(1).multiply("lr", 100.0))
        bench.loop.advance(2)
        assert [each["status"] for each in bench.rows()] == ["clamped", "clamped"]
        assert bench.held["lr"] == 1.0

    def test_no_rule_may_do_what_policy_forbids(self, bench: Bench) -> None:
        bench.session.policy.lock("lr", against=["rule"], reason="mine")
        bench.session.attach(at(1).set("lr", 0.5))
        bench.loop.advance()
        assert bench.rows()[0]["status"] == "rejected"
        assert bench.held["lr"] == 0.1


class TestConditions:
    def test_no_improvement_within_steps(self) -> None:
        falling = [1.0, 0.9, 0.895, 0.894, 0.893, 0.7, 0.7, 0.7, 0.7]
        assert fired(when("no improvement of loss by 1 % in 3 steps"), falling) == [5, 9]
        assert fired(when("no improvement of loss by 0.05 in 2 steps"), falling) == [4, 8]

    def test_no_improvement_of_what_should_grow(self) -> None:
        assert fired(
            when("no improvement of accuracy in 2 steps"), [0.1, 0.2, 0.2, 0.2], "accuracy"
        ) == [4]
        rising = when("no increase of energy in 2 steps")
        assert fired(rising, [1.0, 2.0, 1.0, 1.0], "energy") == [4]

    def test_a_metric_that_is_measured_now_and_then_is_looked_at_when_it_comes(self) -> None:
        values: Any = [1.0 if step % 5 == 0 else None for step in range(20)]
        session, _ = train(
            when("no improvement of val_loss in 10 steps").note("x"),
            {"loss": [1.0] * 20, "val_loss": values},
        )
        assert session.journal.requests()["step"].tolist() == [11]

    def test_above_for_steps_on_end(self) -> None:
        values = [6.0, 6.0, 1.0, 6.0, 6.0, 6.0, 6.0, 6.0]
        assert fired(when("loss > 5", steps=3), values) == [6]
        assert fired(when("loss > 5 for 3 steps").cooldown(2), values) == [6, 8]

    def test_while_it_holds_it_asks_once_and_again_after_it_did_not(self) -> None:
        assert fired(when("loss > 5"), [6.0, 6.0, 1.0, 6.0]) == [1, 4]

    def test_crossing(self) -> None:
        values = [1.0, 3.0, 3.0, 1.0, 3.0]
        assert fired(when("loss crosses above 2"), values) == [2, 5]
        assert fired(when("loss falls below 2"), values) == [4]

    def test_nan(self) -> None:
        values = [1.0, math.nan, math.inf, 1.0]
        assert fired(when("nan"), values) == [2]
        assert fired(when("loss is nan").cooldown(1), values) == [2, 3]
        assert fired(when("other is nan"), values) == []
        assert fired(when("loss > 5"), [1.0, math.nan, 6.0]) == [3]

    def test_both(self) -> None:
        values = [6.0, 1.0, 6.0, 6.0]
        assert fired(when("every 2 and loss > 5"), values) == [4]

    def test_a_function(self) -> None:
        session, _ = train(when(lambda seen: seen.step == 2 and "it is time").note("x"), steps(3))
        [row] = session.journal.requests().to_dict("records")
        assert (row["step"], row["reason"]) == (2, "it is time")

    def test_limits(self) -> None:
        assert fired(every(1).at_most(2), [1.0] * 5) == [1, 2]
        assert fired(every(1).once(), [1.0] * 5) == [1]
        assert fired(every(1).cooldown(3), [1.0] * 8) == [1, 4, 7]
        assert fired(every(1).between(3, 4), [1.0] * 8) == [3, 4]

    def test_a_direction_is_never_guessed(self) -> None:
        with pytest.raises(ControllerError, match="is a smaller or a larger 'energy' better"):
            NoImprovement("energy")
        assert NoImprovement("energy", direction="max").direction == "max"

    @pytest.mark.parametrize(
        "make",
        [
            lambda: at(-1),
            lambda: every(0),
            lambda: when("loss > 1", steps=0),
            lambda: when("nan", steps=2),
            lambda: Compare("loss", "is", 1.0),
            lambda: Compare("loss", ">", math.nan),
            lambda: at(1).multiply("lr", math.inf),
            lambda: at(1).at_most(0),
            lambda: at(1).cooldown(0),
            lambda: at(1).begin(),
            lambda: when(3),  # type: ignore[arg-type]
            lambda: rule(3),  # type: ignore[call-overload]
        ],
    )
    def test_nonsense_is_refused_when_it_is_written_down(self, make: Any) -> None:
        with pytest.raises(ControllerError):
            make()


class TestChains:
    def test_several_requests_are_served_in_their_order(self) -> None:
        made = at(2).set("lr", 0.5).evaluate().note("done").stop()
        session, used = train(made, steps(5))
        rows = session.journal.requests()
        assert rows["type"].tolist() == ["set_knob", "evaluate", "note", "stop"]
        assert rows["status"].tolist() == ["applied", "failed", "applied", "applied"]
        assert used == [1.0, 1.0]

    def test_rules_are_values(self) -> None:
        base = at(2)
        one, other = base.set("lr", 0.5), base.stop()
        assert (len(base.actions), len(one.actions), len(other.actions)) == (0, 1, 1)
        assert one == at(2).set("lr", 0.5)

    def test_one_rule_serves_several_sessions(self) -> None:
        made = at(1).set("lr", 0.5).once()
        for _ in range(2):
            _, used = train(made, steps(2))
            assert used == [1.0, 0.5]

    def test_a_mode_goes_along(self) -> None:
        made = at(1).set("lr", 0.5, mode="hold")
        assert made.actions == (("set_knob", {"name": "lr", "value": 0.5, "mode": "hold"}),)
        assert rule(made.text) == made


class TestFunctions:
    def test_a_function_is_a_rule(self) -> None:
        @it2nb.rule
        def warm_up(seen: Observation) -> Any:
            if seen.step <= 2:
                return {"type": "set_knob", "payload": {"name": "lr", "value": seen.step / 10}}

        session, used = train(warm_up, steps(4))
        assert used == [1.0, 0.1, 0.2, 0.2]
        assert session.controllers[0].name == "warm_up"
        assert warm_up(Observation(step=5)) is None

    def test_it_is_called_every_so_many_steps(self) -> None:
        calls: list[int] = []
        train(rule(lambda seen: calls.append(seen.step), every=3), steps(9))
        assert calls == [3, 6, 9]

    def test_what_it_raises_is_a_row_and_never_ends_the_training(self) -> None:
        def wrong(seen: Observation) -> Any:
            raise RuntimeError("no")

        session, used = train(rule(wrong), steps(30))
        assert len(used) == 30
        [attached] = session.controllers
        assert (attached.calls, attached.enabled) == (10, False)

    def test_it_sees_metrics_history_and_knobs(self) -> None:
        kept: list[Observation] = []
        train(rule(kept.append), {"loss": [3.0, 2.0, 1.0]})
        assert kept[-1].metrics == {"loss": 1.0}
        assert kept[-1].history["loss"] == [(1, 3.0), (2, 2.0), (3, 1.0)]
        assert kept[-1].values["lr"] == 1.0


def test_texts_are_attached_as_they_are() -> None:
    _, used = train("at 2: lr x 0.5", steps(4))
    assert used == [1.0, 1.0, 0.5, 0.5]


def test_rules_begin_anew_with_each_round() -> None:
    session = TrainingSession("loss", directory=None)
    session.attach(at(2).note("x").once())

    def training(session: Any, ctx: Any) -> None:
        for _ in range(3):
            session.step({"loss": 1.0})

    session.run_rounds(training, 3)
    rows = session.journal.requests()
    assert rows["round"].tolist() == [0, 1, 2]
    assert rows["step"].tolist() == [2, 2, 2]


def test_a_round_starts_without_the_metrics_of_the_one_before() -> None:
    session = TrainingSession("loss", directory=None)
    session.attach(when("val_loss > 5").note("x"))

    def training(session: Any, ctx: Any) -> None:
        session.step({"loss": 1.0})
        if ctx.round == 0:
            session.record({"val_loss": 6.0})
        session.step({"loss": 1.0})

    session.run_rounds(training, 2)
    assert session.journal.requests()["round"].tolist() == [0]


def test_a_rule_costs_the_same_however_long_it_was_watched() -> None:
    """By what it keeps: nothing of it grows."""
    draw = random.Random(0)
    made = when("no improvement of loss by 1 % in 30 steps").note("x").begin()
    sizes = set()
    for step in range(1, 2000):
        made.ask(
            Observation(step=step, metrics={"loss": draw.random()}, metric_steps={"loss": step})
        )
        sizes.add(len(repr(made._watch)) // 100)
    assert len(sizes) == 1


@pytest.mark.parametrize("text", ["los > 0: stop", "los > 0 and loss > 5: pause"])
def test_a_rule_on_a_metric_that_never_comes_is_told_of_once(text: str) -> None:
    session = it2nb.TrainingSession(directory=None)
    session.attach(text)
    for _ in range(120):
        session.step({"loss": 1.0})
    session.end()
    (said,) = session.warnings
    assert "no metric 'los'" in said
    assert f"the rule '{text}' waits for it; did you mean 'loss'?" in said


def test_a_plateau_is_told_with_the_step_of_the_best() -> None:
    session = it2nb.TrainingSession(directory=None)
    session.attach("no improvement of loss in 3 steps: note 'flat', cooldown 1")
    for loss in (3.0, 1.0, 2.0, 2.5, 2.0, 2.25, 2.5, 2.75):
        session.step({"loss": loss})
    reasons = session.journal.requests()["reason"].tolist()
    assert reasons == [
        "loss 2 at step 5: no better than the best, 1 at step 2, for 3 steps",
        "loss 2.75 at step 8: no better than the best, 1 at step 2, for 3 steps",
    ]
    session.end()


def test_every_rule_on_an_unknown_metric_is_told_of_soon() -> None:
    session = it2nb.TrainingSession(directory=None)
    session.register_knob("lr", lambda: 0.1, lambda value: None)
    rules = ["lozz > 3: stop", "lozz > 4: pause", "zzz > 1: stop", "at 900: lrr x 0.5"]
    for each in [*rules, "loss > 9: stop", "val_loss > 9: stop", "at 900: learning_rate x 0.5"]:
        session.attach(each)
    (only,) = session.expected.doubts()  # no metric is known yet
    assert only == ("the rule 'at 900: lrr x 0.5'", "no knob 'lrr' so far, did you mean 'lr'?")
    for _ in range(10):
        session.step()
    for _ in range(50):
        session.step({"loss": 1.0})
    told = [[each for each in session.warnings if f"the rule {rule!r} w" in each] for rule in rules]
    assert [len(each) for each in told] == [1, 1, 1, 1] and len(session.warnings) == 4
    assert told[0][0].endswith("waits for it; did you mean 'loss'?")
    assert told[3] == [
        "no knob is named 'lrr': the rule 'at 900: lrr x 0.5' would set it; did you mean 'lr'?"
    ]
    for _ in range(100):
        session.step({"loss": 1.0})
    assert len(session.warnings) == 4
    # Whoever asks now is answered all the same.
    assert ("the rule 'zzz > 1: stop'", "no metric 'zzz' so far, known: loss") in (
        session.expected.doubts()
    )
    session.step({"loss": 1.0, "zzz": 0.0})
    assert "the rule 'zzz > 1: stop'" not in dict(session.expected.doubts())
    session.end()


def test_a_rule_for_an_unknown_knob_is_refused_by_a_run_that_trains() -> None:
    session = it2nb.TrainingSession(directory=None)
    session.register_knob("lr", lambda: 0.1, lambda value: None)
    session.attach("at 900: clip x 0.5")  # it may come
    session.step({"loss": 1.0})
    with pytest.raises(ControllerError) as caught:
        session.attach("at 900: lrr x 0.5")
    assert str(caught.value) == (
        "no knob 'lrr' so far, did you mean 'lr'?: the rule 'at 900: lrr x 0.5' is not watched"
    )
    assert len(session.controllers) == 1
    session.attach("at 900: learning_rate x 0.5")
    session.end()


def test_a_knob_in_the_place_of_a_metric_is_told_as_such() -> None:
    session = it2nb.TrainingSession(directory=None)
    session.register_knob("lr", lambda: 0.1, lambda value: None)
    session.attach("loss < 5 and lr > 0.01: stop")
    with session.run():
        for _ in range(60):
            session.step({"loss": 1.0})
    (said,) = session.warnings
    assert "no metric 'lr' was recorded" in said
    assert said.endswith(
        "it is a knob, and watched where it is recorded: session.step({'lr': ...})"
    )
