"""Conditions of rules: what is watched, in constant time at every step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from it2nb.controllers.base import ControllerError
from it2nb.controllers.observation import Observation
from it2nb.core.goals import Direction, known_direction


class Watch(Protocol):
    """A condition under way: it remembers what it has seen."""

    def look(self, seen: Observation) -> str | None:
        """Look once; returns in words why the condition is met, or None.

        Called at every control point, in the order of the steps.
        """


class Condition(Protocol):
    """A condition as it is written down; `begin` makes what watches it."""

    @property
    def is_moment(self) -> bool:
        """Whether it is met at single moments, and not for as long as something holds."""

    def begin(self, step: int) -> Watch:
        """Watch from now on: `step` updates are completed."""

    @property
    def text(self) -> str:
        """The condition in the words of the grammar."""


def say(number: float) -> str:
    """Write a number so that the grammar reads the same one."""
    text = repr(float(number) + 0.0)  # no -0.0
    return text.removesuffix(".0") if "e" not in text else text


def check_steps(steps: int, what: str, least: int = 1) -> int:
    """Check a number of steps.

    Raises
    ------
    ControllerError
    """
    if type(steps) is not int or steps < least:
        raise ControllerError(
            f"{what}={steps!r:.60} has to be a whole number of steps from {least}"
        )
    return steps


@dataclass(frozen=True, slots=True)
class At:
    """The control point after `step` updates, or the first one behind it."""

    step: int
    is_moment = True

    def __post_init__(self) -> None:
        check_steps(self.step, "at", 0)

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Passing(step, lambda last, now: last < self.step <= now)

    @property
    def text(self) -> str:
        """See `Condition`."""
        return f"at {self.step}"


@dataclass(frozen=True, slots=True)
class Every:
    """Each time that `steps` more updates are completed, counted from 0."""

    steps: int
    is_moment = True

    def __post_init__(self) -> None:
        check_steps(self.steps, "every")

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Passing(max(step, 0), lambda last, now: last // self.steps < now // self.steps)

    @property
    def text(self) -> str:
        """See `Condition`."""
        return f"every {self.steps}"


@dataclass(slots=True)
class _Passing:
    last: int
    passed: Callable[[int, int], bool]

    def look(self, seen: Observation) -> str | None:
        last, self.last = self.last, seen.step
        return f"step {seen.step}" if self.passed(last, seen.step) else None


@dataclass(frozen=True, slots=True)
class NoImprovement:
    """A metric has not got better for a while.

    Parameters
    ----------
    metric : str
    by : float
        What counts as an improvement: a share of the best value (0.01 is one per cent), or an
        amount with ``is_share=False``.
    steps : int, optimizer steps
    direction : {"min", "max"}, optional
        Known from names such as ``val_loss`` and ``accuracy``.

    Raises
    ------
    ControllerError
        If the direction is neither known nor given.
    """

    metric: str
    by: float = 0.0
    steps: int = 300
    direction: Direction | None = None
    is_share: bool = True
    is_moment = True

    def __post_init__(self) -> None:
        check_steps(self.steps, "steps")
        if not (math.isfinite(self.by) and self.by >= 0):
            raise ControllerError(f"by={self.by!r} has to be a finite number from 0")
        if self.by == 0:
            object.__setattr__(self, "is_share", True)
        if self.direction is None:
            object.__setattr__(self, "direction", known_direction(self.metric))
        if self.direction not in ("min", "max"):
            raise ControllerError(
                f"is a smaller or a larger {self.metric!r} better? It can't be told from the name; "
                f"say direction='min' or 'max', in a text 'no decrease of' or 'no increase of'"
            )

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Stalling(self)

    @property
    def text(self) -> str:
        """See `Condition`."""
        known = known_direction(self.metric) == self.direction
        what = "improvement" if known else "decrease" if self.direction == "min" else "increase"
        by = f"{say(self.by * 100)} %" if self.is_share else say(self.by)
        amount = f" by {by}" if self.by else ""
        return f"no {what} of {quoted(self.metric)}{amount} in {self.steps} steps"


@dataclass(slots=True)
class _Stalling:
    of: NoImprovement
    best: float | None = None
    best_at: int = 0
    since: int = 0
    seen: int = -1

    def look(self, seen: Observation) -> str | None:
        of = self.of
        at = seen.metric_steps.get(of.metric)
        if at is None or at == self.seen:
            return None
        if at < self.seen:
            self.best = None  # the run went back: what came later does not count
        self.seen = at
        value = seen.metrics[of.metric]
        if math.isfinite(value) and (self.best is None or self._improves(value)):
            self.best, self.best_at, self.since = value, at, at
            return None
        if self.best is None or at - self.since < of.steps:
            return None
        said = (
            f"{of.metric} {value:.5g} at step {at}: no better than the best, {self.best:.5g} at "
            f"step {self.best_at}, for {at - self.since} steps"
        )
        self.since = at
        return said

    def _improves(self, value: float) -> bool:
        assert self.best is not None
        needed = abs(self.best) * self.of.by if self.of.is_share else self.of.by
        if self.of.direction == "min":
            return value < self.best - needed or (not needed and value < self.best)
        return value > self.best + needed or (not needed and value > self.best)


#: Comparisons by their sign; NaN is on neither side.
OPS: dict[str, Callable[[float, float], bool]] = {
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
}


@dataclass(frozen=True, slots=True)
class Compare:
    """A metric stands above or below a bound, for a number of steps on end.

    Parameters
    ----------
    metric : str
    op : {">", ">=", "<", "<="}
    bound : float
    steps : int, optimizer steps
        From the first to the last of its values in a row, both counted.
    """

    metric: str
    op: str
    bound: float
    steps: int = 1
    is_moment = False

    def __post_init__(self) -> None:
        check_steps(self.steps, "steps")
        if self.op not in OPS:
            raise ControllerError(f"op={self.op!r} has to be one of {', '.join(OPS)}")
        if isinstance(self.bound, bool) or not math.isfinite(self.bound):
            raise ControllerError(f"bound={self.bound!r} has to be a finite number")

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Comparing(self)

    @property
    def text(self) -> str:
        """See `Condition`."""
        held = f" for {self.steps} steps" if self.steps > 1 else ""
        return f"{quoted(self.metric)} {self.op} {say(self.bound)}{held}"


@dataclass(slots=True)
class _Comparing:
    of: Compare
    since: int | None = None
    seen: int = -1

    def look(self, seen: Observation) -> str | None:
        of = self.of
        at = seen.metric_steps.get(of.metric)
        if at is None:
            return None
        value = seen.metrics[of.metric]
        if at < self.seen or not OPS[of.op](value, of.bound):
            self.since = None
        self.seen = at
        if not OPS[of.op](value, of.bound):
            return None
        if self.since is None:
            self.since = at
        if at - self.since + 1 < of.steps:
            return None
        held = f" since step {self.since}" if of.steps > 1 else ""
        return f"{of.metric} {value:.5g} {of.op} {of.bound:g}{held}"


@dataclass(frozen=True, slots=True)
class Crosses:
    """A metric passes a bound, from one of its values to the next."""

    metric: str
    above: bool
    bound: float
    is_moment = True

    def __post_init__(self) -> None:
        if isinstance(self.bound, bool) or not math.isfinite(self.bound):
            raise ControllerError(f"bound={self.bound!r} has to be a finite number")

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Crossing(self)

    @property
    def text(self) -> str:
        """See `Condition`."""
        side = "above" if self.above else "below"
        return f"{quoted(self.metric)} crosses {side} {say(self.bound)}"


@dataclass(slots=True)
class _Crossing:
    of: Crosses
    was: float | None = None
    seen: int = -1

    def look(self, seen: Observation) -> str | None:
        of = self.of
        at = seen.metric_steps.get(of.metric)
        if at is None or at == self.seen:
            return None
        if at < self.seen:
            self.was = None
        self.seen = at
        value = seen.metrics[of.metric]
        if not math.isfinite(value):
            return None
        was, self.was = self.was, value
        if was is None:
            return None
        passed = was <= of.bound < value if of.above else was >= of.bound > value
        return f"{of.metric} went from {was:.5g} to {value:.5g}" if passed else None


@dataclass(frozen=True, slots=True)
class NotFinite:
    """A metric is NaN or infinite; any of them when none is named."""

    metric: str | None = None
    is_moment = False

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Finite(self.metric)

    @property
    def text(self) -> str:
        """See `Condition`."""
        return "nan" if self.metric is None else f"{quoted(self.metric)} is nan"


@dataclass(slots=True)
class _Finite:
    metric: str | None

    def look(self, seen: Observation) -> str | None:
        names = seen.metrics if self.metric is None else (self.metric,)
        for name in names:
            value = seen.metrics.get(name, 0.0)
            if not math.isfinite(value):
                return f"{name} is {value!r} at step {seen.metric_steps[name]}"
        return None


@dataclass(frozen=True, slots=True)
class Check:
    """A function of an observation: met when it returns something true."""

    function: Callable[[Observation], Any]
    is_moment = False

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Checking(self.function)

    @property
    def text(self) -> str:
        """See `Condition`; a function is no part of the grammar."""
        return getattr(self.function, "__name__", type(self.function).__name__)


@dataclass(slots=True)
class _Checking:
    function: Callable[[Observation], Any]

    def look(self, seen: Observation) -> str | None:
        said = self.function(seen)
        return (said if isinstance(said, str) else "its function said so") if said else None


@dataclass(frozen=True, slots=True)
class All:
    """Several conditions at once. A moment counts only where the others hold at it."""

    conditions: tuple[Condition, ...]
    is_moment: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        moment = any(each.is_moment for each in self.conditions)
        object.__setattr__(self, "is_moment", moment)

    def begin(self, step: int) -> Watch:
        """See `Condition`."""
        return _Together([each.begin(step) for each in self.conditions])

    @property
    def text(self) -> str:
        """See `Condition`."""
        return " and ".join(each.text for each in self.conditions)


@dataclass(slots=True)
class _Together:
    watches: Sequence[Watch]

    def look(self, seen: Observation) -> str | None:
        # Each has to look every time: they remember.
        said = [each.look(seen) for each in self.watches]
        met = [each for each in said if each is not None]
        return " and ".join(met) if len(met) == len(said) else None


def metrics_of(condition: Condition) -> list[str]:
    """Return the metrics that a condition names."""
    if isinstance(condition, All):
        return [name for each in condition.conditions for name in metrics_of(each)]
    name = getattr(condition, "metric", None)
    return [name] if isinstance(name, str) else []


def quoted(name: str) -> str:
    """Write a name so that the grammar reads it as one."""
    from it2nb.controllers.rule_words import is_name

    return name if is_name(name) else '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
