"""Guards: conditions that are watched at every control point, and what to do when one is met."""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol

from it2nb.core.errors import It2nbError
from it2nb.core.rounds import is_number
from it2nb.core.wire import Action

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: What a guard asks for when it trips, by name.
REMEDIES = ("note", "pause", "stop", "lower_lr", "undo", "go_back")


@dataclass(frozen=True, slots=True)
class Trip:
    """A guard's condition was met: in words, and with the values that met it."""

    reason: str
    values: dict[str, Any] = field(default_factory=dict)


class Condition(Protocol):
    """What a guard watches. Called on the training thread, in constant time."""

    def check(self, session: Session) -> Trip | None:
        """Look at the run; return what was met, or None."""


def watched(condition: Condition) -> list[str]:
    """Return the metrics that a condition names: its `metric`, its `metrics`."""
    names = [getattr(condition, "metric", None), *(getattr(condition, "metrics", None) or ())]
    return [each for each in names if isinstance(each, str)]


def _fresh(session: Session, metric: str, seen: int) -> tuple[int, float] | None:
    """The newest value of a metric, unless it was seen at this step already."""
    newest = session.metrics.newest(metric)
    if newest is None or newest[0] == seen:
        return None
    return newest


@dataclass(slots=True)
class NonFinite:
    """A metric is NaN or infinite.

    Parameters
    ----------
    metrics : sequence of str
        All watched metrics by default.
    """

    metrics: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.metrics, str):
            self.metrics = (self.metrics,)

    def check(self, session: Session) -> Trip | None:
        """See `Condition`."""
        for name, (step, value) in self._newest(session):
            if step == session.step_count and not math.isfinite(value):
                return Trip(f"non-finite {name} at step {step}: {value!r}", {name: value})
        return None

    def _newest(self, session: Session) -> Iterable[tuple[str, tuple[int, float]]]:
        store = session.metrics
        if not self.metrics:
            return store.latest().items()
        found = ((name, store.newest(name)) for name in self.metrics)
        return [(name, newest) for name, newest in found if newest is not None]


@dataclass(slots=True)
class NonFiniteWeights:
    """A parameter of a bound model is NaN or infinite.

    Parameters
    ----------
    every : int, optimizer steps
        Looking costs a pass over the weights.
    """

    every: int = 50

    def __post_init__(self) -> None:
        _whole("every", self.every, 1)

    def check(self, session: Session) -> Trip | None:
        """See `Condition`."""
        if session.step_count % self.every:
            return None
        for model in session.bound.models:
            for name, parameter in model.named_parameters():
                if not bool(parameter.isfinite().all()):
                    return Trip(
                        f"non-finite weights in {name} at step {session.step_count}",
                        {"parameter": name},
                    )
        return None


@dataclass(slots=True)
class Spike:
    """A metric jumps far above its recent values.

    Parameters
    ----------
    metric : str
    factor : float
        Trips above median + `factor` times the median absolute deviation of the window.
    window : int, values
    """

    metric: str
    factor: float = 8.0
    window: int = 50
    _recent: deque[float] = field(init=False, repr=False)
    _seen: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        _above("factor", self.factor, 0)
        _whole("window", self.window, 5)
        self._recent = deque(maxlen=self.window)

    def check(self, session: Session) -> Trip | None:
        """See `Condition`."""
        newest = _fresh(session, self.metric, self._seen)
        if newest is None:
            return None
        self._seen, value = newest
        recent = self._recent
        trip = None
        if math.isfinite(value):
            if len(recent) >= max(5, self.window // 2):
                middle = statistics.median(recent)
                spread = statistics.median(abs(each - middle) for each in recent)
                bound = middle + self.factor * max(spread, 1e-3 * abs(middle), 1e-12)
                if value > bound:
                    trip = Trip(
                        f"spike: {self.metric} is {value:.4g} at step {self._seen}, "
                        f"its recent median {middle:.4g}",
                        {self.metric: value, "median": middle, "bound": bound},
                    )
            recent.append(value)
        return trip


@dataclass(slots=True)
class Plateau:
    """A metric has not got better for a while.

    Parameters
    ----------
    metric : str
    steps : int, optimizer steps
        Without an improvement.
    min_delta : float
        Relative improvement that counts, 0.01 is one per cent.
    direction : {"min", "max"}
    """

    metric: str
    steps: int = 300
    min_delta: float = 0.01
    direction: str = "min"
    _best: float | None = field(default=None, init=False, repr=False)
    _since: int = field(default=0, init=False, repr=False)
    _seen: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        _whole("steps", self.steps, 1)
        _above("min_delta", self.min_delta, 0, or_equal=True)
        if self.direction not in ("min", "max"):
            raise It2nbError(f"direction={self.direction!r} has to be 'min' or 'max'")

    def check(self, session: Session) -> Trip | None:
        """See `Condition`."""
        newest = _fresh(session, self.metric, self._seen)
        if newest is None:
            return None
        step, value = newest
        if step < self._seen:
            self._best = None  # the run went back: what came later does not count
        self._seen = step
        if not math.isfinite(value):
            return None
        if self._best is None or self._improved(value):
            self._best, self._since = value, step
            return None
        if step - self._since < self.steps:
            return None
        trip = Trip(
            f"plateau: {self.metric} has not improved by {self.min_delta:.2%} on "
            f"{self._best:.4g} since step {self._since}",
            {self.metric: value, "best": self._best, "since_step": self._since},
        )
        self._since = step
        return trip

    def _improved(self, value: float) -> bool:
        assert self._best is not None
        needed = abs(self._best) * self.min_delta
        if self.direction == "min":
            return value < self._best - needed
        return value > self._best + needed


@dataclass(slots=True)
class Divergence:
    """A smoothed metric stands far above the best that it has reached.

    Parameters
    ----------
    metric : str
    factor : float, > 1
    half_life : float, values
        Of the smoothing.
    """

    metric: str
    factor: float = 2.0
    half_life: float = 20.0
    _smooth: float | None = field(default=None, init=False, repr=False)
    _best: float = field(default=math.inf, init=False, repr=False)
    _count: int = field(default=0, init=False, repr=False)
    _seen: int = field(default=-1, init=False, repr=False)

    def __post_init__(self) -> None:
        _above("factor", self.factor, 1)
        _above("half_life", self.half_life, 0)

    def check(self, session: Session) -> Trip | None:
        """See `Condition`."""
        newest = _fresh(session, self.metric, self._seen)
        if newest is None:
            return None
        self._seen, value = newest
        if not math.isfinite(value):
            return None
        keep = 0.5 ** (1 / self.half_life)
        self._smooth = value if self._smooth is None else keep * self._smooth + (1 - keep) * value
        self._count += 1
        if self._count < self.half_life:
            return None
        self._best = min(self._best, self._smooth)
        bound = self._best + (self.factor - 1) * abs(self._best)
        if self._smooth <= bound or self._best == self._smooth:
            return None
        return Trip(
            f"divergence: {self.metric} is {self._smooth:.4g} smoothed at step {self._seen}, "
            f"its best {self._best:.4g}",
            {self.metric: value, "smoothed": self._smooth, "best": self._best},
        )


class Guard:
    """A condition and its remedy, watched at every control point.

    Parameters
    ----------
    condition : Condition
    do : {"note", "pause", "stop", "lower_lr", "undo", "go_back"} or callable
        What to ask for, with source ``guard``, at the same control point and so before the
        next update. ``"go_back"`` returns to the newest state without a NaN or infinity. A
        callable gets session and trip and returns an Action, several or None.
    cooldown : int, optimizer steps
        After a trip it looks away for that long.
    """

    def __init__(
        self,
        condition: Condition,
        do: str | Callable[[Session, Trip], Action | Sequence[Action] | None] = "note",
        *,
        cooldown: int = 100,
    ) -> None:
        if not callable(getattr(condition, "check", None)) or isinstance(condition, type):
            raise It2nbError(
                f"{condition!r:.80} is no condition: give one with check(session), such as "
                f"it2nb.NonFinite(['loss']); a rule in words is session.attach('loss > 5: pause')"
            )
        if not callable(do) and do not in REMEDIES:
            raise It2nbError(f"do={do!r} is none of {', '.join(REMEDIES)}, and no function")
        _whole("cooldown", cooldown, 0)
        self.condition = condition
        self.do = do
        self.cooldown = cooldown
        self.trips = 0
        self._quiet_until = -1

    def __call__(self, session: Session) -> None:
        """Look once; the session calls it at each control point."""
        step = session.step_count
        if step < self._quiet_until <= step + self.cooldown:
            return
        trip = self.condition.check(session)
        if trip is None:
            return
        self.trips += 1
        self._quiet_until = step + self.cooldown
        session.emit(
            "guard_tripped",
            {
                "guard": type(self.condition).__name__,
                "reason": trip.reason,
                "values": trip.values,
                "do": self.do if isinstance(self.do, str) else getattr(self.do, "__name__", "?"),
            },
            source="guard",
        )
        session.alert(trip.reason)
        for action in self._remedy(session, trip):
            handle = session.submit(action, source="guard")
            handle.when_done(lambda done: _tell_failure(session, done))

    def _remedy(self, session: Session, trip: Trip) -> Sequence[Action]:
        observed = {"step": session.step_count, "metrics": trip.values}
        if not isinstance(self.do, str):
            asked = self.do(session, trip)
            if asked is None:
                return []
            return [asked] if isinstance(asked, Action) else asked
        if self.do == "note":
            return []
        if self.do == "lower_lr":
            value = session.knobs["lr"].value / 2
            payload = {"name": "lr", "value": value}
            return [Action(type="set_knob", payload=payload, observed=observed, reason=trip.reason)]
        if self.do == "go_back":
            payload = {"good": True}
            return [Action(type="goto", payload=payload, observed=observed, reason=trip.reason)]
        return [Action(type=self.do, observed=observed, reason=trip.reason)]


def _tell_failure(session: Session, handle: ActionHandle) -> None:
    """A guard whose remedy did not come about must not look as if it had."""
    result = handle.result(0)
    if not result.ok:
        session.alert(f"guard: {result.type} was {result.status}: {result.reason}")


def _whole(name: str, value: object, low: int) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise It2nbError(f"{name}={value!r} has to be a whole number, at least {low}")


def _above(name: str, value: Any, low: float, *, or_equal: bool = False) -> None:
    fits = is_number(value) and (value > low or (or_equal and value == low))
    if not fits:
        more = "at least" if or_equal else "above"
        raise It2nbError(f"{name}={value!r} has to be a finite number {more} {low:g}")
