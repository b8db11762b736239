"""The tables that ``%it2`` verbs show: of knobs, and of what happened."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

from it2nb.core.knob_names import without_owner
from it2nb.core.session import Session
from it2nb.core.wire import TERMINAL, Event, KnobView
from it2nb.notebook.words import CommandError
from it2nb.panel.rows import cut, number, row_of

#: Knobs that are listed when nobody says which.
MOST_KNOBS = 20
#: What people turn first, in this order.
_FIRST = ("lr", "weight_decay", "momentum")
_KNOB_COLUMNS = (
    "name", "value", "min", "max", "scale", "unit", "mode", "dtype", "last", "reason",
    "description",
)  # fmt: skip
_TEXT = 120


class Table(pd.DataFrame):
    """A data frame that shows small numbers as they are, 1e-8 and not 0.0, and all columns."""

    def __repr__(self) -> str:
        columns = [[str(self.index.name), *map(_cell, self.index)]]
        columns += [[str(name), *map(_cell, self[name])] for name in self.columns]
        wide = [max(map(len, each)) for each in columns]
        lines = zip(*columns, strict=True)
        return "\n".join(
            "  ".join(cell.ljust(size) for cell, size in zip(line, wide, strict=True)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str | None:
        shown = pd.DataFrame({name: self[name].map(_cell) for name in self.columns})
        with pd.option_context("display.max_colwidth", _TEXT, "display.max_rows", 1000):
            found: str | None = shown._repr_html_()  # type: ignore[operator]
            return found


def _cell(value: Any) -> str:
    if value is None or value is pd.NA:
        return ""
    return cut(short(value) if isinstance(value, float) else str(value), _TEXT)


def short(value: float) -> str:
    """Write a number with six significant digits at most."""
    return number(float(f"{value:.6g}"))


def table(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> Table:
    """Make a table of rows; the first column is its index."""
    listed = list(rows)
    frame = Table(
        {name: pd.Series([row[name] for row in listed], dtype="object") for name in columns}
    )
    made = frame.set_index(columns[0])
    assert isinstance(made, pd.DataFrame)
    return Table(made)


# --- knobs --------------------------------------------------------------------------------


def knob_table(session: Session, which: str | None) -> tuple[Table, str]:
    """List knobs, and say in words what was left out.

    Parameters
    ----------
    session : Session
    which : str, optional
        A name, a pattern such as ``betas*``, or ``all``; by default at most 20 of them, those
        that people turn first.

    Raises
    ------
    UnknownKnob, CommandError
        If there is none of this name or pattern.
    """
    views = session.knobs.views()
    left = ""
    if which is None:
        views, left = _most_wanted(session, views)
    elif "*" in which or "?" in which:
        # Brackets are part of names: lr[0].
        pattern = which.replace("[", "[[]")
        views = [each for each in views if fnmatch.fnmatchcase(each.name, pattern)]
        if not views:
            raise CommandError(f"%it2 knobs {which}: no knob has such a name; see %it2 knobs all")
    elif which != "all" or which in session.knobs:
        wanted = session.knobs[which].name
        views = [each for each in views if each.name == wanted]
    return table(map(_knob_row, views), _KNOB_COLUMNS), left


def _most_wanted(session: Session, views: list[KnobView]) -> tuple[list[KnobView], str]:
    if len(views) <= MOST_KNOBS:
        return views, ""
    usual = {name for each in session.bound.optimizers for name in getattr(each, "defaults", {})}

    def rank(view: KnobView) -> int:
        name = without_owner(view.name).partition("[")[0]
        if _is_of_layer(view):
            return len(_FIRST) + 2
        if name in _FIRST:
            return _FIRST.index(name)
        return len(_FIRST) + (name in usual)

    shown = sorted(views, key=rank)[:MOST_KNOBS]  # stable: as registered within a rank
    rest = len(views) - len(shown)
    names = {each.name for each in shown}
    like = next(each.name for each in views if each.name not in names).partition("[")[0]
    return shown, (
        f"{rest} more of {len(views)} knobs: %it2 knobs all, or by a pattern such as "
        f"%it2 knobs {like}*"
    )


def _is_of_layer(view: KnobView) -> bool:
    """Whether a knob is a setting of a layer, whose group begins with the layer's class."""
    nn = sys.modules.get("torch.nn")
    return bool(view.group) and hasattr(nn, view.group.split()[0])


def _knob_row(view: KnobView) -> dict[str, Any]:
    return {
        "name": view.name, "value": view.value, "min": view.min, "max": view.max,
        "scale": view.scale, "unit": view.unit, "mode": view.mode, "dtype": view.dtype,
        "last": None if view.last is None else view.last.status,
        "reason": view.reason, "description": view.description,
    }  # fmt: skip


# --- the journal --------------------------------------------------------------------------

_JOURNAL_COLUMNS = ("seq", "step", "time", "source", "what", "result")


def journal_table(session: Session, rows: int, type: str | None) -> Table:
    """List the newest rows of the journal, the newest last.

    Metrics are the curves, and are left out unless they are asked for by `type`; so is what the
    result of a request tells again.
    """
    journal = session.journal
    types = [type] if type else [each for each in journal.row_types() if each != "metrics"]
    # A request has up to three rows that its result stands for.
    events = journal.tail(rows if type else 4 * rows, types)
    if type is None:
        done = {each.action_id for each in events if each.type == "action_result"}
        events = [each for each in events if each.action_id not in done or not _is_echo(each)]
    return table(map(_journal_row, events[-rows:]), _JOURNAL_COLUMNS)


def _is_echo(event: Event) -> bool:
    return event.type in ("action_submitted", "knob_changed")


def _journal_row(event: Event) -> dict[str, Any]:
    row = row_of(event)
    payload = event.payload
    what, result = event.type, row.text
    if event.type == "action_result":
        what = f"{row.action} {row.name or payload.get('asked') or ''}".rstrip()
        result = _became(payload, row.text)
    elif event.type == "action_submitted":
        asked = payload.get("payload") or {}
        what = f"{payload.get('type')} {asked.get('name', '')}".rstrip()
        result = "asked" + (f" ({payload['reason']})" if payload.get("reason") else "")
    elif event.type == "knob_changed":
        what = f"knob {row.name} changed"
        result = f"{_value(payload.get('before'))} to {_value(payload.get('value'))}"
    elif event.type == "metrics":
        names = (f"{name} {_value(value)}" for name, value in payload.items())
        result = ", ".join(names)
    elif row.name:
        what += f" {row.name}"
    return {
        "seq": event.seq,
        "step": event.step,
        "time": time.strftime("%H:%M:%S", time.localtime(event.ts)),
        "source": row.source or "",
        "what": what,
        "result": result,
    }


def _became(payload: dict[str, Any], text: str) -> str:
    said = str(payload.get("status"))
    if said in TERMINAL and payload.get("ok") and payload.get("name") is not None:
        said += f", {_value(payload.get('before'))} to {_value(payload.get('after'))}"
    elif text and payload.get("ok"):
        said += f", {text}"
    reason = payload.get("reason") or payload.get("error") or payload.get("why")
    return said + (f" ({reason})" if reason else "")


def _value(value: Any) -> str:
    return short(value) if isinstance(value, float) else str(value)
