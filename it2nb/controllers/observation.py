"""Observation: what a controller sees of a run, at a cost that does not grow with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from it2nb.core.faults import guard
from it2nb.core.knob_names import KnobValues
from it2nb.core.lineage import lineage
from it2nb.core.strict import strict
from it2nb.core.wire import ActionResult, ActionSchema, KnobView

if TYPE_CHECKING:
    from it2nb.core.goals import Goal
    from it2nb.core.session import Session

T = TypeVar("T")

#: Points of each metric's history, at most.
POINTS = 64
#: Metrics that `Observation.observed` tells of, at most: it is written with every request.
TOLD = 16
#: Earlier branches that a history may reach back into.
_ANCESTORS = 4


class LaterMap(Mapping[str, T], Generic[T]):
    """A mapping that is made when it is first looked at. Any thread."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Mapping[str, T]]) -> None:
        self._make = make
        self._made: Mapping[str, T] | None = None

    def _now(self) -> Mapping[str, T]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, name: str) -> T:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __repr__(self) -> str:
        return repr(dict(self._now()))


class LaterList(Sequence[T], Generic[T]):
    """A sequence that is made when it is first looked at. Any thread."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make
        self._made: Sequence[T] | None = None

    def _now(self) -> Sequence[T]:
        if self._made is None:
            self._made = self._make()
        return self._made

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...

    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        return self._now()[index]

    def __len__(self) -> int:
        return len(self._now())

    def __repr__(self) -> str:
        return repr(list(self._now()))


@dataclass(frozen=True, slots=True)
class Observation:
    """What a controller sees at one control point.

    Attributes
    ----------
    step, round, branch_id : int
        Updates completed, and where.
    total_steps : int or None
        Length of the run, where it is known.
    elapsed_s : float
        Seconds since the run began.
    status : str
    metrics : mapping of str to float
        The newest value of each metric, NaN and infinities as they are.
    metric_steps : mapping of str to int
        The step at which each of these was recorded.
    history : mapping of str to sequence of (int, float)
        Steps and values so far, in at most 64 points a metric, extremes kept.
    values : mapping of str to any
        The value of each knob at `step`.
    knobs : sequence of KnobView
        Knobs that the controller may know of; a locked one says so.
    actions : sequence of ActionSchema
        Actions that it may ask for.
    results : sequence of ActionResult
        What became of its last requests, oldest first, at most 20.
    goal : Goal or None
    context : str
        What people told controllers about this run.
    budget : mapping of str to float
        What its source may still use up, by kind; empty without a budget.
    moved : mapping or None
        When it is asked again because the run moved on while it thought: ``from_step``, and
        ``knobs`` with their values then and now.
    """

    step: int = 0
    round: int = 0
    branch_id: int = 0
    total_steps: int | None = None
    elapsed_s: float = 0.0
    status: str = "running"
    metrics: Mapping[str, float] = field(default_factory=dict)
    metric_steps: Mapping[str, int] = field(default_factory=dict)
    history: Mapping[str, Sequence[tuple[int, float]]] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    knobs: Sequence[KnobView] = ()
    actions: Sequence[ActionSchema] = ()
    results: Sequence[ActionResult] = ()
    goal: Goal | None = None
    context: str = ""
    budget: Mapping[str, float] = field(default_factory=dict)
    moved: Mapping[str, Any] | None = None

    def observed(self, knobs: Iterable[str] = ()) -> dict[str, Any]:
        """Say what was seen, as `Action.observed` holds it: few numbers, plain JSON.

        Parameters
        ----------
        knobs : iterable of str
            Knobs whose values are told too: those that the request is about.
        """
        seen: dict[str, Any] = {"step": self.step}
        if self.round:
            seen["round"] = self.round
        if self.branch_id:
            seen["branch_id"] = self.branch_id
        told = list(self.metrics.items())[:TOLD]
        seen["metrics"] = {name: _finite(value) for name, value in told}
        concerned = {name: self.values[name] for name in knobs if name in self.values}
        if concerned:
            seen["knobs"] = strict(concerned)[0]
        return seen

    def describe(self) -> dict[str, Any]:
        """Write all of it as plain JSON, for a prompt or a tool."""
        return {
            "step": self.step,
            "round": self.round,
            "branch_id": self.branch_id,
            "total_steps": self.total_steps,
            "elapsed_s": round(self.elapsed_s, 3),
            "status": self.status,
            "metrics": {name: _finite(value) for name, value in self.metrics.items()},
            "history": {
                name: [[step, _finite(value)] for step, value in points]
                for name, points in self.history.items()
            },
            "knobs": [each.model_dump(exclude={"v"}) for each in self.knobs],
            "actions": [each.model_dump(exclude={"v", "also", "offers"}) for each in self.actions],
            "results": [each.model_dump(exclude={"v"}, exclude_none=True) for each in self.results],
            "goal": None if self.goal is None else self.goal.describe(),
            "context": self.context,
            "budget": dict(self.budget),
            "moved": None if self.moved is None else strict(self.moved)[0],
        }


def observe(
    session: Session,
    source: str,
    results: Iterable[ActionResult] = (),
    *,
    keep: bool = True,
    moved: Mapping[str, Any] | None = None,
) -> Observation:
    """Look at a run. Training thread at a control point, or any thread for a second look.

    What is cheap is read at once; histories, schemas and the like when they are looked at,
    limited to what was there at this step.

    Parameters
    ----------
    session : Session
    source : str
        Whose: what it may not know of is left out.
    results : iterable of ActionResult
        Of its own requests.
    keep : bool
        Read the knobs now. False reads them when they are looked at, for controllers that
        answer before the loop goes on.
    moved : mapping, optional
    """
    step, round, branch_id = session.step_count, session.round, session.branch_id
    latest = session.metrics.latest(round)
    values: Mapping[str, Any] = (
        read_values(session) if keep else LaterMap(lambda: read_values(session))
    )
    place = (step, round, branch_id)
    names = list(latest)
    return Observation(
        step=step,
        round=round,
        branch_id=branch_id,
        total_steps=session.total_steps,
        elapsed_s=session.elapsed_s,
        status=session.status,
        metrics={name: value for name, (_, value) in latest.items()},
        metric_steps={name: at for name, (at, _) in latest.items()},
        history=LaterMap(lambda: histories(session, names, place)),
        values=values,
        knobs=LaterList(lambda: knobs_for(session, source, values)),
        actions=LaterList(lambda: actions_for(session, source)),
        results=list(results),
        goal=session.goal,
        context=session.context,
        budget=LaterMap(lambda: session.policy.left(source, session.elapsed_s)),
        moved=moved,
    )


def read_values(session: Session) -> KnobValues:
    """Read every knob; one that can't be read is left out. Any thread."""
    values = KnobValues(session.knobs.own_name)
    for name in session.knobs:
        with guard(f"get of {name}"):
            values[name] = session.knobs[name].value
    return values


def histories(
    session: Session, names: Sequence[str], place: tuple[int, int, int]
) -> dict[str, list[tuple[int, float]]]:
    """Return each metric's curve up to a place, reduced to `POINTS` points. Any thread."""
    step, round, branch_id = place
    line = [(branch, min(step, last)) for branch, last in lineage(session.branches, branch_id)][
        :_ANCESTORS
    ]
    return {name: _history(session, name, line, round) for name in names}


def _history(
    session: Session, name: str, line: Sequence[tuple[int, float]], round: int
) -> list[tuple[int, float]]:
    points: list[tuple[int, float]] = []
    for branch_id, last in line:
        room = POINTS - len(points)
        if room < 4:
            break
        view = session.metrics.view(name, hi=last, points=room, branch_id=branch_id, round=round)
        steps, values = view.steps.tolist()[-room:], view.values.tolist()[-room:]
        points = [(int(at), value) for at, value in zip(steps, values, strict=True)] + points
    return points


def knobs_for(session: Session, source: str, values: Mapping[str, Any]) -> list[KnobView]:
    """Describe the knobs that a source may know of, with the values that it saw. Any thread."""
    views = session.policy.shown(session.knobs.views(), source)
    return [
        view.model_copy(update={"value": values[view.name]}) if view.name in values else view
        for view in views
        if session.policy.is_open(source, view.name)
    ]


def actions_for(session: Session, source: str) -> list[ActionSchema]:
    """Describe the actions that a source may ask for. Any thread."""
    return [
        spec.schema()
        for name, spec in session.actions.items()
        if session.policy.is_open(source, name)
    ]


def _finite(value: float) -> float | str:
    """Write a number so that JSON can hold it: ``"nan"``, ``"inf"``, ``"-inf"``."""
    return value if math.isfinite(value) else str(value)
