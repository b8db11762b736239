"""Actions: from signatures to validation, schema and clear refusals."""

from __future__ import annotations

import enum
from typing import Any, Literal, Optional

import pytest

from it2nb.core.actions import ActionRegistry, spec_from
from it2nb.core.errors import ActionError, Rejected, UnknownAction


class Speed(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


def typed(
    n: int,
    x: float = 0.5,
    on: bool = True,
    kind: Literal["a", "b"] = "a",
    speed: Speed = Speed.SLOW,
    tags: Optional[list[str]] = None,  # noqa: UP045 - both spellings have to work
    session: Any = None,
) -> dict[str, Any]:
    """Do a typed thing.

    More about it.
    """
    return {"n": n, "x": x, "on": on, "kind": kind, "speed": speed, "tags": tags}


def test_a_typed_signature_becomes_validation_schema_and_description() -> None:
    spec = spec_from(typed, "typed")
    assert spec.description == "Do a typed thing."
    assert spec.validate({"n": 3})["speed"] is Speed.SLOW
    filled = spec.validate({"n": 3, "x": 1, "speed": "fast", "tags": ["u"], "kind": "b"})
    assert filled["speed"] is Speed.FAST and filled["x"] == 1.0
    schema = spec.schema()
    assert schema.args["required"] == ["n"]
    assert schema.args["properties"]["n"]["type"] == "integer"
    assert "session" not in schema.args["properties"]
    assert schema.enabled


@pytest.mark.parametrize(
    "payload",
    [
        {}, {"n": "3"}, {"n": True}, {"n": 1.5}, {"n": None}, {"n": 3, "kind": "c"},
        {"n": 3, "speed": "warp"}, {"n": 3, "tags": [1]}, {"n": 3, "other": 1},
        {"n": 3, "x": float("nan")}, {"n": 3, "x": "1"}, {"n": 3, "on": "false"},
        {"n": 3, "on": 1}, {"n": 3, "tags": object()},
    ],
)  # fmt: skip
def test_what_does_not_fit_the_signature_is_rejected_with_a_short_reason(
    payload: dict[str, Any],
) -> None:
    with pytest.raises(Rejected) as caught:
        spec_from(typed, "typed").validate(payload)
    assert 0 < len(caught.value.reason) < 300


def test_the_papers_untyped_form_takes_what_it_named() -> None:
    def handler(payload: dict[str, Any], session: Any) -> Any:
        return payload

    spec = spec_from(handler, "switch", "Switch it", ["name"])
    assert spec.validate({"name": "a", "more": 1}) == {"name": "a", "more": 1}
    with pytest.raises(Rejected, match="needs name"):
        spec.validate({})
    assert spec.schema().args["required"] == ["name"]


def test_a_handler_with_the_payload_alone_is_called_with_it() -> None:
    spec = spec_from(lambda payload: payload["x"], "short")
    assert spec.handler({"x": 3}, None) == 3  # type: ignore[arg-type]


def test_signatures_that_cannot_work_are_refused_at_once() -> None:
    async def later() -> None: ...

    def many(*names: str) -> None: ...

    def odd(x: "Nowhere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

    class Foreign:
        pass

    def foreign(x: Foreign) -> None: ...

    for function in (later, many, odd, foreign):
        with pytest.raises(ActionError):
            spec_from(function, "bad")
    with pytest.raises(ActionError, match="name"):
        spec_from(typed, "")


def test_the_registry_knows_near_names_and_guards_taken_ones() -> None:
    registry = ActionRegistry()
    spec = registry.register(spec_from(typed, "typed"))
    with pytest.raises(ActionError, match="replace=True"):
        registry.register(spec)
    assert registry.register(spec, replace=True) is registry["typed"]
    with pytest.raises(UnknownAction, match="did you mean 'typed'"):
        registry["typd"]
    registry.unregister("typed")
    assert list(registry) == []


def test_an_availability_check_that_raises_disables_the_action_and_says_so() -> None:
    def check() -> str | None:
        raise RuntimeError("lost")

    schema = spec_from(typed, "typed", unavailable=check).schema()
    assert not schema.enabled
    assert schema.reason == "RuntimeError: lost"


def test_an_action_describes_itself_as_a_tool_of_a_language_model() -> None:
    tool = spec_from(typed, "typed").schema().as_tool()
    assert tool["type"] == "function"
    assert tool["function"]["name"] == "typed"
    assert tool["function"]["parameters"]["required"] == ["n"]
    assert spec_from(lambda: None, "bare").schema().as_tool()["function"]["parameters"] == {
        "type": "object", "properties": {}, "additionalProperties": False, "title": "bare_args",
    }  # fmt: skip
