"""What a result says of numbers, of several knobs at once, and of what was asked."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from it2nb.core.readable import asked_text, told
from it2nb.core.session import Session
from it2nb.core.wire import ActionResult
from it2nb.panel.rows import row_of
from it2nb.pytorch.optimizers import add_optimizer_knobs

NOISY = 0.1 * 0.135  # 0.013500000000000002


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (NOISY, "0.0135"),
        (0.013499999999999998, "0.0135"),
        (0.1 + 0.2, "0.3"),
        (1e-05, "1e-05"),
        (1.0, "1.0"),
        (0.10000000149011612, "0.10000000149"),
        (float("nan"), "nan"),
        (1_234_567_890_123, "1234567890123"),
        ("abc", "'abc'"),
        (None, "None"),
        (True, "True"),
    ],
)
def test_a_value_in_a_sentence_has_the_digits_that_a_reader_has_a_use_for(
    value: Any, text: str
) -> None:
    assert told(value) == text


def test_a_result_is_short_in_print_and_exact_in_its_fields() -> None:
    result = ActionResult(
        id="a", type="set_knob", ok=True, status="applied", name="lr",
        requested=NOISY, before=0.1 + 0.2, after=NOISY, step=3,
    )  # fmt: skip
    assert str(result) == "set_knob lr: applied, asked 0.0135, was 0.3, is 0.0135, after step 3"
    assert result.after == NOISY


def test_a_batch_spells_out_each_knob_and_the_groups_behind_it() -> None:
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.01, 0.07)]
    optimizer = torch.optim.SGD(groups, lr=0.01, momentum=0.9)
    session = Session(directory=None)
    add_optimizer_knobs(session, optimizer)
    with session.run():
        handle = session.submit(
            {"type": "batch", "payload": {"set": {"lr": 0.02, "momentum[1]": 0.5}}}
        )
        session.pump()
        (row,) = (row_of(e) for e in session.journal.since(0) if e.type == "action_result")
    first, *lines = str(handle.result(0)).splitlines()
    assert first == "batch: applied, after step 0"
    assert lines == [
        "  lr 0.01 → 0.02, 2 groups, ratios kept: lr[0] 0.01 → 0.02, lr[1] 0.07 → 0.14",
        "  momentum[1] 0.9 → 0.5",
    ]
    assert row.text == "; ".join(line.strip() for line in lines)


def test_a_batch_says_what_became_of_a_value_that_did_not_fit() -> None:
    session = Session(directory=None)
    kept = {"a": 1.0}
    session.register_knob(
        "a", lambda: kept["a"], lambda v: kept.update(a=v), min=0.0, max=2.0, out_of_bounds="clamp"
    )
    with session.run():
        handle = session.submit({"type": "batch", "payload": {"set": {"a": 5.0}}})
        session.pump()
    assert str(handle.result(0)).splitlines()[1:] == ["  a 1.0 → 2.0, asked 5.0 (max is 2.0)"]


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        ({}, ""),
        ({"text": "try a larger lr", "level": "info"}, "try a larger lr, level info"),
        ({"step": 30, "exact": True}, "30, exact yes"),
        ({"keep_knobs": True, "path": "best"}, "keep_knobs yes, path best"),
        ({"x": None, "n": 0.1 + 0.2}, "0.3"),
        ({"deep": {"a": [1, 2]}}, '{"a":[1,2]}'),
    ],
)
def test_what_was_asked_is_told_in_few_words(payload: dict[str, Any], text: str) -> None:
    assert asked_text(payload) == text


def test_the_row_of_a_request_without_a_knob_says_what_was_asked() -> None:
    session = Session(directory=None)

    @session.action("configure", payload_keys=["api_key"])
    def configure(payload: dict[str, Any], session: Session) -> None:
        pass

    with session.run():
        for type, payload in (
            ("note", {"text": "try a larger lr" + " really" * 100}),
            ("load_checkpoint", {"path": "best"}),
            ("pause", {}),
            ("resume", {}),
            ("configure", {"api_key": "sk-very-secret-value"}),
        ):
            session.submit({"type": type, "payload": payload})
        session.step()
        session.checkpoint_loaded("best")
        session.step()
        events = [each for each in session.journal.since(0) if each.type == "action_result"]
    asked = {row.action: row.requested for row in map(row_of, events)}
    assert str(asked.pop("note")).startswith("try a larger lr really")
    assert asked == {"load_checkpoint": "best", "pause": None, "resume": None, "configure": "***"}
    assert all(len(str(each.payload.get("asked", ""))) <= 200 for each in events)
