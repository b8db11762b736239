"""Strict JSON on the wire, and back."""

from __future__ import annotations

import enum
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from it2nb.core.strict import restore, strict
from it2nb.core.wire import Action, LastRequest

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(), each, max_size=3),
    max_leaves=10,
)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(plain)
def test_strict_json_loses_no_number_and_keeps_nan_and_the_infinities_apart(value: Any) -> None:
    text, nonfinite = strict(value)
    encoded = orjson.dumps(text)
    assert same(restore(orjson.loads(encoded), nonfinite), json.loads(json.dumps(value)))


def test_the_three_non_finite_numbers_stay_distinct_with_their_paths() -> None:
    text, nonfinite = strict({"a": math.nan, "b": [1.0, -math.inf], "c.d": math.inf})
    assert text == {"a": None, "b": [1.0, None], "c.d": None}
    assert nonfinite == {"a": "nan", "b.1": "-inf", r"c\.d": "inf"}
    assert strict(math.nan) == (None, {"": "nan"})


def test_foreign_values_become_numbers_text_or_a_short_repr() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    class Kind(enum.StrEnum):
        A = "a"

    loop: list[Any] = []
    loop.append(loop)
    assert strict(np.arange(3))[0] == [0, 1, 2]
    assert strict(np.float64("nan")) == (None, {"": "nan"})
    assert strict(np.float32(0.5))[0] == 0.5
    assert strict({1: {2}})[0] == {"1": [2]}
    assert strict(Path("a/b"))[0] == "a/b"
    assert strict(Bad())[0] == "<Bad>"
    assert strict(Kind.A)[0] == "a"
    assert len(strict(np.zeros(1000))[0]) <= 200
    assert strict("\ud800")[0] == "?"
    assert strict(10**30)[0] == str(10**30)
    orjson.dumps(strict(loop)[0])


def test_an_action_from_the_papers_wire_is_understood() -> None:
    action = Action.model_validate(
        {"type": "set_knob", "payload": {"name": "lr", "value": 2e-5}, "source": "human:web",
         "unknown": 1}
    )  # fmt: skip
    assert (action.v, action.source, len(action.id)) == (2, "human:web", 24)


def test_the_last_request_names_what_is_no_number_for_its_readers() -> None:
    last = LastRequest(id="1", status="rejected", requested=math.nan, applied=-math.inf)
    told = orjson.loads(last.model_dump_json())
    assert (told["requested"], told["applied"]) == ("nan", "-inf")
    assert math.isnan(last.model_dump()["requested"])
    plain = LastRequest(id="1", status="applied", requested=0.5, applied="nan is text")
    told = orjson.loads(plain.model_dump_json())
    assert (told["requested"], told["applied"]) == (0.5, "nan is text")
