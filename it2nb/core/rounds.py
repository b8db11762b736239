"""Rounds: what is planned for a training, what came of it, and what is remembered."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson

from it2nb.core.errors import It2nbError
from it2nb.core.goals import Goal
from it2nb.core.wire import Action, KnobView, strict

#: Records that a prompt holds.
IN_PROMPT = 10
#: Requests that one plan may schedule.
MAX_SCHEDULED = 100


class PlanError(It2nbError):
    """A plan can't be read."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A request of a plan for later in its round."""

    step: int
    action: Action

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {"step": self.step, "type": self.action.type, "payload": self.action.payload}


@dataclass(frozen=True, slots=True)
class Plan:
    """What a round should be like.

    Attributes
    ----------
    settings : dict of str to any
        Knobs and their values, set before the first step of the round.
    reason : str
        Why, in the planner's words.
    schedule : tuple of Scheduled
        Requests for later steps of the round.
    stop : bool
        No round should follow: this one is not trained.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    schedule: tuple[Scheduled, ...] = ()
    stop: bool = False

    @classmethod
    def parse(cls, plan: Any) -> Plan | None:
        """Read what a planner returned.

        Parameters
        ----------
        plan : Plan, mapping or None
            A mapping with some of ``settings``, ``reason`` (or ``text``), ``schedule`` (a list of
            ``{"step", "type", "payload"}``, or of ``{"step", "set": {knob: value}}``) and
            ``stop``; or one of knobs and values alone.

        Raises
        ------
        PlanError
            If it is none of these.
        """
        if plan is None or isinstance(plan, Plan):
            return plan
        if not isinstance(plan, Mapping):
            raise PlanError(
                f"a plan is a Plan or a mapping, not a {type(plan).__name__}: {plan!r:.80}"
            )
        if not plan.keys() & {"settings", "reason", "text", "schedule", "stop"}:
            plan = {"settings": plan}
        settings = plan.get("settings") or {}
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            raise PlanError(f"settings={settings!r:.80} has to be a mapping of knobs to values")
        reason = plan.get("reason", plan.get("text", ""))
        return cls(
            settings=dict(settings),
            reason=str(reason or "")[:4000],
            schedule=tuple(_scheduled(plan.get("schedule") or ())),
            stop=bool(plan.get("stop", False)),
        )

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "settings": strict(self.settings)[0],
            "reason": self.reason,
            "schedule": [each.describe() for each in self.schedule],
            "stop": self.stop,
        }


def _scheduled(schedule: Any) -> Iterator[Scheduled]:
    if not isinstance(schedule, Sequence) or isinstance(schedule, (str, bytes)):
        raise PlanError(f"schedule={schedule!r:.80} has to be a list of requests with a step each")
    if len(schedule) > MAX_SCHEDULED:
        raise PlanError(f"{len(schedule)} requests are scheduled; at most {MAX_SCHEDULED}")
    for each in schedule:
        if isinstance(each, Scheduled):
            yield each
            continue
        step = each.get("step") if isinstance(each, Mapping) else None
        if isinstance(step, bool) or not isinstance(step, int) or step < 0:
            raise PlanError(f"{each!r:.80} needs a whole 'step' from 0")
        if isinstance(each.get("set"), Mapping):
            for name, value in each["set"].items():
                yield Scheduled(step, _action("set_knob", {"name": str(name), "value": value}))
            continue
        payload = each.get("payload", {})
        if not isinstance(each.get("type"), str) or not isinstance(payload, Mapping):
            raise PlanError(f"{each!r:.80} needs a 'type' and a 'payload', or 'set'")
        yield Scheduled(step, _action(each["type"], dict(payload)))


def _action(type: str, payload: dict[str, Any]) -> Action:
    if not 0 < len(type) <= 200:
        raise PlanError(f"{type!r:.60} is no name of an action")
    return Action(type=type, payload=payload)


class Memory:
    """What earlier rounds came to: one JSON object a round, in a file or in memory.

    Parameters
    ----------
    path : str or Path, optional
        A JSONL file, read if it is there and appended to; a last line that was cut off is left
        out, and replaced by the next record. None keeps the records in memory.

    Raises
    ------
    It2nbError
        If a line before the last is no JSON object.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path)
        self._records: list[dict[str, Any]] = []
        self._whole = 0
        if self.path is not None and self.path.exists():
            self._read(self.path)

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(list(self._records))

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else str(self.path)
        return f"<Memory of {len(self)} rounds, {where}>"

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records, oldest first."""
        return list(self._records)

    def add(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Remember a record; it is on disk when this returns.

        Returns
        -------
        dict
            As it was written: plain JSON, non-finite numbers as null.
        """
        plain: dict[str, Any] = strict(dict(record))[0]
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("r+b" if self.path.exists() else "w+b") as file:
                # Behind the last whole line: a torn one is written over.
                file.seek(self._whole)
                file.write(orjson.dumps(plain) + b"\n")
                file.truncate()
                file.flush()
                os.fsync(file.fileno())
                self._whole = file.tell()
        self._records.append(plain)
        return plain

    def last(self, n: int = IN_PROMPT) -> list[dict[str, Any]]:
        """Return the newest `n` records, oldest first."""
        return self._records[-n:] if n > 0 else []

    def best(self, direction: Literal["min", "max"] | None = None) -> dict[str, Any] | None:
        """Return the record with the best finite ``value``, the first of equals.

        Parameters
        ----------
        direction : {"min", "max"}, optional
            By default the records' own.

        Raises
        ------
        It2nbError
            If neither says which way is better.
        """
        scored = [each for each in self._records if is_number(each.get("value"))]
        if not scored:
            return None
        direction = direction or scored[-1].get("direction")
        if direction not in ("min", "max"):
            raise It2nbError("which is better? Say best('min') or best('max'): no record tells")
        pick = min if direction == "min" else max
        return pick(scored, key=lambda each: float(each["value"]))

    def apart(self) -> Memory:
        """Copy the records into one that writes no file."""
        other = Memory()
        other._records = list(self._records)
        return other

    def _read(self, path: Path) -> None:
        data = path.read_bytes()
        lines = data.split(b"\n")
        for number, line in enumerate(lines, 1):
            is_last = number == len(lines)
            if is_last:
                return  # without its newline it is torn, or empty
            found: Any = None
            with suppress(ValueError):
                found = json.loads(line) if line.strip() else {}
            if not isinstance(found, dict):
                if number == len(lines) - 1 and lines[-1] == b"":
                    return  # the last line, torn inside
                raise It2nbError(
                    f"{str(path)!r}, line {number}: {line[:60]!r} is no record; move the file "
                    f"away, or take the line out"
                )
            self._whole += len(line) + 1
            if found:
                self._records.append(found)


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, slots=True)
class RoundContext:
    """What a planner, and the training of a round, know of the round.

    Attributes
    ----------
    round : int
        From 0, which is the baseline.
    max_rounds : int
        Rounds in all, the baseline among them.
    goal : Goal or None
    memory : Memory
        Records of earlier rounds.
    context : str
        What people told controllers about this run.
    seed : int
        The same for each round.
    knobs : sequence of KnobView
        As they were in the round before; empty for the first one.
    plan : Plan or None
        None for the baseline, and where nobody plans.
    """

    round: int
    max_rounds: int
    goal: Goal | None = None
    memory: Memory = field(default_factory=Memory)
    context: str = ""
    seed: int = 0
    knobs: Sequence[KnobView] = ()
    plan: Plan | None = None

    @property
    def is_baseline(self) -> bool:
        """Whether nothing is planned on purpose: the round that others are measured against."""
        return self.round == 0

    @property
    def settings(self) -> dict[str, Any]:
        """The planned values, by knob."""
        return {} if self.plan is None else dict(self.plan.settings)

    @property
    def best(self) -> dict[str, Any] | None:
        """The best earlier record; None while there is none."""
        if self.goal is None or self.goal.direction is None:
            return None
        return self.memory.best(self.goal.direction)

    def describe(self) -> dict[str, Any]:
        """Write it as plain JSON, for a prompt: with the last ten records and the best one."""
        return {
            "round": self.round,
            "max_rounds": self.max_rounds,
            "goal": None if self.goal is None else self.goal.describe(),
            "context": self.context,
            "seed": self.seed,
            "knobs": [each.model_dump(exclude={"v"}) for each in self.knobs],
            "plan": None if self.plan is None else self.plan.describe(),
            "best": self.best,
            "records": self.memory.last(IN_PROMPT),
        }
