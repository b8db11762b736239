"""Journal events as the panel shows them: rows of the table, and marks on the curves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from it2nb.core.drifted import drifted_names, is_in_force
from it2nb.core.members import batch_lines, is_batch, members_text
from it2nb.core.readable import changed_text, is_listing, listing_lines, notes_of, readable
from it2nb.core.strict import strict
from it2nb.core.wire import EFFECTIVE, ActionResult, Event, State
from it2nb.core.wire_panel import Mark, Row
from it2nb.panel.agents import call_text

#: Events that become rows. Metrics are the curves; a submission is told by its result.
ROW_TYPES: tuple[str, ...] = (
    "action_result",
    "agent_attached",
    "agent_call",
    "agent_configured",
    "agent_enabled",
    "agent_plan",
    "agent_reflection",
    "approval_requested",
    "checkpoint_loaded",
    "checkpoint_saved",
    "context_changed",
    "guard_tripped",
    "journal_degraded",
    "knob_drifted",
    "knobs_registered",
    "module_reset",
    "namespace_changed",
    "note",
    "recovered",
    "round_finished",
    "round_started",
    "run_failed",
    "status_changed",
)
#: Events that may be worth a line across the curves.
MARKING: tuple[str, ...] = (
    "action_result", "checkpoint_loaded", "guard_tripped", "knob_drifted", "round_started",
)  # fmt: skip
_CHANGES = ("set_knob", "set_mode", "batch", "reset_module")
_TEXT = 300
#: What an event says, its caveats included: a page shows the beginning, and all in a tooltip.
_SAID = 900
_VALUE = 160


def number(value: float) -> str:
    """Write a number as the panel does: short, and exact when read back."""
    if not math.isfinite(value):
        return repr(value)
    size = abs(value)
    if value == 0 or 1e-3 <= size < 1e7:
        text = repr(value)
        return text[:-2] if text.endswith(".0") else text
    digits, _, exponent = repr(value).partition("e")
    if not exponent:
        digits, _, exponent = f"{value:.16e}".partition("e")
        shortest = (f"{value:.{places}e}" for places in range(17))
        text = next((each for each in shortest if float(each) == value), f"{value:.16e}")
        digits, _, exponent = text.partition("e")
    digits = digits.removesuffix(".0")
    return f"{digits}e{int(exponent)}"


def row_of(event: Event) -> Row:
    """Shorten an event to what a row shows. Any thread."""
    payload = event.payload
    asked = event.type == "action_result"
    reason = payload.get("reason") or (payload.get("error") if asked else None)
    # Why it was asked for, where nothing has to be said of what became of it.
    reason = reason or (payload.get("why") if asked else None)
    requested = payload.get("requested")
    if asked and payload.get("name") is None:
        requested = payload.get("asked") or requested
    return Row(
        seq=event.seq,
        ts=event.ts,
        t=event.t,
        step=event.step,
        branch_id=event.branch_id,
        round=event.round,
        type=event.type,
        source=event.source or _text_or_none(payload.get("source")),
        actor=_text_or_none(payload.get("actor")),
        action_id=event.action_id or (_text_or_none(payload.get("id")) if asked else None),
        action=_text_or_none(payload.get("type")) if asked else None,
        name=_text_or_none(payload.get("name")),
        requested=_value(requested),
        before=_value(payload.get("before")),
        after=_value(payload.get("after")),
        status=payload.get("status") if asked else None,
        reason=None if reason is None else cut(str(reason), _TEXT),
        text=cut(_told(event), _SAID),
        durable=event.durable,
    )


def row_without_journal(result: ActionResult, ts: float) -> Row:
    """Make a row of a result that came after the journal was closed. Any thread."""
    return Row(
        seq=-1,
        ts=ts,
        step=result.step or 0,
        type="action_result",
        source=result.source,
        action_id=result.id,
        action=result.type,
        name=result.name,
        requested=_value(result.requested),
        status=result.status,
        reason=cut(result.reason or result.error or "", _TEXT),
        durable=False,
    )


def mark_of(event: Event) -> Mark | None:
    """Return the mark that an event leaves on the curves, if it does. Any thread."""
    payload = event.payload
    label: str | None = None
    kind: Any = "change"
    match event.type:
        case "action_result":
            action = payload.get("type")
            if action in _CHANGES and payload.get("status") in EFFECTIVE:
                label = _change(str(action), payload)
        case "checkpoint_loaded":
            kind, label = "restore", "restored"
        case "round_started" if event.round > 0:
            kind, label = "round", round_text(event.round)
        case "knob_drifted" if is_in_force(event):
            shown = {"name": drifted_names(payload)[-1], "after": payload.get("found")}
            label = f"{_change('set_knob', shown)}, not asked"
        case "guard_tripped":
            kind, label = "guard", str(payload.get("guard") or payload.get("name") or "guard")
    if label is None:
        return None
    return Mark(
        seq=event.seq,
        step=event.step,
        t=event.t,
        branch_id=event.branch_id,
        round=event.round,
        kind=kind,
        label=cut(label, 60),
    )


def round_text(round: int, max_rounds: int | None = None) -> str:
    """Name a round for people, who count the baseline, round 0, as the first."""
    of = "" if max_rounds is None or max_rounds <= round else f" of {max_rounds}"
    return f"round {round + 1}{of}"


def rounds_text(state: State) -> str:
    """Return which round of how many runs; nothing where there is one only."""
    if state.round == 0 and (state.max_rounds or 1) <= 1:
        return ""
    return round_text(state.round, state.max_rounds)


def cut(text: str, most: int) -> str:
    """Shorten a text to `most` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


def short_label(label: str, most: int) -> str:
    """Shorten a mark's label: the name and never the number, a part of which is another number."""
    name, _, value = label.rpartition(" ")
    if len(label) <= most or not name or not _is_number(value):
        return cut(label, most)
    return f"{name[: max(1, most - len(value) - 4)]}... {value}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _change(action: str, payload: Mapping[str, Any]) -> str:
    name = str(payload.get("name") or "")
    if action == "set_mode":
        return f"{name} {payload.get('requested')}"
    if action == "batch":
        done = payload.get("data")
        names = [str(each.get("name")) for each in done] if isinstance(done, list) else []
        return ", ".join(names) or "batch"
    if action == "reset_module":
        return f"reset {name}".strip()
    after = payload.get("after")
    if isinstance(after, float) and math.isfinite(after):
        # A label on a curve; the row has all digits.
        return f"{name} {number(float(f'{after:.5g}'))}"
    return f"{name} {after}"


def _told(event: Event) -> str:
    """What an event says, in one line."""
    payload = event.payload
    match event.type:
        case "action_result":
            data, action = payload.get("data"), str(payload.get("type"))
            groups = members_text(_text_or_none(payload.get("name")), data)
            if groups:
                return groups
            if is_batch(data, action):
                return "; ".join(batch_lines(data))
            if is_listing(data, action):
                return "; ".join(each.strip() for each in listing_lines(data))
            if isinstance(data, Mapping):
                return _outcome(action, data, event.step)
            return _flat(data) if isinstance(data, list) else _plain(data)
        case "note":
            return str(payload.get("text", ""))
        case _ if event.type.startswith("agent_"):
            return call_text(payload)
        case "round_started" | "round_finished":
            most = payload.get("max_rounds")
            most = most if isinstance(most, int) else None
            told = {k: v for k, v in payload.items() if k not in ("v", "round", "max_rounds")}
            told = {k: v for k, v in told.items() if v is not None and k != "run_id"}
            return f"{round_text(event.round, most)}, {_flat(told)}"
        case "knobs_registered":
            knobs = payload.get("knobs")
            names = [str(each.get("name")) for each in knobs] if isinstance(knobs, list) else []
            return ", ".join(names)
        case _:
            told = {k: v for k, v in payload.items() if k not in ("v", "name")}
            if "before" in told and told["before"] == told.get("expected"):
                del told["expected"]  # a drift: once is enough in one line
            return _outcome(event.type, told, event.step)


def _outcome(type_: str, data: Mapping[str, Any], step: int) -> str:
    """What became of it: its facts, the knobs that changed with it, and what is to be heeded."""
    facts = readable(type_, data, step)
    changed, notes = changed_text(data), notes_of(data)
    if changed:
        del facts["knobs"]
    if notes:
        del facts["notes"]
    return "; ".join(each for each in (_flat(facts), changed, *notes) if each)


def _flat(data: Any) -> str:
    if isinstance(data, Mapping):
        parts = [f"{key} {_plain(each)}" for key, each in list(data.items())[:8]]
        return ", ".join(parts)
    if isinstance(data, list):
        return "; ".join(_flat(each) for each in data[:8])
    return _plain(data)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(float(f"{value:.5g}"))
    if isinstance(value, Mapping):
        return "{" + cut(_flat(value), 100) + "}"
    if isinstance(value, list):
        return f"[{len(value)}]"
    return cut(str(value), 120)


def _value(value: Any) -> Any:
    plain, odd = strict(value)
    if odd:
        # A row is for reading: "nan" says more than an empty cell.
        return odd.get("", cut(repr(value), _VALUE))
    if isinstance(plain, str):
        return cut(plain, _VALUE)
    if isinstance(plain, (dict, list)):
        text = repr(plain)
        return plain if len(text) <= _VALUE else cut(text, _VALUE)
    return plain


def _text_or_none(value: Any) -> str | None:
    return None if value is None else cut(str(value), 200)
