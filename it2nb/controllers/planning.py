"""How a model plans a round: what it is shown, the tool it calls, and the plan that it meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from it2nb.controllers.prompts import cut, dumps, knob_told
from it2nb.controllers.provider import Answer, Tool
from it2nb.controllers.reading import fitting, loads
from it2nb.controllers.tools import MAX_KNOBS, settable, value_schema, with_reason
from it2nb.core.errors import AgentError, It2nbError
from it2nb.core.knob_names import KnobViews
from it2nb.core.rounds import Plan, RoundContext, Scheduled
from it2nb.core.wire import KnobView

#: The tool by which a plan is made.
PLAN_TOOL = "plan_round"
#: What of a record is told.
_TOLD = ("round", "value", "best", "improved", "status", "error", "steps", "reflection")
#: Characters of a reflection.
MAX_REFLECTION = 2_000


def plan_text(ctx: RoundContext, max_chars: int) -> str:
    """Write what a planner needs to know, in at most `max_chars` characters."""
    records = ctx.memory.last()
    knobs = settable(ctx.knobs)[:MAX_KNOBS]
    while True:
        told = {
            "next_round": ctx.round + 1, "rounds": ctx.max_rounds,
            "goal": None if ctx.goal is None else ctx.goal.describe(),
            "context": cut(ctx.context, 4_000 if records else 400),
            "knobs": [knob_told(each) for each in knobs],
            "rounds_so_far": [record_told(each) for each in records],
            "best_so_far": None if ctx.best is None else record_told(ctx.best).get("round"),
        }  # fmt: skip
        text = dumps(told)
        if len(text) <= max_chars:
            return text
        if records:
            records = records[1:]
        elif len(knobs) > 1:
            knobs = knobs[: len(knobs) // 2]
        else:
            return text[:max_chars]


def reflect_text(ctx: RoundContext, record: Mapping[str, Any], max_chars: int) -> str:
    """Write what came of a round, in at most `max_chars` characters."""
    told: dict[str, Any] = {
        "goal": None if ctx.goal is None else ctx.goal.describe(),
        "round": record_told(record),
        "requests": [_request_told(each) for each in (record.get("actions") or [])[-20:]],
        "rounds_before": [record_told(each) for each in ctx.memory.last(5)],
    }
    for name in ("requests", "rounds_before"):
        text = dumps(told)
        if len(text) <= max_chars:
            return text
        told[name] = []
    return dumps(told)[:max_chars]


def record_told(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record of a round, short; rounds are counted from 1, as people and the panel do."""
    told = {name: record[name] for name in _TOLD if record.get(name) is not None}
    if type(told.get("round")) is int:
        told["round"] += 1
    for name in ("error", "reflection"):
        if name in told:
            told[name] = cut(str(told[name]), 300)
    plan = record.get("plan")
    if isinstance(plan, Mapping):
        told["planned"] = dict(list((plan.get("settings") or {}).items())[:MAX_KNOBS])
        told["why"] = cut(str(plan.get("reason") or ""), 300)
    settings = record.get("settings")
    if isinstance(settings, Mapping):
        told["settings_at_the_end"] = dict(list(settings.items())[:MAX_KNOBS])
    return told


def plan_tool(knobs: Sequence[KnobView]) -> Tool:
    """The tool by which a model tells its plan, with the knobs' types and bounds."""
    values = {each.name: value_schema(each) for each in settable(knobs)[:MAX_KNOBS]}
    settings = {"type": "object", "properties": values}
    later = {
        "type": "object",
        "properties": {"step": {"type": "integer", "minimum": 0}, "set": settings},
        "required": ["step", "set"],
    }
    schema = with_reason(
        {
            "type": "object",
            "properties": {
                "settings": {**settings, "description": "set before the round's first step"},
                "schedule": {
                    "type": "array", "items": later, "description": "changes at later steps",
                },
                "stop": {"type": "boolean", "description": "true: no further round is worth it"},
            },
            "required": ["settings"],
        }
    )  # fmt: skip
    return Tool(PLAN_TOOL, "Plan the next round: its settings, and the reason.", schema)


def plan_of(answer: Answer, knobs: Sequence[KnobView]) -> Plan:
    """Read the plan that an answer holds, in a tool call or in its text.

    Raises
    ------
    AgentError
        If there is none that can be read; nothing of it is used then.
    """
    given: Any = answer.text
    for call in answer.calls:
        if call.name in (PLAN_TOOL, f"functions.{PLAN_TOOL}"):
            given = call.args
            break
    else:
        if answer.calls:
            names = ", ".join(sorted({each.name for each in answer.calls}))
            raise AgentError(f"it called {names[:200]}, not {PLAN_TOOL}")
    try:
        found = given if isinstance(given, Mapping) else loads(given or "")
        inner = found.get("arguments", found.get("plan"))
        plan = Plan.parse(inner if isinstance(inner, Mapping) else found)
    except It2nbError as err:
        raise AgentError(f"the plan can't be read: {err}") from err
    if plan is None:
        raise AgentError("the plan is empty")
    by_name = KnobViews(knobs)
    settings = {
        name: fitting(value, by_name[name]) if name in by_name else value
        for name, value in plan.settings.items()
    }
    schedule = tuple(_fitted(each, by_name) for each in plan.schedule)
    return Plan(settings, plan.reason, schedule, plan.stop)


def _fitted(later: Scheduled, knobs: KnobViews) -> Scheduled:
    """Read a value that was written as text here too."""
    payload = later.action.payload
    knob = knobs.get(str(payload.get("name")))
    if later.action.type != "set_knob" or knob is None or "value" not in payload:
        return later
    fitted = {**payload, "value": fitting(payload["value"], knob)}
    return Scheduled(later.step, later.action.model_copy(update={"payload": fitted}))


def _request_told(action: Any) -> Any:
    if not isinstance(action, Mapping):
        return cut(str(action), 200)
    kept = ("step", "type", "name", "requested", "after", "status", "source", "reason")
    told = {name: action[name] for name in kept if action.get(name) is not None}
    return {name: cut(each, 160) if isinstance(each, str) else each for name, each in told.items()}
