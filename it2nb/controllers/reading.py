"""What a model meant: requests out of tool calls and out of text, whatever shape they have."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from it2nb.controllers.provider import ToolCall
from it2nb.controllers.tools import Toolbox
from it2nb.core.errors import It2nbError
from it2nb.core.wire import KnobView

#: Characters of raw text that is shown in a row.
SHOWN = 200
#: Characters of an answer, or of one call's arguments, that are read at all.
MAX_READ = 100_000
#: Brackets in a text at which JSON may begin.
MAX_TRIES = 200
_FENCED = re.compile(r"```[A-Za-z0-9_]*[ \t]*\n?(.*?)```", re.DOTALL)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _finite(word: str) -> float:
    number = float(word)
    return number if math.isfinite(number) else _refuse(word)


_DECODER = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
_WRAPPED = ("arguments", "args", "parameters", "payload", "input")


@dataclass(frozen=True, slots=True)
class Wish:
    """One thing that the model wants done.

    Attributes
    ----------
    type : str
        The action.
    payload : dict
    reason : str
        In the model's words.
    wrong : str or None
        Why it can't be asked for as it stands; then it is rejected, and the model is told.
    """

    type: str
    payload: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    wrong: str | None = None

    def describe(self) -> dict[str, Any]:
        """As JSON, without what is empty."""
        told: dict[str, Any] = {"type": self.type, "payload": self.payload}
        if self.reason:
            told["reason"] = self.reason
        if self.wrong:
            told["wrong"] = self.wrong
        return told


def wishes(text: str, calls: list[ToolCall], box: Toolbox) -> list[Wish]:
    """Read an answer: its tool calls, or, where it has none, JSON in its text.

    Text counts when it holds objects with an action and its arguments:
    ``{"type": "set_knob", "payload": {...}}``, ``{"name": "set_knob", "arguments": {...}}``,
    a list of these, or one under ``"actions"``, bare, in a fence or in the midst of prose. Text
    without such is no request.
    """
    if calls:
        return [_from_call(call, box) for call in calls]
    if len(text) > MAX_READ:
        said = f"the answer has {len(text):,} characters; {MAX_READ:,} are read"
        return [Wish("unreadable", {}, wrong=said)]
    found = [each for each in _objects(text) if _is_request(each)]
    if found:
        return [_from_object(each, box) for each in found]
    broken = _broken(text)
    if broken is not None:
        return [Wish("unreadable", {}, wrong=broken)]
    return []


def loads(text: str) -> dict[str, Any]:
    """Read a JSON object that may stand in a fence or in prose.

    Raises
    ------
    It2nbError
        If there is none, with what was wrong. A text that breaks off is not mended: what was
        meant can't be known.
    """
    if len(text) > MAX_READ:
        raise It2nbError(f"{len(text):,} characters; {MAX_READ:,} are read: {text[:SHOWN]!r}")
    for piece in (text, *_FENCED.findall(text)):
        try:
            found = orjson.loads(piece)
        except orjson.JSONDecodeError as err:
            wrong = str(err)
            continue
        if isinstance(found, dict):
            return found
        if isinstance(found, str) and found.lstrip().startswith("{"):
            return loads(found)  # JSON within JSON
        wrong = f"a JSON object is needed, not {type(found).__name__}"
    for each in _objects(text):
        return each
    raise It2nbError(f"no JSON object: {wrong}: {text[:SHOWN]!r}")


def _from_call(call: ToolCall, box: Toolbox) -> Wish:
    name = call.name or "nameless"
    payload: dict[str, Any]
    if isinstance(call.args, dict):
        payload = dict(call.args)
    elif call.args is None or call.args == "":
        payload = {}
    elif not isinstance(call.args, str):
        said = f"the arguments have to be an object, not {type(call.args).__name__}"
        return Wish(box.action(name), {}, wrong=said)
    elif not call.args.strip():
        payload = {}
    else:
        try:
            payload = loads(call.args)
        except It2nbError as err:
            return Wish(box.action(name), {}, wrong=f"the arguments can't be read: {err}")
    return _wish(name, payload, "", box)


def _from_object(found: Mapping[str, Any], box: Toolbox) -> Wish:
    kind = next(str(found[key]) for key in ("type", "action", "tool", "name") if key in found)
    payload: Any = next((found[key] for key in _WRAPPED if key in found), {})
    if isinstance(payload, str):
        try:
            payload = loads(payload)
        except It2nbError as err:
            return Wish(box.action(kind), {}, wrong=f"the arguments can't be read: {err}")
    if not isinstance(payload, Mapping):
        said = f"the arguments have to be an object, not {type(payload).__name__}"
        return Wish(box.action(kind), {}, wrong=said)
    return _wish(kind, dict(payload), str(found.get("reason") or ""), box)


def _wish(name: str, payload: dict[str, Any], reason: str, box: Toolbox) -> Wish:
    """Take the reason out, unwrap once, and read numbers that were written as text."""
    action = box.action(name)
    if len(payload) == 1:
        (key,) = payload
        if key in _WRAPPED and isinstance(payload[key], Mapping):
            payload = dict(payload[key])
    own = action in box.actions.values() and name in {each.name for each in box.tools}
    if own and "reason" in payload and isinstance(payload["reason"], str):
        reason = reason or payload["reason"]
        payload = {key: value for key, value in payload.items() if key != "reason"}
    if action == "set_knob":
        knob = box.knobs.get(str(payload.get("name")))
        if knob is not None and "value" in payload:
            payload["value"] = fitting(payload["value"], knob)
    return Wish(action[:200], payload, reason[:4000])


def fitting(value: Any, knob: KnobView) -> Any:
    """Read a number or a truth value that was written as text; anything else stays as it is."""
    if not isinstance(value, str):
        return value
    if knob.dtype in ("float", "int"):
        try:
            number = float(value)
        except ValueError:
            return value
        if not math.isfinite(number):
            return value
        return int(number) if knob.dtype == "int" and number == int(number) else number
    if knob.dtype == "bool" and value.lower() in ("true", "false"):
        return value.lower() == "true"
    return value


def _is_request(found: Mapping[str, Any]) -> bool:
    if not any(isinstance(found.get(key), str) for key in ("type", "action", "tool", "name")):
        return False
    return any(key in found for key in _WRAPPED)


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """All JSON objects in a text, those in lists and under ``actions`` one by one."""
    for found in _values(text):
        stack = list(found) if isinstance(found, list) else [found]
        for each in stack:
            if not isinstance(each, dict):
                continue
            inner = each.get("actions", each.get("tool_calls"))
            if isinstance(inner, list):
                yield from (one for one in inner if isinstance(one, dict))
            else:
                yield each


def _values(text: str) -> Iterator[Any]:
    """JSON values that begin with a bracket, first to last; in fences, where there are any."""
    for piece in _FENCED.findall(text) or [text]:
        at = 0
        for _ in range(MAX_TRIES):
            starts = [place for place in (piece.find("{", at), piece.find("[", at)) if place >= 0]
            if not starts:
                break
            at = min(starts)
            try:
                found, at = _DECODER.raw_decode(piece, at)
            except (ValueError, RecursionError):
                if not _closes(piece, at):
                    break  # it breaks off: what stands inside may not be what was meant
                at += 1
                continue
            yield found


def _closes(text: str, at: int) -> bool:
    """Whether the bracket at `at` is closed again."""
    depth = 0
    in_text = escaped = False
    for letter in text[at:]:
        if in_text:
            in_text = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            in_text = True
        elif letter in "{[":
            depth += 1
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                return True
    return False


def _is_nothing(value: Any) -> bool:
    """Whether a model says in JSON that it wants nothing: ``[]``, ``{"actions": []}``."""
    if isinstance(value, Mapping):
        lists = [value[key] for key in ("actions", "tool_calls") if key in value]
        return bool(lists) and not any(lists)
    return isinstance(value, list) and not value


def _broken(text: str) -> str | None:
    """Say that a text means to be JSON and is none; None for prose."""
    bare = text.strip()
    fenced = "```json" in bare
    if not (bare.startswith(("{", "[")) or fenced):
        return None
    values = list(_values(bare))
    if values and all(map(_is_nothing, values)):
        return None
    if values:
        return (
            "the answer is JSON without an action in it; use the tools, or write "
            '{"type": "set_knob", "payload": {"name": ..., "value": ...}}'
        )
    return f"the answer can't be read as JSON: {bare[:SHOWN]!r}"
