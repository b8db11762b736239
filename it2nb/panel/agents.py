"""Controllers as the panel shows them, out of what they say of themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from it2nb.core.faults import guard
from it2nb.core.strict import strict
from it2nb.core.wire import TERMINAL
from it2nb.core.wire_panel import AgentDecision, AgentRequest, AgentView

#: Controllers, decisions of each, and requests of each decision that are sent.
MAX_AGENTS, MAX_DECISIONS, MAX_REQUESTS = 6, 4, 6
_TEXT = 300
_STATES = frozenset({*TERMINAL, "pending", "waiting"})


def agent_views(told: Mapping[str, Any] | None) -> list[AgentView]:
    """Shorten ``State.agent`` to what a panel shows. Rules are not shown: the policy lists them.

    Whatever a controller says of itself: what does not fit is left out.
    """
    if not told:
        return []
    given = told.get("controllers")
    controllers = given if isinstance(given, list) else [told]
    views = []
    for each in controllers:
        if isinstance(each, Mapping) and each.get("source") != "rule":
            with guard("view of a controller"):
                views.append(_view(each))
    return views[:MAX_AGENTS]


def call_text(payload: Mapping[str, Any]) -> str:
    """What a row of an agent says, in one line; for ``agent_call`` and the like."""
    parts = []
    for key in ("plan", "reflection"):
        said = payload.get(key)
        if said:
            parts.append(plan_text(said))
    if payload.get("error"):
        parts.append(str(payload["error"]))
    if payload.get("reason"):
        parts.append(str(payload["reason"]))
    if isinstance(payload.get("enabled"), bool):
        parts.append("asked" if payload["enabled"] else "paused")
    if isinstance(payload.get("requests"), int) and "took_s" in payload:
        count = payload["requests"]
        parts.append("no request" if count == 0 else f"{count} request{'s' if count > 1 else ''}")
    if payload.get("tokens"):
        parts.append(f"{payload['tokens']:,} tokens")
    if isinstance(payload.get("took_s"), (int, float)):
        parts.append(f"{payload['took_s']:.2g} s")
    if isinstance(payload.get("every"), int):
        parts.append(f"every {payload['every']:,} steps")
    if isinstance(payload.get("options"), Mapping):
        parts += [f"{name} {value}" for name, value in payload["options"].items()]
    return ", ".join(parts)


def plan_text(plan: Any) -> str:
    """A plan in one line: its settings, and why."""
    if not isinstance(plan, Mapping):
        return str(plan)
    settings = plan.get("settings")
    said = plan.get("text") or plan.get("reason") or ""
    what = ""
    if isinstance(settings, Mapping) and settings:
        what = ", ".join(f"{name} {_short(value)}" for name, value in settings.items())
    return ": ".join(each for each in (what, str(said)) if each)


def _view(told: Mapping[str, Any]) -> AgentView:
    about = told.get("about")
    about = about if isinstance(about, Mapping) else {}
    decisions = about.get("decisions")
    listed = decisions if isinstance(decisions, list) else []
    plan = about.get("plan")
    return AgentView(
        name=_cut(told.get("name") or "agent"),
        source=_cut(told.get("source") or "agent"),
        kind=_cut(about.get("model") or about.get("kind") or ""),
        enabled=bool(told.get("enabled", True)),
        thinking=bool(told.get("thinking", False)),
        every=_whole(told.get("every")),
        calls=_whole(told.get("calls")) or 0,
        requests=_whole(told.get("requests")) or 0,
        tokens=_whole(about.get("tokens")),
        max_tokens=_whole(about.get("max_tokens")),
        cost=_number(about.get("cost")),
        max_cost=_number(about.get("max_cost")),
        plan=_cut(plan_text(plan)) if plan else "",
        error=None if told.get("error") is None else _cut(told["error"]),
        reason=None if told.get("reason") is None else _cut(told["reason"]),
        decisions=list(_decisions(listed[-MAX_DECISIONS:])),
    )


def _decisions(listed: Iterable[Any]) -> Iterable[AgentDecision]:
    for each in listed:
        if isinstance(each, Mapping):
            requests = each.get("requests")
            yield AgentDecision(
                step=_whole(each.get("step")) or 0,
                round=_whole(each.get("round")) or 0,
                said=_cut(each.get("said") or ""),
                requests=[
                    _request(one)
                    for one in (requests if isinstance(requests, list) else [])[:MAX_REQUESTS]
                    if isinstance(one, Mapping)
                ],
            )


def _request(told: Mapping[str, Any]) -> AgentRequest:
    status = told.get("status")
    name = told.get("name")
    return AgentRequest(
        id=_cut(told.get("id") or ""),
        type=_cut(told.get("type") or ""),
        name=None if name is None else _cut(name),
        requested=_short(told.get("requested")),
        status=status if status in _STATES else "pending",
        reason=_cut(told.get("reason") or ""),
        why=_cut(told.get("why") or ""),
    )


def _short(value: Any) -> Any:
    plain = strict(value)[0]
    return plain if isinstance(plain, (bool, int, float)) or plain is None else _cut(plain)


def _cut(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value)
