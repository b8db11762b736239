"""What a model is told, in a bounded number of characters."""

from __future__ import annotations

import json
import math

import pytest

from it2nb.controllers.observation import Observation
from it2nb.controllers.planning import plan_text, reflect_text
from it2nb.controllers.prompts import SMALLEST, cut, dumps, observation_text, thinned
from it2nb.core.goals import Goal
from it2nb.core.rounds import Memory, RoundContext
from it2nb.core.wire import ActionResult, KnobView


def knobs(count: int) -> list[KnobView]:
    return [
        KnobView(
            name=f"knob{n}", dtype="float", value=n / 7, min=0, description="what it does " * 9
        )
        for n in range(count)
    ]


def seen(metrics: int = 1, knob_count: int = 1) -> Observation:
    names = [f"m{n}" for n in range(metrics - 1)] + ["val_loss"]
    return Observation(
        step=640,
        goal=Goal("val_loss"),
        context="a small network",
        metrics={name: math.nan if name == "m0" else 1 / 3 for name in names},
        history={name: [(10 * n, n / 3) for n in range(64)] for name in names},
        knobs=knobs(knob_count),
        results=[
            ActionResult(id=str(n), type="set_knob", ok=False, status="rejected", reason="no " * 99)
            for n in range(20)
        ],
    )


@pytest.mark.parametrize("size", [SMALLEST, 8_000, 16_000])
@pytest.mark.parametrize(("metrics", "knob_count"), [(1, 1), (50, 5), (5, 500)])
def test_an_observation_fits_and_tells_of_the_goal(size: int, metrics: int, knob_count: int):
    text = observation_text(seen(metrics, knob_count), [], size)
    assert len(text) <= size
    told = json.loads(text)
    assert told["run"]["step"] == 640
    assert told["metrics"]["val_loss"] == 0.333333
    assert told["knobs"][0]["name"] == "knob0"
    assert told["last_requests"][-1]["status"] == "rejected"


def test_with_room_for_it_the_curve_ends_with_the_newest_value():
    told = json.loads(observation_text(seen(), [], 16_000))
    assert told["history"]["val_loss"][-1] == [630, 21.0]
    assert told["context"] == "a small network"


def test_numbers_that_json_lacks_are_words():
    told = json.loads(observation_text(seen(3), [], 16_000))
    assert told["metrics"]["m0"] == "nan"
    assert dumps([math.inf, 1 / 3, True]) == '["inf",0.333333,true]'


def test_points_are_thinned_evenly_and_the_newest_stays():
    points = [(n, float(n)) for n in range(100)]
    kept = thinned(points, 10)
    assert len(kept) == 10
    assert kept[-1] == [99, 99.0]
    assert thinned(points, 0) == []
    assert thinned([], 5) == []
    assert cut("abcdef", 4) == "abc…"


def test_many_rounds_are_told_in_few_characters_the_newest_first_of_all():
    memory = Memory()
    for n in range(40):
        memory.add({
            "round": n, "value": 1 / (n + 1), "direction": "min", "settings": {"lr": 0.1},
            "plan": {"settings": {"lr": 0.1}, "reason": "x" * 900}, "reflection": "y" * 900,
            "actions": [{"type": "set_knob", "name": "lr", "requested": 1}] * 50,
        })  # fmt: skip
    ctx = RoundContext(40, 50, Goal("loss"), memory, "context " * 999, 0, knobs(200))
    told = json.loads(plan_text(ctx, 6_000))
    assert len(plan_text(ctx, 6_000)) <= 6_000
    assert told["next_round"] == 41
    assert told["knobs"]
    rounds = [each["round"] for each in json.loads(plan_text(ctx, 40_000))["rounds_so_far"]]
    assert rounds == list(range(31, 41))
    assert len(reflect_text(ctx, memory.records[-1], 4_000)) <= 4_000
    assert json.loads(reflect_text(ctx, memory.records[-1], 8_000))["round"]["round"] == 40
