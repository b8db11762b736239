"""What a tracker is to a run: a place into which its metrics and interventions are copied."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from it2nb.core.errors import MissingDependency
from it2nb.core.wire import EFFECTIVE, Event


@dataclass(frozen=True, slots=True)
class RunInfo:
    """The run that is mirrored.

    Attributes
    ----------
    run_id, title : str
    folder : str or None
        Of the run's journal.
    goal : dict or None
    seed : int or None
    knobs : dict of str to value
        At the start.
    """

    run_id: str
    title: str = ""
    folder: str | None = None
    goal: dict[str, Any] | None = None
    seed: int | None = None
    knobs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Point:
    """The metrics of one step.

    Attributes
    ----------
    step : int
    values : dict of str to float
        NaN and infinities as they are.
    ts : float
        Unix time, seconds.
    lane : str
        ``""``, ``"branch_1"``, ``"round_2"``, ``"round_2/branch_1"``: each is a curve of its own.
    """

    step: int
    values: Mapping[str, float]
    ts: float
    lane: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that was done to the run, or noted.

    Attributes
    ----------
    step : int
    text : str
        ``"set_knob lr: 0.01 → 0.001 (panel: too fast)"``.
    kind : {"change", "refused", "note"}
    ts : float
    lane : str
    knob : str or None
    value : number or None
        Of the knob afterwards, where it is one.
    """

    step: int
    text: str
    kind: str
    ts: float
    lane: str = ""
    knob: str | None = None
    value: float | None = None


class Tracker(Protocol):
    """Takes what it is given, in order, all on one thread that is not the training's.

    What it raises becomes a row; it may be slow.
    """

    name: str

    def open(self, run: RunInfo) -> None:
        """Begin."""

    def points(self, points: list[Point]) -> None:
        """Take the metrics of some steps."""

    def mark(self, mark: Mark) -> None:
        """Take an intervention or a note."""

    def close(self, status: str) -> None:
        """End: ``"finished"``, ``"stopped"`` or ``"failed"``; all is written afterwards."""


def lane_of(event: Event) -> str:
    """Name the line of steps that an event belongs to; empty for the first one."""
    parts = [f"round_{event.round}"] if event.round else []
    parts += [f"branch_{event.branch_id}"] if event.branch_id else []
    return "/".join(parts)


def in_lane(lane: str, name: str) -> str:
    """Name a metric where lanes are told apart by names: ``branch_1/loss``."""
    return f"{lane}/{name}" if lane else name


def mark_of(event: Event) -> Mark | None:
    """Make a mark of a row; None for rows that are none."""
    payload = event.payload
    common: dict[str, Any] = {"step": event.step, "ts": event.ts, "lane": lane_of(event)}
    if event.type == "action_result":
        if payload.get("type") == "note":
            return None  # its own row follows
        return Mark(**common, **_told(payload))
    if event.type == "note":
        return Mark(text=str(payload.get("text", "")), kind="note", **common)
    if event.type in ("guard_tripped", "branch_forked", "round_started"):
        said = payload.get("reason") or f"round {payload.get('round')}"
        return Mark(text=f"{event.type}: {said}", kind="note", **common)
    return None


def _told(payload: Mapping[str, Any]) -> dict[str, Any]:
    name = payload.get("name")
    after = payload.get("after")
    applied = payload.get("status") in EFFECTIVE
    text = f"{payload.get('type')} {name}" if name else str(payload.get("type"))
    if name and applied:
        text += f": {payload.get('before')!r} → {after!r}"
    elif not applied:
        text += f": {payload.get('status')}"
    who = payload.get("actor") or payload.get("source")
    why = payload.get("reason")
    text += f" ({who}: {why})" if why else f" ({who})"
    is_number = isinstance(after, (int, float)) and not isinstance(after, bool)
    return {
        "text": text,
        "kind": "change" if applied else "refused",
        "knob": name if name and applied else None,
        "value": after if applied and name and is_number else None,
    }


def check_installed(module: str, *, extra: str, feature: str) -> None:
    """Say how to install an optional package, without importing it: some take seconds.

    Raises
    ------
    MissingDependency
    """
    if importlib.util.find_spec(module) is None:
        raise MissingDependency(f"{feature} needs {module!r}: pip install 'it2nb[{extra}]'")
