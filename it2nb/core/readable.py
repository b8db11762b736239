"""What a handler returned, as people read it: no internals, sizes in kB, lists in lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

import orjson

from it2nb.core.strict import plain

#: What keeps and brings back state: their results hold what a replay needs, too.
_OF_STATE = frozenset(
    {"save_checkpoint", "load_checkpoint", "undo", "goto", "fork", "checkpoint_saved",
     "checkpoint_loaded"}
)  # fmt: skip
_INTERNAL = frozenset({"v", "kept", "knobs_kept"})
#: What is so in nearly every run, and says nothing.
_USUAL = {
    "branch_id": 0, "round": 0, "parent": 0, "from_branch": 0, "keep_knobs": False, "good": False,
}  # fmt: skip
#: Characters of a hash: enough to tell two files apart.
HASH = 12
#: Characters of what was asked for.
ASKED = 200
#: Steps of snapshots that a line names.
_STEPS = 12
#: Changed knobs that a line names, and the characters of each value.
_KNOBS, _VALUE = 6, 40


def told(value: Any) -> str:
    """Write a value into a sentence: its repr, a float with twelve digits at most.

    What arithmetic leaves behind the twelfth is noise to a reader: 0.3, not
    0.30000000000000004. A result's fields and the journal have all digits.
    """
    if isinstance(value, float):
        # NaN and infinity pass through this as they are.
        return repr(float(f"{value:.12g}"))
    return repr(value)


def asked_text(payload: Mapping[str, Any], most: int = ASKED) -> str:
    """Say what was asked for, in few words: ``"best"``, ``"30, exact yes"``.

    Parameters
    ----------
    payload : mapping
        Of the request, without secrets. The first argument stands for itself, unless it is a
        yes or no.
    most : int
        Characters.
    """
    parts: list[str] = []
    for key, value in payload.items():
        if value is None:
            continue
        if isinstance(value, bool):
            parts.append(f"{key} {'yes' if value else 'no'}")
            continue
        if isinstance(value, str):
            said = value
        elif isinstance(value, (int, float)):
            said = told(value)
        else:
            said = orjson.dumps(plain(value)).decode()
        parts.append(f"{key} {said}" if parts else said)
    text = ", ".join(parts)
    return text if len(text) <= most else text[: most - 3] + "..."


def size_text(size_bytes: float) -> str:
    """Write a number of bytes for people: ``"483.7 kB"``."""
    size = float(size_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if abs(size) < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def readable(type: str, data: Mapping[str, Any], step: int | None = None) -> dict[str, Any]:
    """Return what is worth reading of a result's or an event's data, by what it is called.

    Parameters
    ----------
    type : str
        Of the action or event. What keeps and brings back state has internals; what anybody
        else returns stays, but for what is empty.
    data : mapping
    step : int, optional
        The step that stands beside it: it is not said twice.
    """
    found: dict[str, Any] = {}
    of_state = type in _OF_STATE
    for key, value in data.items():
        if value is None or value == "":
            continue
        if of_state and (
            key in _INTERNAL or value in ([], {}) or (key in _USUAL and value == _USUAL[key])
        ):
            continue
        if of_state and key == "step" and value == step:
            continue
        if key.endswith("_bytes") and isinstance(value, (int, float)) and type != "evaluate":
            found[key.removesuffix("_bytes")] = size_text(value)
        elif key == "sha256" and isinstance(value, str):
            found[key] = value[:HASH]
        else:
            found[key.removesuffix("_id") if of_state and key == "branch_id" else key] = value
    return found


def changed_text(data: Mapping[str, Any]) -> str:
    """Say which knobs going back has changed: ``"smooth 0.5 -> 0, lr 0.1 -> 0.01"``.

    Parameters
    ----------
    data : mapping
        Of a result; its ``knobs`` maps names to ``before`` and ``after``. Empty where it has none.
    """
    knobs = data.get("knobs")
    if not isinstance(knobs, Mapping):
        return ""
    parts = [
        _change(str(name), each)
        for name, each in knobs.items()
        if isinstance(each, Mapping) and {"before", "after"} <= each.keys()
    ]
    if len(parts) > _KNOBS:
        parts[_KNOBS:] = [f"{len(parts) - _KNOBS} more knobs changed"]
    return ", ".join(parts)


def _change(name: str, change: Mapping[str, Any]) -> str:
    before, after = _brief(change["before"]), _brief(change["after"])
    # The value is the one of before: it was held against its schedule, or is no longer.
    return f"{name} {before} -> {after}" if before != after else f"the mode of {name}"


def _brief(value: Any) -> str:
    text = f"{value:.12g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _VALUE else text[: _VALUE - 3] + "..."


def notes_of(data: Any) -> list[str]:
    """Return the caveats of a result, from its data."""
    notes = data.get("notes") if isinstance(data, Mapping) else None
    return [str(each) for each in notes] if isinstance(notes, list) else []


def is_listing(data: Any, type: str) -> TypeGuard[Mapping[str, Any]]:
    """Whether the data is that of ``list_checkpoints``, which a session may have replaced."""
    return (
        type == "list_checkpoints"
        and isinstance(data, Mapping)
        and all(
            isinstance(data.get(part), list)
            and all(isinstance(each, Mapping) for each in data[part])
            for part in ("files", "snapshots")
        )
    )


def listing_lines(data: Mapping[str, Any]) -> list[str]:
    """List in short lines what can be gone back to; see `is_listing`."""
    files, snapshots = data["files"], data["snapshots"]
    lines = [f"{_many(len(files), 'checkpoint file')} in {data.get('folder')}"]
    tags = [str(each.get("tag") or "-") for each in files]
    wide = max(map(len, tags), default=0)
    lines += [
        f"  {tag:{wide}}  step {each.get('step')}{_branch(each)}, {each.get('name')}, "
        f"{size_text(each.get('size_bytes') or 0)}"
        for tag, each in zip(tags, files, strict=True)
    ]
    lines.append(_snapshots(snapshots, data))
    return lines


def checkpoint_text(each: Mapping[str, Any]) -> str:
    """Say which checkpoint it is: ``"step 1,200 (branch 2), best, 483.7 kB"``.

    Parameters
    ----------
    each : mapping
        ``step``, and where they are known ``branch_id``, ``round``, ``tag``, ``name`` and
        ``size_bytes``.
    """
    parts = [f"step {each['step']:,}{_branch(each)}"]
    if each.get("round"):
        parts.insert(0, f"round {each['round'] + 1}")
    parts += [str(each[key]) for key in ("tag", "name") if each.get(key)]
    if each.get("size_bytes"):
        parts.append(size_text(each["size_bytes"]))
    return ", ".join(parts)


def _snapshots(snapshots: list[Any], data: Mapping[str, Any]) -> str:
    if not snapshots:
        return "no snapshot in memory"
    steps = [f"{each.get('step')}{_branch(each)}" for each in snapshots]
    if len(steps) > _STEPS:
        steps = [*steps[: _STEPS // 2], "...", *steps[-_STEPS // 2 :]]
    held = size_text(data.get("snapshot_bytes") or 0)
    return (
        f"{_many(len(snapshots), 'snapshot')} in memory ({held} of at most "
        f"{size_text(data.get('max_bytes') or 0)}), of step {', '.join(steps)}"
    )


def _branch(each: Mapping[str, Any]) -> str:
    branch = each.get("branch_id")
    return f" (branch {branch})" if branch else ""


def _many(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")
