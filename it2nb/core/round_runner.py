"""Running rounds: the same training again and again, from fresh weights, each as planned."""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from it2nb.core.actions import ActionSpec
from it2nb.core.builtin import NoArgs
from it2nb.core.control import StopTraining
from it2nb.core.declared import Declared
from it2nb.core.errors import It2nbError, It2nbWarning, Rejected, SessionEnded, near
from it2nb.core.faults import guard
from it2nb.core.goal_value import Score, value_of
from it2nb.core.planning import ask_plan
from it2nb.core.rounds import Memory, Plan, RoundContext, is_number
from it2nb.core.strict import strict
from it2nb.core.wire import EFFECTIVE, Action, KnobView, new_id

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: Rounds when nobody says.
ROUNDS = 5
#: Requests of a round that its record holds.
_ACTIONS = 50

#: One training: makes fresh weights, declares its knobs, trains. What it returns is dropped.
Train = Callable[[Any, RoundContext], Any]
OnError = Literal["raise", "next"]


class Rounds:
    """The rounds of one session. Training thread, except for the properties.

    Attributes
    ----------
    context : RoundContext or None
        Of the round under way.
    records : list of dict
        Of the rounds that are over.
    is_leaving : bool
        Whether the round was asked to end.
    """

    def __init__(
        self,
        session: Session,
        train: Train,
        *,
        count: int,
        memory: Memory,
        seed: int,
        score: Score,
        on_error: OnError,
        between: Callable[[], object],
    ) -> None:
        self.session = session
        self.context: RoundContext | None = None
        self.records: list[dict[str, Any]] = []
        self.is_leaving = False
        self._train = train
        self._count = count
        self._memory = memory
        self._seed = seed
        self._score: Score = score
        self._on_error = on_error
        self._between = between
        self._settings: dict[str, Any] = {}
        self._planner: Any = None
        self._knobs: list[KnobView] = []
        #: Controllers of which it was told that they could not plan.
        self._failed: set[str] = set()

    @property
    def is_baseline(self) -> bool:
        """Whether the round under way is the baseline. Any thread."""
        return self.context is not None and self.context.is_baseline

    def run(self) -> list[dict[str, Any]]:
        """Do all rounds; returns their records."""
        session = self.session
        session.rounds = self
        session.max_rounds = self._count
        if "end_round" not in session.actions:
            session.actions.register(
                ActionSpec("end_round", end_round, "End this round; the next one begins", NoArgs)
            )
        session.start()
        declared = Declared(session)
        try:
            for number in range(self._count):
                if number:
                    self._knobs = session.policy.shown(session.knobs.views(), "plan")
                context = self._planned(number)
                if session.stop_requested or (context.plan is not None and context.plan.stop):
                    break
                if number:
                    self._between()
                    declared.put_back()
                self._one(context)
                if self._is_reached() or session.stop_requested:
                    break
        finally:
            session.rounds = None
        return self.records

    # --- planning ----------------------------------------------------------------------------

    def _planned(self, number: int) -> RoundContext:
        session = self.session
        context = RoundContext(
            round=number, max_rounds=self._count, goal=session.goal, memory=self._memory,
            context=session.context, seed=self._seed, knobs=self._knobs,
        )  # fmt: skip
        if session.replaying is not None:
            return replace(context, plan=self._recorded(number))
        if number == 0:
            return context
        return replace(context, plan=self.plan(context))

    def _recorded(self, number: int) -> Plan | None:
        """In a replay a round is planned as it was; there are no more than there were."""
        assert self.session.replaying is not None
        rows = self.session.replaying.recording.rounds
        row = next((each for each in rows if each.round == number), None)
        return Plan(stop=True) if row is None else Plan.parse(row.payload.get("plan"))

    def plan(self, context: RoundContext) -> Plan | None:
        """Ask the controllers for a plan: the first one that has any."""
        controllers = self.session.controllers
        before = {each: each.errors for each in controllers}
        plan, self._planner = ask_plan(self.session, context)
        for each in controllers:
            failed = plan is None and each.errors > before.get(each, 0)
            if failed and each.name not in self._failed:
                self._failed.add(each.name)
                with guard(f"warning of {each.name}", self.session.report):
                    self._warn(
                        f"{each.name} has no plan for round {context.round}, which is trained as "
                        f"the baseline was: {each.error}"
                    )
        return plan

    # --- one round ---------------------------------------------------------------------------

    def _one(self, context: RoundContext) -> None:
        session = self.session
        self.is_leaving = False
        self.context = context
        self._settings = {}
        session.open_round(context.round)
        seed_all(context.seed)
        plan = context.plan
        session.emit(
            "round_started",
            {
                "round": context.round, "max_rounds": context.max_rounds, "seed": context.seed,
                "goal": None if context.goal is None else context.goal.describe(),
                "plan": None if plan is None else plan.describe(),
                "planner": None if self._planner is None else self._planner.name,
            },
        )  # fmt: skip
        if plan is not None:
            self.apply(plan)
        began = session.t
        error = self._trained(context)
        if session.is_ended:
            raise SessionEnded(
                f"the training of round {context.round} ended the session: it must not call "
                f"session.end(); run_rounds does it after the last round"
            )
        self._finish(context, session.t - began, error)

    def _trained(self, context: RoundContext) -> str | None:
        """Train; returns what it raised, where that may not end the run."""
        session = self.session
        try:
            if self._on_error == "raise":
                self._train(session, context)
                return None
            with guard(f"training of round {context.round}", session.report) as fault:
                self._train(session, context)
            return fault.error or None
        except StopTraining:
            if not session.must_leave:
                raise
            return None

    def _finish(self, context: RoundContext, took_s: float, error: str | None) -> None:
        session = self.session
        record = self._record(context, took_s, error)
        told = {k: v for k, v in record.items() if k not in ("actions", "plan", "ts")}
        session.emit("round_finished", told)
        if session.replaying is None and not session.stop_requested:
            for controller in session.controllers:
                if controller.reflects:
                    said = controller.reflect(context, record)
                    if said is not None:
                        record["reflection"] = strict(said)[0]
        with guard("memory of rounds", session.report):
            self._memory.add(record)
        self.records.append(record)

    def _record(self, context: RoundContext, took_s: float, error: str | None) -> dict[str, Any]:
        session, goal = self.session, context.goal
        value = best = None
        if goal is not None:
            if value_of(goal, session, context.round, session.branch_id) is None:
                self._evaluate(goal.metric)
            value = value_of(goal, session, context.round, session.branch_id, self._score)
            best = value_of(goal, session, context.round, session.branch_id, "best")
        status = "failed" if error else "stopped" if session.must_leave else "finished"
        return {
            "run_id": session.run_id,
            "round": context.round,
            "plan": None if context.plan is None else context.plan.describe(),
            "metric": None if goal is None else goal.metric,
            "direction": None if goal is None else goal.direction,
            "value": value if is_number(value) else None,
            "nonfinite": None if value is None or is_number(value) else str(value),
            "best": best if is_number(best) else None,
            "improved": self._is_better(value),
            "settings": self._values(),
            "actions": self._actions(context.round),
            "status": status,
            "error": error,
            "steps": session.step_count,
            "took_s": round(took_s, 3),
            "seed": context.seed,
            "ts": session.clock.time(),
            "reflection": None,
        }

    def _evaluate(self, metric: str) -> None:
        """The training did not record the goal: an evaluator may."""
        session = self.session
        if session.evaluator is not None and not session.stop_requested:
            with guard("evaluation at the end of a round", session.report):
                session.evaluate_now()
        if metric not in session.metrics.latest(session.round):
            session.warn(
                f"the goal {metric!r} was not recorded in round {session.round}: report it with "
                f"session.report_eval({{{metric!r}: ...}}), or give the session an evaluator"
                f"{near(metric, session.metrics.latest(session.round))}"
            )

    def _is_better(self, value: float | None) -> bool | None:
        """Whether a round is the best so far; None for the first, or without a goal."""
        goal = self.session.goal
        if goal is None or value is None or not self.records:
            return None
        earlier = [each["value"] for each in self.records if each["value"] is not None]
        best = goal.best(earlier)
        return is_number(value) and (best is None or goal.better(value, best))

    def _is_reached(self) -> bool:
        """Whether the goal's target was reached, so that no further round is needed."""
        goal = self.session.goal
        value = self.records[-1]["value"]
        if goal is None or goal.target is None or value is None:
            return False
        return value == goal.target or goal.better(value, goal.target)

    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, knob in self.session.knobs.items():
            with guard(f"get of {name}"):
                values[name] = strict(knob.value)[0]
        return values

    def _actions(self, round: int) -> list[dict[str, Any]]:
        """The requests that changed this round, without the plan's own settings."""
        rows = self.session.journal.tail(20 * _ACTIONS, ("action_result",))
        return [
            {"step": each.step, "source": each.source}
            | {k: each.payload.get(k) for k in ("type", "name", "requested", "after", "reason")}
            for each in rows
            if each.round == round and each.payload.get("status") in EFFECTIVE
        ][-_ACTIONS:]

    # --- what was planned --------------------------------------------------------------------

    def apply(self, plan: Plan) -> None:
        """Ask for what a plan sets: now where the knob is there, else as soon as it comes."""
        self._settings = dict(plan.settings)
        self.knobs_came()
        if plan.schedule and self.session.replaying is None:
            self.session.every(1, _Schedule(self, plan), name="schedule of the plan")

    def knobs_came(self) -> None:
        """Knobs were registered: set those that are planned, if the round has not begun."""
        session = self.session
        if not session.on_training_thread or session.step_count or not session.gate.is_fresh:
            return
        if session.replaying is not None:
            session.replaying.serve_plan(session.knobs)
            return
        for each in [each for each in self._settings if each in session.knobs]:
            self._set(each)

    def first_point(self) -> None:
        """The first control point of the round: what was not asked for yet is now."""
        if self.session.replaying is not None:
            self.session.replaying.serve_plan()
            return
        if self.is_baseline:
            self._check_knobs()
        for each in list(self._settings):
            self._set(each)

    def _check_knobs(self) -> None:
        """All knobs are there: tell of those that a controller names and that are none."""
        session = self.session
        for controller in session.controllers:
            with guard(f"knobs of {controller.name}", session.report):
                for name in controller.knob_names():
                    if name not in session.knobs:
                        self._warn(
                            f"{controller.name} is to set {name!r:.80}, and no knob has that "
                            f"name{near(name, session.knobs)}"
                        )

    def _warn(self, text: str) -> None:
        """Tell the panel and, since rounds are called by a script, whoever called them."""
        self.session.warn(text)
        warnings.warn(f"run {self.session.run_id}: {text}", It2nbWarning, stacklevel=2)

    def _set(self, name: str) -> None:
        value = self._settings.pop(name)
        self.session.gate.serve_first(
            self.ask(Action(type="set_knob", payload={"name": name, "value": value}))
        )

    def ask(self, action: Action) -> ActionHandle:
        """Enter a request of the plan: the rules for its planner hold for it too."""
        planner, plan = self._planner, None if self.context is None else self.context.plan
        behalf = None if planner is None or planner.source == "plan" else planner.source
        told: dict[str, Any] = {"actor": "plan" if planner is None else planner.name}
        if plan is not None and plan.reason and action.reason is None:
            told["reason"] = plan.reason
        return self.session.door.enter(action, "plan", behalf=behalf, **told)


class _Schedule:
    """Asks for the scheduled requests of a plan at their steps."""

    def __init__(self, rounds: Rounds, plan: Plan) -> None:
        self._rounds = rounds
        self._schedule = sorted(plan.schedule, key=lambda each: each.step)
        self._last = -1

    def __call__(self, session: Session) -> None:
        now = session.step_count
        # After going back what was later comes again.
        last, self._last = min(self._last, now), now
        for each in self._schedule:
            if last < each.step <= now:
                self._rounds.ask(each.action.model_copy(update={"id": new_id()}))


def run_rounds(
    session: Session,
    train: Train,
    rounds: int | None = None,
    *,
    memory: Memory | None = None,
    seed: int | None = None,
    score: Score = "last",
    on_error: OnError = "raise",
    between: Callable[[], object] = lambda: None,
) -> list[dict[str, Any]]:
    """Train several times from fresh weights; see `TrainingSession.run_rounds`."""
    count = rounds if rounds is not None else (session.max_rounds or ROUNDS)
    if not callable(train):
        raise It2nbError(
            f"run_rounds({train!r:.60}): give the function that trains once, train(session, ctx)"
        )
    if type(count) is not int or count < 1:
        raise It2nbError(f"rounds={count!r:.60} has to be a whole number, at least 1")
    if score not in ("last", "best") or on_error not in ("raise", "next"):
        raise It2nbError(
            f"score={score!r} has to be 'last' or 'best', and on_error={on_error!r} 'raise' or "
            f"'next'"
        )
    if session.rounds is not None or session.step_count or session.is_ended:
        state = "is over" if session.is_ended else "has begun"
        raise SessionEnded(
            f"run {session.run_id} {state}: rounds begin with their session; make a new "
            f"TrainingSession"
        )
    if session.goal is not None and session.goal.direction is None:
        raise It2nbError(session.goal.undecided())
    _check_goal(session)
    kept = memory if memory is not None else session.memory
    if session.replaying is not None:
        # What is done again must not be remembered twice.
        kept = kept.apart()
    made = Rounds(
        session, train, count=count, memory=kept, score=score, on_error=on_error, between=between,
        seed=seed if seed is not None else session.seed or 0,
    )  # fmt: skip
    if session.started:  # whoever started it ends it
        return made.run()
    with session.run():
        made.run()
    return made.records


def _check_goal(session: Session) -> None:
    if session.goal is not None or session.replaying is not None:
        return
    for each in session.controllers:
        if each.plans and getattr(each.controller.target, "needs_goal", False):
            raise It2nbError(
                f"{each.name} plans rounds by the goal, and this session has none: "
                f"TrainingSession('val_loss', ...), or goal=Goal('val_loss', 'min')"
            )


def end_round(payload: dict[str, Any], session: Session) -> dict[str, Any]:
    """End the round under way: no optimizer step of it happens after this one's result."""
    if session.rounds is None:
        raise Rejected("no rounds are under way: stop ends the run")
    session.rounds.is_leaving = True
    session.call_attention()
    return {"round": session.round, "step": session.step_count}


def seed_all(seed: int) -> None:
    """Seed the global streams of Python, NumPy and, where it is loaded, PyTorch.

    Nothing else is touched: no determinism flag, no environment variable.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)
