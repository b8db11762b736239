"""ScriptedAgent: what an agent does, without a model and without a network."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from it2nb.controllers.decisions import Decisions
from it2nb.core.errors import It2nbError, KnobError
from it2nb.core.faults import guard
from it2nb.core.knob_names import KnobViews
from it2nb.core.rounds import Plan, is_number
from it2nb.core.wire import Action, ActionResult, KnobView

if TYPE_CHECKING:
    from it2nb.controllers.attached import Attached
    from it2nb.controllers.observation import Observation
    from it2nb.core.goals import Goal
    from it2nb.core.rounds import RoundContext
    from it2nb.core.session import Session

#: Two learning rates that are closer than that are the same one.
_SAME = 1.05
#: How often the search halves its factor (on a log scale) before it has nothing left to try.
_FINER = 3


class ScriptedAgent:
    """An agent whose answers follow from the goal's curve alone: for demos, tests, baselines.

    It has the interface, the permissions and the rows of `LLMAgent`, asks nobody and costs
    nothing; the same observations give the same requests.

    In a run it looks at the goal every so many steps, and

    - cuts the knob to a third when the goal got much worse than it was, or is no number;
    - halves it on a plateau: when the last `patience` steps improved the goal's best value by
      less than `tolerance`, at most `max_drops` times a round.

    Between rounds it searches the knob on a log scale: first three times the baseline's value,
    then on from the best value so far in the direction that helped, with a finer factor once
    both neighbours were tried.

    Parameters
    ----------
    knob : str
    every : int, optimizer steps, >= 1
        Between two looks.
    patience : int, optimizer steps, optional
        Of a plateau, and at least between two cuts; by default a quarter of the run where its
        length is known, else 200.
    tolerance : float, share of the best value, >= 0
    factor : float, > 1
        First step of the search between rounds.
    max_drops : int, >= 0
        Cuts in one round.
    name : str
        The `actor` of its requests.

    Raises
    ------
    It2nbError
        If one of these is outside of its range.
    """

    source: Literal["agent"] = "agent"
    needs_goal = True

    def __init__(
        self,
        knob: str = "lr",
        *,
        every: int = 50,
        patience: int | None = None,
        tolerance: float = 0.01,
        factor: float = 3.0,
        max_drops: int = 3,
        name: str = "scripted",
    ) -> None:
        if every < 1 or (patience is not None and patience < 1):
            raise It2nbError(f"every={every!r} and patience={patience!r} have to be at least 1")
        if not (tolerance >= 0 and factor > 1 and max_drops >= 0):
            raise It2nbError(
                f"tolerance={tolerance!r} has to be 0 or more, factor={factor!r} above 1, "
                f"max_drops={max_drops!r} 0 or more"
            )
        self.name = name
        self.every = every
        self.knob = knob
        self.patience = patience
        self.tolerance = tolerance
        self.factor = factor
        self.max_drops = max_drops
        self._decisions = Decisions()
        self._lock = threading.Lock()
        self._answers: list[str] = []
        self._calls = 0
        self._plan: dict[str, Any] | None = None
        self._session: Session | None = None
        #: The knob's value at the beginning of the baseline, and in rounds whose plan for it was
        #: not carried out as it stood.
        self._first: float | None = None
        self._begun: dict[int, float] = {}
        self._round = -1
        self._drops: list[int] = []

    # ----------------------------------------------------------------------------- controller

    def on_attach(self, attached: Attached) -> None:
        """Note the knob's first value: schedulers move it until the baseline is over."""
        session = self._session = attached.session

        def look(session: Session) -> None:
            if self._first is None:
                with guard(f"first value of {self.knob}"):
                    self._first = _positive(session.knobs[self.knob].value)
            remove()

        remove = session.every(1, look, name=f"{self.name} looks once")
        with suppress(KnobError):  # where the training itself registers it, later
            self._first = _positive(session.knobs[self.knob].value)
        attached.show()

    def ask(self, observation: Observation) -> list[Action]:
        """Look at the goal's curve, and return what follows from it."""
        seen = observation
        if seen.round != self._round:
            self._round, self._drops = seen.round, []
        # A run that went back knows nothing of what came after.
        self._drops = [step for step in self._drops if step <= seen.step]
        factor, said = self._judge(seen)
        actions: list[Action] = []
        knob = KnobViews(seen.knobs).get(self.knob)
        if factor is not None:
            value = None if knob is None else _scaled(knob, factor)
            if value is None:
                said += f"; {self.knob} can't go lower"
            else:
                self._drops.append(seen.step)
                payload = {"name": self.knob, "value": value}
                actions = [Action(type="set_knob", payload=payload, reason=said)]
        self._say(said)
        self._decisions.add(seen.step, said, [(each, None) for each in actions], seen.round)
        return actions

    def tell(self, result: ActionResult) -> None:
        """Note what became of a request."""
        self._decisions.tell(result)

    def plan(self, ctx: RoundContext) -> Plan:
        """Plan a round: the next value of the search."""
        settings, reason = self._next(ctx)
        self._say(reason)
        self._plan = {"round": ctx.round, "settings": settings, "text": reason}
        return Plan(settings=settings, reason=reason)

    def reflect(self, ctx: RoundContext, record: Mapping[str, Any]) -> str:
        """Say what a round came to."""
        self._note_start(ctx.round)
        value, metric = record.get("value"), record.get("metric")
        if metric is None:
            said = "the run has no goal"
        elif not is_number(value):
            said = f"{metric} was not recorded, or is no number"
        else:
            rate = self._begun.get(ctx.round)
            what = "" if rate is None else f"{self.knob} {rate:.4g}: "
            said = f"{what}{metric} {value:.4g}"
            improved = record.get("improved")
            if improved is not None:
                said += ", the best so far" if improved else ", no better than before"
        self._say(said)
        return said

    def knob_names(self) -> list[str]:
        """Name the knob that it sets."""
        return [self.knob]

    def call_row(self) -> dict[str, Any]:
        """What was said since the last row; for ``agent_call``."""
        with self._lock:
            answers, self._answers = self._answers, []
        if not answers:
            return {}
        exchanges = [{"answer": each, "tokens": 0, "cost": 0.0} for each in answers]
        return {"model": "scripted", "tokens": 0, "cost": 0.0, "exchanges": exchanges}

    def describe(self) -> dict[str, Any]:
        """What it did, as JSON; the same fields as an `LLMAgent`."""
        return {
            "kind": "scripted", "model": "scripted", "calls": self._calls, "tokens": 0,
            "max_tokens": None, "cost": None, "max_cost": None, "plan": self._plan,
            "decisions": self._decisions.listed(ids=True),
        }  # fmt: skip

    def __repr__(self) -> str:
        return f"<ScriptedAgent {self.name!r} on {self.knob}>"

    # --------------------------------------------------------------------------------- acting

    def _judge(self, seen: Observation) -> tuple[float | None, str]:
        """By which factor the knob is to change, and why; None leaves it."""
        goal = seen.goal
        if goal is None or goal.direction is None:
            return None, "no goal with a known direction: nothing to steer by"
        points = list(seen.history.get(goal.metric, ()))
        if not points:
            return None, f"no {goal.metric} yet"
        patience = self.patience or _quarter(seen.total_steps)
        if len(self._drops) >= self.max_drops:
            return None, f"cut {self.max_drops} times already in this round"
        if self._drops and seen.step - self._drops[-1] < patience:
            return None, f"cut at step {self._drops[-1]:,}: waits to see what comes of it"
        if seen.total_steps is not None and seen.step >= 0.95 * seen.total_steps:
            return None, "the run is nearly over"
        step, value = points[-1]
        finite = [(at, each) for at, each in points if math.isfinite(each)]
        if not math.isfinite(value):
            return 1 / 3, f"{goal.metric} is {value} at step {step:,}"
        values = [each for _, each in finite]
        best, first = goal.best(values), values[0]
        assert best is not None
        spread = max(values) - min(values)
        if len(values) >= 4 and spread > 0:
            lost = abs(value - best) / spread
            if lost > 0.5 and not goal.better(value, first):
                return 1 / 3, f"{goal.metric} was {best:.4g} and is {value:.4g}"
        return self._plateau(goal, finite, patience)

    def _plateau(
        self, goal: Goal, points: Sequence[tuple[int, float]], patience: int
    ) -> tuple[float | None, str]:
        last, value = points[-1]
        before = [each for at, each in points if at <= last - patience]
        since = [each for at, each in points if at > last - patience]
        old, new = goal.best(before), goal.best(since)
        if old is None or new is None:
            return None, f"{goal.metric} {value:.4g}: too early to tell"
        gain = (old - new) if goal.direction == "min" else (new - old)
        if gain > self.tolerance * abs(old):
            return None, f"{goal.metric} still improves: {old:.4g} to {new:.4g}"
        return 0.5, f"no better {goal.metric} than {old:.4g} in {patience:,} steps"

    # ------------------------------------------------------------------------------- planning

    def _next(self, ctx: RoundContext) -> tuple[dict[str, Any], str]:
        goal = ctx.goal
        tried = self._tried(ctx)
        if goal is None or goal.direction is None or not tried:
            return {}, "nothing to compare with: the same again"
        best, value = tried[0]
        for rate, reached in tried[1:]:
            if goal.better(reached, value):
                best, value = rate, reached
        knob = KnobViews(ctx.knobs).get(self.knob)
        factor = self.factor
        for _ in range(_FINER + 1):
            for by in (factor, 1 / factor):
                wanted = _bounded(best * by, knob)
                if all(not _same(wanted, rate) for rate, _ in tried):
                    way = "up" if by > 1 else "down"
                    return {self._own: wanted}, (
                        f"{self.knob} {best:.4g} reached {goal.metric} {value:.4g}, "
                        f"the best so far: {way} by {max(by, 1 / by):.3g}"
                    )
            factor = math.sqrt(factor)
        return {self._own: best}, f"{self.knob} {best:.4g} is best: nothing near it is left to try"

    def _tried(self, ctx: RoundContext) -> list[tuple[float, float]]:
        """The knob's first value and the goal's last one, of each round, oldest first."""
        tried = []
        for record in ctx.memory.records:
            value: Any = record.get("value")
            planned = (record.get("plan") or {}).get("settings") or {}
            rate: Any = self._value_in(planned)
            if self._session is not None and record.get("run_id") == self._session.run_id:
                rate = self._begun.get(record.get("round", -1), rate)
            if rate is None and not record.get("round"):
                rate = self._first
            if rate is None:
                rate = self._value_in(record.get("settings") or {})
            if is_number(value) and is_number(rate) and rate > 0:
                tried.append((float(rate), float(value)))
        return tried

    @property
    def _own(self) -> str:
        """The knob's own name: `knob` may be an alias."""
        return self.knob if self._session is None else self._session.knobs.own_name(self.knob)

    def _value_in(self, settings: Mapping[str, Any]) -> Any:
        return settings.get(self._own, settings.get(self.knob))

    def _note_start(self, round: int) -> None:
        """Find with which value a round began: what was planned may have been refused."""
        if self._session is None:
            return
        for event in self._session.journal.tail(1_000, types=["action_result"]):
            told = event.payload
            if (event.round, told.get("source"), told.get("name")) == (round, "plan", self._own):
                rate = _positive(told.get("after")) or self._first
                if rate is not None:
                    self._begun[round] = rate

    def _say(self, text: str) -> None:
        with self._lock:
            self._calls += 1
            self._answers.append(text)


def _quarter(total_steps: int | None) -> int:
    return 200 if total_steps is None else max(1, total_steps // 4)


def _scaled(knob: KnobView, factor: float) -> float | None:
    """The knob's value times a factor, inside its bounds; None when that changes nothing."""
    value = knob.value
    if not is_number(value) or value <= 0:
        return None
    wanted = _bounded(value * factor, knob)
    return None if _same(wanted, value) else wanted


def _bounded(value: float, knob: KnobView | None) -> float:
    if knob is not None and knob.min is not None:
        value = max(value, float(knob.min))
    if knob is not None and knob.max is not None:
        value = min(value, float(knob.max))
    return float(f"{value:.4g}")


def _same(one: float, other: float) -> bool:
    return other > 0 and one > 0 and max(one / other, other / one) < _SAME


def _positive(value: Any) -> float | None:
    return float(value) if is_number(value) and value > 0 else None
