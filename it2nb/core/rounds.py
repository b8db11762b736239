"""Rounds: what is planned for a training, what came of it, and what is remembered."""

from __future__ import annotations

import importlib
import json
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NoReturn

import orjson

from it2nb.core.depth import MAX_DEPTH, too_deep
from it2nb.core.errors import It2nbError
from it2nb.core.goals import Goal
from it2nb.core.strict import strict
from it2nb.core.wire import Action, KnobView

#: Records that a prompt holds.
IN_PROMPT = 10
#: Requests that one plan may schedule.
MAX_SCHEDULED = 100
#: Knobs that one plan may set.
MAX_SETTINGS = 1_000


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
        if plan is None:
            return None
        if isinstance(plan, Plan):
            # Nobody has looked at what it was made with.
            plan = {each: getattr(plan, each) for each in cls.__slots__}
        if not isinstance(plan, Mapping):
            raise PlanError(
                f"a plan is a Plan or a mapping, not a {type(plan).__name__}: {plan!r:.80}"
            )
        if not plan.keys() & {"settings", "reason", "text", "schedule", "stop"}:
            plan = {"settings": plan}
        if too_deep(plan):
            raise PlanError(f"the plan is nested more than {MAX_DEPTH} deep")
        settings = plan.get("settings") or {}
        if not isinstance(settings, Mapping) or not all(isinstance(key, str) for key in settings):
            raise PlanError(f"settings={settings!r:.80} has to be a mapping of knobs to values")
        if len(settings) > MAX_SETTINGS:
            raise PlanError(f"{len(settings)} knobs are set; at most {MAX_SETTINGS}")
        reason = plan.get("reason", plan.get("text", ""))
        return cls(
            settings=dict(settings),
            reason=str(reason or "")[:4000],
            schedule=tuple(_scheduled(plan.get("schedule") or ())),
            stop=_truth("stop", plan.get("stop")),
        )

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "settings": strict(self.settings)[0],
            "reason": self.reason,
            "schedule": [each.describe() for each in self.schedule],
            "stop": self.stop,
        }


def _truth(name: str, value: Any) -> bool:
    """Read a truth value, also as text: bool("false") would be true, and end the rounds."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise PlanError(f"{name}={value!r:.60} has to be true or false")


def _scheduled(schedule: Any) -> Iterator[Scheduled]:
    if not isinstance(schedule, Sequence) or isinstance(schedule, (str, bytes)):
        raise PlanError(f"schedule={schedule!r:.80} has to be a list of requests with a step each")
    if len(schedule) > MAX_SCHEDULED:
        raise PlanError(f"{len(schedule)} requests are scheduled; at most {MAX_SCHEDULED}")
    for each in schedule:
        if isinstance(each, Scheduled):
            if type(each.step) is not int or each.step < 0 or not isinstance(each.action, Action):
                raise PlanError(f"{each!r:.80} needs a whole 'step' from 0, and an Action")
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
    """What earlier rounds came to: one JSON object a round, in a file or in memory. Any thread.

    Several may share a file, in other processes too: each record is added at its end, and read
    by the others when they are next asked.

    Parameters
    ----------
    path : str or Path, optional
        A JSONL file, read if it is there and appended to; a last line that was cut off is left
        out, and replaced by the next record. None keeps the records in memory.

    Raises
    ------
    It2nbError
        If it is a folder, or a line that ends is no JSON object.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else Path(path).absolute()
        self._records: list[dict[str, Any]] = []
        # Bytes and lines of the file that were read, and which file that was.
        self._whole = self._lines = 0
        self._file = 0
        self._lock = threading.RLock()
        self._read()

    def __len__(self) -> int:
        return len(self._read())

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.records)

    def __repr__(self) -> str:
        where = "in memory" if self.path is None else str(self.path)
        return f"<Memory of {len(self._records)} rounds, {where}>"

    @property
    def records(self) -> list[dict[str, Any]]:
        """All records, oldest first."""
        return list(self._read())

    def add(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Remember a record; it is on disk when this returns.

        Returns
        -------
        dict
            As it was written: plain JSON, non-finite numbers as null.
        """
        plain: dict[str, Any] = strict(dict(record))[0]
        with self._lock:
            if self.path is None:
                self._records.append(plain)
                return plain
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b") as file, _alone(file):
                tail = self._take(file)
                if tail:  # torn: nobody writes it any more, we hold the lock
                    file.truncate(self._whole)
                elif self._whole and (file.seek(self._whole - 1), file.read(1))[1] != b"\n":
                    file.write(b"\n")
                file.write(orjson.dumps(plain) + b"\n")
                file.flush()
                os.fsync(file.fileno())
                self._take(file)
        return plain

    def last(self, n: int = IN_PROMPT) -> list[dict[str, Any]]:
        """Return the newest `n` records, oldest first."""
        return self._read()[-n:] if n > 0 else []

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
        scored = [each for each in self.records if is_number(each.get("value"))]
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
        other._records = self.records
        return other

    def _read(self) -> list[dict[str, Any]]:
        """Read what came to the file meanwhile; returns all records."""
        with self._lock:
            if self.path is None or not self.path.exists():
                return self._records
            if self.path.is_dir():
                raise It2nbError(
                    f"memory={str(self.path)!r} is a folder; name a file in it, such as "
                    f"{str(self.path / 'rounds.jsonl')!r}"
                )
            found = self.path.stat()
            if (found.st_ino, found.st_size) != (self._file, self._whole):
                with self.path.open("rb") as file:
                    self._take(file)
            return self._records

    def _take(self, file: BinaryIO) -> bytes:
        """Read on in the open file; returns what is left at its end that is no record."""
        found = os.fstat(file.fileno())
        if found.st_ino != self._file or found.st_size < self._whole:
            # Another file, or one that was written anew.
            self._file, self._whole, self._lines, self._records = found.st_ino, 0, 0, []
        file.seek(self._whole)
        *lines, tail = file.read().split(b"\n")
        for line in lines:
            record = _record(line)
            if record is None:
                self._refuse(line)
            self._keep(line, record)
            self._whole, self._lines = self._whole + 1, self._lines + 1
        record = _record(tail)
        if record is not None:
            self._keep(tail, record)  # somebody wrote it by hand
            return b""
        if not self._records and not tail.startswith(b"{"):
            self._refuse(tail)  # no file of ours: nothing of it is cut off
        return tail

    def _keep(self, line: bytes, record: dict[str, Any] | None) -> None:
        self._whole += len(line)
        if record:
            self._records.append(record)

    def _refuse(self, line: bytes) -> NoReturn:
        raise It2nbError(
            f"{str(self.path)!r}, line {self._lines + 1}: {line[:60]!r} is no record; move the "
            f"file away, or take the line out"
        )


def _record(line: bytes) -> dict[str, Any] | None:
    """Read a line: {} for a blank one, None where it is no record."""
    if not line.strip():
        return {}
    found: Any = None
    with suppress(ValueError, RecursionError):
        found = json.loads(line)
    return found if isinstance(found, dict) else None


@contextmanager
def _alone(file: BinaryIO) -> Iterator[None]:
    """Hold the lock of a file, where the system has such locks."""
    locks: Any = None
    with suppress(ImportError):
        locks = importlib.import_module("fcntl")
    # A network drive may have none.
    with suppress(OSError):
        if locks is not None:
            locks.flock(file, locks.LOCK_EX)
    yield  # closing the file lets go of it


def is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # 10**400
        return False


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
