"""Requests that hold themselves, or are nested deeper than anybody reads."""

from __future__ import annotations

from typing import Any

import pytest

from it2nb.core.depth import MAX_DEPTH, too_deep
from it2nb.core.wire import Action
from tests.core.test_policy import made


def nested(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = [found]
    return found


def cyclic() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["a"] = [found, found]
    return found


def test_depth_counts_containers_and_a_cycle_is_too_deep() -> None:
    assert not too_deep(nested(MAX_DEPTH)) and too_deep(nested(MAX_DEPTH + 1))
    assert not too_deep({"a": (1, [2, {"b": None}])}) and not too_deep(5)
    assert too_deep(cyclic()) and too_deep({"a": nested(100_000)})
    wide: Any = []
    for _ in range(40):
        wide = [wide, wide]  # two to the forty by paths, forty by identity
    assert not too_deep(wide)


@pytest.mark.parametrize("field", ["payload", "observed", "expect"])
@pytest.mark.parametrize("value", [cyclic(), {"name": "lr", "value": nested(500)}])
@pytest.mark.parametrize("plain", [True, False])
def test_such_a_request_is_rejected_and_has_both_its_rows(
    field: str, value: Any, plain: bool
) -> None:
    _, session = made()
    asked: dict[str, Any] = {"type": "set_knob", "payload": {}, "id": "deep", field: value}
    handle = session.submit(asked if plain else Action(**asked), source="python")
    result = handle.result(0)
    assert (result.status, result.id) == ("rejected", "deep")
    assert "nested too deep" in str(result.reason)
    session.finish()
    rows = [each.type for each in session.journal.since(0) if each.action_id == "deep"]
    assert rows == ["action_submitted", "action_result"]


@pytest.mark.parametrize(
    "by", [10**400, 10**5000, -(10**400), float("inf")],
    ids=["large", "larger", "below", "inf"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["add", "factor"])
def test_an_amount_beyond_all_numbers_is_rejected(key: str, by: Any) -> None:
    _, session = made()
    session.register_knob("n", lambda: 10**300, lambda value: None, min=0, max=10**301)
    with session.run():
        for name in ("lr", "n"):
            handle = session.submit({"type": "set_knob", "payload": {"name": name, key: by}})
            session.step({"loss": 1.0})
            assert handle.result(0).status == "rejected"
        # Two numbers that are fine, and what comes of them is none.
        handle = session.submit({"type": "set_knob", "payload": {"name": "n", "factor": 10**300}})
        session.step({"loss": 1.0})
        assert handle.result(0).status == "rejected"
