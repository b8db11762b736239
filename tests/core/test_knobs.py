"""Knobs: coercion of foreign values, declaration, and the read-back."""

from __future__ import annotations

import enum
import math
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from it2nb.core.errors import KnobError, KnobRangeError, Rejected, UnknownKnob
from it2nb.core.knob_registry import KnobRegistry
from it2nb.core.knobs import Coerced, Knob
from it2nb.core.session import Session


def held(value: Any, **options: Any) -> tuple[dict[str, Any], Knob]:
    cell = {"x": value}
    return cell, Knob("x", lambda: cell["x"], lambda v: cell.__setitem__("x", v), **options)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), float("inf"), -math.inf, "0.01", "abc", "", True, False, None, [0.1],
        {"a": 1}, (0.9,), b"1", 10**400, np.bool_(True), np.float64("nan"), 1j, object(),
        Decimal("nan"),
    ],
)  # fmt: skip
def test_c16_what_is_no_finite_number_never_fits_a_float_knob(value: Any) -> None:
    _, knob = held(0.5, min=0.0, max=1.0)
    with pytest.raises(Rejected) as caught:
        knob.coerce(value)
    assert len(caught.value.reason) < 200


@pytest.mark.parametrize("value", [0.25, np.float32(0.25), np.float64(0.25), Fraction(1, 4)])
def test_every_real_number_type_becomes_a_python_float(value: Any) -> None:
    _, knob = held(0.5)
    coerced = knob.coerce(value).value
    assert coerced == 0.25 and type(coerced) is float


@pytest.mark.parametrize("value", [0.5, -1.5, "3", True, None, math.nan, [3]])
def test_c16_an_int_knob_takes_whole_numbers_only(value: Any) -> None:
    _, knob = held(1, dtype=int)
    with pytest.raises(Rejected):
        knob.coerce(value)


def test_an_int_knob_takes_an_integral_float_and_large_ints_exactly() -> None:
    _, knob = held(1, dtype="int")
    assert knob.coerce(3.0).value == 3
    assert type(knob.coerce(3.0).value) is int
    assert knob.coerce(2**60 + 1).value == 2**60 + 1


@pytest.mark.parametrize("value", ["false", "true", 0, 1, 0.0, None, [], math.nan])
def test_a_bool_knob_takes_bools_only(value: Any) -> None:
    _, knob = held(True, dtype=bool)
    with pytest.raises(Rejected):
        knob.coerce(value)


def test_a_bool_is_no_choice_of_a_number() -> None:
    _, knob = held(1, choices=[0, 1])
    assert knob.dtype == "choice"
    with pytest.raises(Rejected):
        knob.coerce(True)
    assert knob.coerce(1.0).value == 1
    with pytest.raises(Rejected, match="is none of 0, 1"):
        knob.coerce(2)


def test_a_text_knob_takes_text_only_and_not_too_much() -> None:
    _, knob = held("a", dtype=str)
    assert knob.coerce("b").value == "b"
    with pytest.raises(Rejected):
        knob.coerce(3)
    with pytest.raises(Rejected, match="characters"):
        knob.coerce("x" * 5000)


def test_out_of_bounds_is_clamped_or_rejected_as_the_knob_says() -> None:
    _, knob = held(0.5, min=0.1, max=1.0)
    assert knob.coerce(5) == Coerced(1.0, True, "max is 1.0")
    assert knob.coerce(-5) == Coerced(0.1, True, "min is 0.1")
    assert knob.coerce(1.0) == Coerced(1.0)
    _, strict = held(0.5, min=0.1, max=1.0, out_of_bounds="reject", unit="px")
    with pytest.raises(Rejected, match=r"5.0 is outside \[0.1, 1\] px"):
        strict.coerce(5)


@given(st.floats(1e-7, 1e-1))
def test_c19_a_float_in_range_is_kept_bit_for_bit(value: float) -> None:
    _, knob = held(1e-3, min=1e-7, max=1e-1, step=1e-4, scale="log")
    assert knob.coerce(value).value.hex() == value.hex()


@given(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(),
        st.lists(st.integers()), st.dictionaries(st.text(), st.integers()),
    )
)  # fmt: skip
def test_whatever_is_asked_the_coerced_value_keeps_the_contract(value: Any) -> None:
    _, knob = held(0.5, min=0.0, max=1.0)
    try:
        coerced = knob.coerce(value).value
    except Rejected:
        return
    assert type(coerced) is float and 0.0 <= coerced <= 1.0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"min": 2, "max": 1}, KnobRangeError),
        ({"min": math.nan}, KnobRangeError),
        ({"max": math.inf}, KnobRangeError),
        ({"min": "0"}, KnobRangeError),
        ({"step": 0}, KnobRangeError),
        ({"min": -1, "scale": "log"}, KnobRangeError),
        ({"scale": "cubic"}, KnobError),
        ({"dtype": "complex"}, KnobError),
        ({"dtype": "choice"}, KnobError),
        ({"choices": []}, KnobError),
        ({"dtype": bool, "min": 0}, KnobRangeError),
        ({"out_of_bounds": "ignore"}, KnobError),
    ],
)
def test_a_contradictory_declaration_raises_at_once(
    options: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        held(1, **options)


def test_a_getter_that_is_no_callable_is_refused_with_the_remedy() -> None:
    with pytest.raises(KnobError, match="for a variable"):
        Knob("x", 3, lambda v: None)  # type: ignore[arg-type]


def test_a_setter_that_does_nothing_is_failed() -> None:
    knob = Knob("x", lambda: 1.0, lambda v: None)
    outcome = knob.apply(knob.coerce(2.0))
    assert outcome.status == "failed"
    assert outcome.reason == "the setter ran, but x still reads 1.0"


def test_a_setter_that_rounds_is_clamped_and_says_what_it_reads() -> None:
    cell = {"x": 1.0}
    knob = Knob("x", lambda: cell["x"], lambda v: cell.__setitem__("x", round(v)))
    outcome = knob.apply(knob.coerce(2.4))
    assert (outcome.status, outcome.after) == ("clamped", 2)


def test_a_float32_cell_counts_as_applied() -> None:
    cell = {"x": np.float32(1)}
    knob = Knob("x", lambda: cell["x"], lambda v: cell.__setitem__("x", np.float32(v)))
    assert knob.apply(knob.coerce(0.01)).status == "applied"


def test_what_a_raising_setter_changed_is_put_back() -> None:
    cell = {"x": 1.0}

    def put(value: float) -> None:
        cell["x"] = value
        if value == 2.0:
            raise ValueError("too late")

    outcome = Knob("x", lambda: cell["x"], put).apply(Coerced(2.0))
    assert outcome.status == "failed"
    assert cell["x"] == 1.0
    assert outcome.reason is not None and "x is 1.0 as before" in outcome.reason


def test_what_cannot_be_put_back_is_said() -> None:
    cell = {"x": 1.0}

    def put(value: float) -> None:
        cell["x"] = value + 1
        raise ValueError("always")

    outcome = Knob("x", lambda: cell["x"], put).apply(Coerced(2.0))
    assert outcome.status == "failed"
    assert outcome.reason is not None and "putting it back failed" in outcome.reason
    assert outcome.after == cell["x"]


def test_a_setter_may_reject_before_it_touches_anything() -> None:
    def put(value: float) -> None:
        raise Rejected("not while warming up")

    outcome = Knob("x", lambda: 1.0, put).apply(Coerced(2.0))
    assert (outcome.status, outcome.reason) == ("rejected", "not while warming up")


def test_a_view_of_a_knob_whose_getter_raises_says_so() -> None:
    def read() -> float:
        raise RuntimeError("gone")

    view = Knob("x", read, lambda v: None).view()
    assert not view.enabled
    assert view.reason == "could not be read: RuntimeError: gone"


def test_an_unknown_knob_names_the_near_ones() -> None:
    registry = KnobRegistry()
    registry.register(held(0.5)[1])
    registry.register(Knob("weight_decay", lambda: 0.0, lambda v: None))
    with pytest.raises(UnknownKnob, match="did you mean 'weight_decay'"):
        registry["weight_decy"]
    assert "nothing" not in registry
    assert 3 not in registry  # type: ignore[comparison-overlap]


def test_learning_rate_means_lr() -> None:
    registry = KnobRegistry()
    knob = registry.register(Knob("lr", lambda: 0.1, lambda v: None, aliases=["rate"]))
    assert registry["learning_rate"] is knob
    assert registry["rate"] is knob
    assert "learning_rate" in registry


def test_a_taken_name_is_refused_unless_replaced() -> None:
    registry = KnobRegistry()
    registry.register(held(0.5)[1])
    with pytest.raises(KnobError, match="replace=True"):
        registry.register(held(0.5)[1])
    other = held(0.7)[1]
    assert registry.register(other, replace=True) is registry["x"] is other
    registry.unregister("x")
    assert len(registry) == 0


@pytest.mark.parametrize(
    "odd", [{"name": 5}, {"name": None}, {"name": "\ud800"}, {"unit": 5}, {"description": None}]
)
def test_a_knob_that_could_not_be_told_of_is_refused_at_once(odd: dict[str, Any]) -> None:
    known: dict[str, Any] = {"name": "x", "get": lambda: 0.5, "set": lambda v: None}
    with pytest.raises(KnobError):
        Knob(**known | odd)


def test_bounds_of_any_number_type_can_be_shown() -> None:
    bounds: dict[str, Any] = {"min": np.float32(0.25), "max": Fraction(3, 2)}
    knob = Knob("x", lambda: 0.5, lambda v: None, **bounds)
    view = knob.view()
    assert (view.min, view.max) == (0.25, 1.5)
    assert type(view.min) is type(view.max) is float


# --- a start value that does not fit -----------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "options", "said"),
    [
        (5.0, {"max": 1.0}, "lr is 5.0 now, outside of its bounds: max is 1.0; widen them"),
        (-1, {"dtype": int, "min": 0}, "min is 0"),
        ("c", {"choices": ["a", "b"]}, "'c' is none of 'a', 'b'"),
    ],
)
def test_a_start_value_that_could_not_be_asked_for_is_refused(
    value: Any, options: dict[str, Any], said: str
) -> None:
    session = Session(directory=None)
    with pytest.raises(KnobRangeError) as raised:
        session.register_knob("lr", lambda: value, lambda v: None, **options)
    assert said in str(raised.value)
    assert "lr" not in session.knobs


def test_a_value_that_is_not_there_yet_or_not_a_number_is_no_reason() -> None:
    session = Session(directory=None)
    values: dict[str, Any] = {"none": None, "nan": math.nan}
    for name in ("none", "nan", "later"):
        session.register_knob(name, partial(values.__getitem__, name), lambda v: None, min=0, max=1)
    assert set(session.knobs) >= {"none", "nan", "later"}


def test_while_a_run_trains_a_value_out_of_bounds_is_told_and_ends_nothing() -> None:
    session = Session(directory=None)
    with session.run():
        session.step()
        session.register_knob("lr", lambda: 5.0, lambda v: None, max=1.0)
        session.step()
    (said,) = session.warnings
    assert said.startswith("lr is 5.0 now, outside of its bounds: max is 1.0")
    assert session.status == "finished"


class Mode(str, enum.Enum):  # noqa: UP042 - the text of a StrEnum is its value anyway
    FAST = "fast"


@pytest.mark.parametrize(
    ("value", "options", "right"),
    [
        (np.array(0.25), {}, 0.25),
        (torch.tensor(0.25), {}, 0.25),
        (torch.tensor(0.25, dtype=torch.bfloat16, requires_grad=True), {}, 0.25),
        (np.array(3), {"dtype": int}, 3),
        (torch.tensor(3), {"dtype": int}, 3),
        (np.True_, {"dtype": bool}, True),
        (torch.tensor(True), {"dtype": bool}, True),
        (np.True_, {"choices": [1, True]}, True),
        (np.float64(0.5), {"choices": [0.5, 2]}, 0.5),
        (np.str_("fast"), {"choices": ["fast", "slow"]}, "fast"),
        (Mode.FAST, {"choices": ["fast", "slow"]}, "fast"),
        (Mode.FAST, {"dtype": str}, "fast"),
    ],
)
def test_C16_what_holds_one_value_is_that_value(
    value: Any, options: dict[str, Any], right: Any
) -> None:
    _, knob = held(right, **options)
    outcome = knob.apply(knob.coerce(value))
    assert outcome.status == "applied"
    assert type(knob.value) is type(right) and knob.value == right


@pytest.mark.parametrize(
    "value",
    [
        np.array(True), torch.tensor(True), torch.tensor(math.nan), np.array([0.25]),
        torch.tensor([0.25]), torch.tensor(0.25, device="meta"), np.timedelta64(1),
        np.array("x"), np.datetime64("2020"), torch.tensor(1j),
    ],
)  # fmt: skip
def test_C16_what_holds_something_else_is_still_none(value: Any) -> None:
    _, knob = held(0.5)
    with pytest.raises(Rejected):
        knob.coerce(value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0,001", "'0,001' is not a number; decimals have a point: 0.001"),
        ("0.01", "'0.01' is not a number but a text; ask for 0.01 without quotes"),
        ("1e-", "'1e-' is not a number"),
        ("nan", "'nan' is not a number"),
        ("1e999", "'1e999' is not a number"),
    ],
)
def test_C19_a_text_that_looks_like_a_number_is_answered_with_the_number(
    text: str, said: str
) -> None:
    _, knob = held(0.5)
    with pytest.raises(Rejected) as caught:
        knob.coerce(text)
    assert caught.value.reason == said


def test_a_name_that_several_optimizers_have_is_answered_with_theirs() -> None:
    knobs = KnobRegistry()
    for name in ("opt_d.amsgrad", "opt_d.lr", "opt_g.amsgrad", "opt_g.lr"):
        knobs.register(Knob(name, lambda: 1.0, lambda value: None))
    with pytest.raises(UnknownKnob, match=r"did you mean 'opt_d\.lr' or 'opt_g\.lr'\?"):
        knobs["lr"]


def test_a_name_in_other_letters_is_answered_with_the_right_one() -> None:
    knobs = KnobRegistry()
    for name in ("lr", *(f"amsgrad[{i}]" for i in range(20))):
        knobs.register(Knob(name, lambda: 1.0, lambda value: None))
    with pytest.raises(UnknownKnob, match="no knob is named 'LR'; did you mean 'lr'"):
        knobs["LR"]
