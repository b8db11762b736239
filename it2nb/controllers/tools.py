"""What a model may ask for: tools made from a session's actions and knobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from it2nb.controllers.prompts import cut
from it2nb.controllers.provider import Tool
from it2nb.core.knob_names import KnobViews
from it2nb.core.wire import ActionSchema, KnobView

#: Characters of a tool's description; more is cut.
MAX_DESCRIPTION = 1_000
#: Knobs whose bounds are told in a tool. All of them can be set.
MAX_KNOBS = 64
#: Not offered one by one: knobs are set with `set_knob`, in a batch of calls.
LEFT_OUT = frozenset({"batch"})
_TYPES = {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_-]")


class Toolbox:
    """The tools of one question, and what each name stands for.

    Parameters
    ----------
    actions : sequence of ActionSchema
        What the agent may ask for now.
    knobs : sequence of KnobView
        What it may set.
    """

    def __init__(self, actions: Sequence[ActionSchema], knobs: Sequence[KnobView]) -> None:
        self.knobs = KnobViews(settable(knobs))
        self.tools: list[Tool] = []
        #: Tool's name: action's name. They differ where a name has characters that tools lack.
        self.actions: dict[str, str] = {}
        for action in actions:
            if action.enabled and action.name not in LEFT_OUT:
                tool = self._tool(action)
                if tool is not None and tool.name not in self.actions:
                    self.actions[tool.name] = action.name
                    self.tools.append(tool)

    def action(self, tool: str) -> str:
        """The action that a tool's name stands for; the name itself when there is none."""
        return self.actions.get(tool, tool)

    def _tool(self, action: ActionSchema) -> Tool | None:
        name = _NOT_IN_A_NAME.sub("_", action.name)[:64]
        if action.name == "set_knob":
            if not self.knobs:
                return None
            said = f"Set one knob of the run. Knobs: {_listed(self.knobs.values())}"
            return Tool(name, cut(said, MAX_DESCRIPTION), knob_schema(self.knobs.values()))
        told = action.as_tool()["function"]
        schema = with_reason(told["parameters"])
        if action.name == "set_mode":
            driven = [knob for knob in self.knobs.values() if knob.modes]
            if not driven:
                return None
            schema["properties"]["name"] = {"enum": [knob.name for knob in driven]}
        return Tool(name, str(told["description"])[:MAX_DESCRIPTION] or action.name, schema)


def settable(knobs: Iterable[KnobView]) -> list[KnobView]:
    """The knobs that can be set now."""
    return [knob for knob in knobs if knob.enabled and not knob.locked and not knob.hidden]


def knob_schema(knobs: Iterable[KnobView]) -> dict[str, Any]:
    """The arguments of `set_knob`, with the types and bounds of these knobs."""
    knobs = list(knobs)
    kinds: list[dict[str, Any]] = []
    for knob in knobs[:MAX_KNOBS]:
        kind = value_schema(knob)
        if kind not in kinds:
            kinds.append(kind)
    return with_reason(
        {
            "type": "object",
            "properties": {
                "name": {"type": "string", "enum": [knob.name for knob in knobs]},
                "value": kinds[0] if len(kinds) == 1 else {"anyOf": kinds},
            },
            "required": ["name", "value"],
            "additionalProperties": False,
        }
    )


def value_schema(knob: KnobView) -> dict[str, Any]:
    """A knob's type and bounds as a JSON schema."""
    if knob.dtype == "choice":
        return {"enum": list(knob.choices or [])}
    kind: dict[str, Any] = {
        "type": {"float": "number", "int": "integer", "bool": "boolean", "str": "string"}[
            knob.dtype
        ]
    }
    for word, bound in (("minimum", knob.min), ("maximum", knob.max)):
        if bound is not None:
            kind[word] = bound
    return kind


def with_reason(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Add a text ``reason``, which becomes the request's; an argument of that name stays."""
    properties = dict(schema.get("properties", {}))
    properties.setdefault("reason", {"type": "string", "description": "why, in one sentence"})
    return {**schema, "type": "object", "properties": properties}


def bounds_of(knob: KnobView) -> str:
    """A knob's type and bounds in words: ``lr (float, 0 to 1, is 0.001)``."""
    if knob.dtype == "choice":
        kind = "one of " + ", ".join(map(repr, (knob.choices or [])[:12]))
    else:
        kind = knob.dtype
        low = "-inf" if knob.min is None else f"{knob.min:g}"
        high = "inf" if knob.max is None else f"{knob.max:g}"
        if knob.min is not None or knob.max is not None:
            kind += f", {low} to {high}"
    unit = f" {knob.unit}" if knob.unit else ""
    value = f"{knob.value:.6g}" if isinstance(knob.value, float) else str(knob.value)
    about = f": {knob.description[:80]}" if knob.description else ""
    return f"{knob.name} ({kind}{unit}, is {value[:40]}){about}"


def _listed(knobs: Iterable[KnobView]) -> str:
    return "; ".join(map(bounds_of, list(knobs)[:MAX_KNOBS]))
