from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from it2nb.core.wire import Event, State
from it2nb.panel.rows import mark_of, number, rounds_text, row_of, short_label


def event(kind: str, **payload: Any) -> Event:
    return Event(seq=7, type=kind, payload=payload, ts=1.0, t=0.5, step=41)


def result(**payload: Any) -> Event:
    return event("action_result", **{"id": "a", "type": "set_knob", "status": "applied"} | payload)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_as_the_very_same(value: float) -> None:
    assert float(number(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3e-5, "3e-5"),
        (0.001, "0.001"),
        (2.5e-6, "2.5e-6"),
        (1.0, "1"),
        (1e7, "1e7"),
        (1e22, "1e22"),
    ],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_a_request_is_a_row_with_all_that_was_asked_and_done() -> None:
    row = row_of(
        result(name="lr", requested=2, before=0.1, after=1.0, status="clamped", reason="max 1")
    )
    assert (row.name, row.requested, row.before, row.after) == ("lr", 2, 0.1, 1.0)
    assert (row.status, row.reason, row.action, row.action_id) == (
        "clamped",
        "max 1",
        "set_knob",
        "a",
    )


def test_the_proof_of_an_action_is_told_in_a_line() -> None:
    told = row_of(result(type="evaluate", data={"val_loss": 0.4123456, "acc": 1, "ok": True})).text
    assert told == "val_loss 0.41235, acc 1, ok yes"


WENT_BACK = {
    "step": 2950, "branch_id": 1, "parent": 0, "from_step": 3100, "from_branch": 0,
    "asked_step": 3000,
    "knobs": {"smooth": {"before": 0.5, "after": 0.0}, "lr": {"before": 0.1, "after": 0.1}},
    "keep_knobs": False,
    "notes": ["the data goes on where the loop is", "no snapshot of step 3000 is kept"],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["action_result", "checkpoint_loaded"])
def test_going_back_tells_its_caveats_and_the_knobs_that_changed(kind: str) -> None:
    told = result(type="goto", data=WENT_BACK) if kind == "action_result" else None
    text = row_of(told or event(kind, **WENT_BACK)).text
    assert text.endswith(
        "; smooth 0.5 -> 0, the mode of lr; the data goes on where the loop is; "
        "no snapshot of step 3000 is kept"
    )
    assert "{" not in text and "notes" not in text


def test_of_many_changed_knobs_some_are_named_and_the_rest_is_counted() -> None:
    knobs = {f"k{each}": {"before": 1, "after": 2} for each in range(9)}
    text = row_of(result(type="undo", data={"knobs": knobs, "notes": []})).text
    assert text.endswith("k5 1 -> 2, 3 more knobs changed")


def test_a_drift_tells_what_was_there_once() -> None:
    told = {"name": "lr", "group": 0, "before": 0.1, "expected": 0.1, "found": 1.0}
    row = row_of(event("knob_drifted", **told, by="the loop"))
    assert (row.name, row.text) == ("lr", "group 0, before 0.1, found 1, by the loop")
    other = row_of(event("knob_drifted", **{**told, "expected": 0.2}))
    assert other.text == "group 0, before 0.1, expected 0.2, found 1"


def test_rows_are_bounded_and_strict_whatever_is_in_an_event() -> None:
    deep: Any = "x"
    for _ in range(50):
        deep = {"k" * 500: [deep] * 3}
    row = row_of(
        result(name="lr", requested=deep, before=math.nan, after=[math.inf] * 500, data=deep)
    )
    text = row.model_dump_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert len(text) < 4_000
    assert row.before == "nan"


@pytest.mark.parametrize(
    ("told", "label"),
    [
        (result(name="lr", after=3e-4), "lr 3e-4"),
        (result(name="act", after="relu"), "act relu"),
        (result(type="set_mode", name="lr", requested="hold"), "lr hold"),
        (result(type="batch", data=[{"name": "lr"}, {"name": "wd"}]), "lr, wd"),
        (event("checkpoint_loaded", path="x"), "restored"),
    ],
)
def test_what_changed_the_run_marks_the_curves(told: Event, label: str) -> None:
    mark = mark_of(told)
    assert mark is not None and mark.label == label and mark.step == 41 and mark.seq == 7


@pytest.mark.parametrize(
    "told",
    [
        result(name="lr", status="rejected"),
        result(type="pause"),
        event("note", text="x"),
        event("round_started"),
    ],
)
def test_what_changed_nothing_leaves_no_mark(told: Event) -> None:
    assert mark_of(told) is None


def test_rounds_are_counted_as_people_do() -> None:
    told = Event(
        seq=7, type="round_started", payload={"round": 1, "max_rounds": 4, "seed": 3}, ts=1.0,
        round=1,
    )  # fmt: skip
    mark = mark_of(told)
    assert mark is not None and (mark.label, mark.kind) == ("round 2", "round")
    assert row_of(told).text == "round 2 of 4, seed 3"


@pytest.mark.parametrize(
    ("round", "most", "said"),
    [
        (0, None, ""),
        (0, 1, ""),
        (0, 4, "round 1 of 4"),
        (3, 4, "round 4 of 4"),
        (2, None, "round 3"),
    ],
)
def test_the_round_is_said_where_there_are_several(round: int, most: int | None, said: str) -> None:
    state = State(run_id="r", status="running", round=round, max_rounds=most)
    assert rounds_text(state) == said


@pytest.mark.parametrize(
    ("label", "shown"),
    [
        ("lr 0.001", "lr 0.001"),
        ("dropout.p 0.12345", "dropo... 0.12345"),
        ("label_smoothing -1.2346e-5", "la... -1.2346e-5"),
        ("activation gelu_with_more", "activation ge..."),
    ],
)
def test_a_label_keeps_its_number(label: str, shown: str) -> None:
    assert short_label(label, 16) == shown
