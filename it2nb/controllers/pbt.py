"""Population-based training (Jaderberg et al., 2017, arXiv:1711.09846) over several sessions.

The members train in turns on one thread, each with a session, a journal and random streams of
its own. Now and then the worst take over the state and the knobs of the best (exploit) and move
the knobs a little (explore). Both are requests like everybody's: ``load_checkpoint`` and
``set_knob``, with source ``plan`` and actor ``pbt``, in the journal of the member.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from it2nb.core.errors import It2nbError, require
from it2nb.core.goals import Goal
from it2nb.core.rounds import is_number
from it2nb.core.wire import Action, ActionResult

if TYPE_CHECKING:
    from it2nb.core.session import Session


class Trains(Protocol):
    """A workflow, as far as a population needs it; see `it2nb.workflows`."""

    steps: int
    evaluate_every: int

    @property
    def goal(self) -> Goal:
        """What is better."""

    def prepare(self, session: Session, seed: int) -> Any:
        """Make a training with ``update(step)`` and ``evaluate()``, joined with the session."""


@dataclass
class Member:
    """One session of a population."""

    number: int
    session: Session
    training: Any
    streams: Any = None
    score: float | None = None
    exploited: list[dict[str, Any]] = field(default_factory=list)


class Population:
    """Several sessions of one workflow; see the module's text. Training thread.

    Parameters
    ----------
    workflow : Workflow
    sessions : sequence of TrainingSession
        One a member, none of them begun; each member's knobs start from their values times a
        factor of their own, the first one's as they are.
    knobs : sequence of str
        What is explored: number knobs.
    seed : int
        Of weights, batches and exploration; the members start from the same weights.
    ready_every : int, optional
        Steps between two exchanges; five times in a run by default.
    factors : (float, float)
        By which exploring multiplies a knob.
    spread : float
        The members' starting values lie between value / spread and value * spread.
    share : float
        Of the population that is replaced at an exchange, and of those it is replaced by.
    """

    def __init__(
        self,
        workflow: Trains,
        sessions: Sequence[Session],
        *,
        knobs: Sequence[str] = ("lr",),
        seed: int = 0,
        ready_every: int | None = None,
        factors: tuple[float, float] = (0.8, 1.25),
        spread: float = 3.0,
        share: float = 0.25,
    ) -> None:
        if len(sessions) < 2:
            raise It2nbError(f"a population has at least 2 members, not {len(sessions)}")
        if workflow.goal.direction is None:
            raise It2nbError(workflow.goal.undecided())
        self.workflow = workflow
        self.goal = workflow.goal
        self.knobs = tuple(knobs)
        self.ready_every = ready_every or max(1, workflow.steps // 5)
        self.factors = factors
        self.spread = spread
        self.moved = max(1, int(len(sessions) * share))
        self.evaluations = 0
        self.members: list[Member] = []
        self._seed = seed
        self._random = random.Random(seed)
        self._sessions = list(sessions)

    @property
    def best(self) -> Member:
        """The member with the best last evaluation."""
        scored = [each for each in self.members if each.score is not None]
        if not scored:
            raise It2nbError("no member was evaluated yet")
        return min(scored, key=self._rank)

    def run(self) -> Member:
        """Train all members to the end; returns the best one."""
        require("torch", extra="torch", feature="population-based training")
        from it2nb.pytorch import rng

        before = rng.capture()
        try:
            with ExitStack() as stack:
                for number, session in enumerate(self._sessions):
                    training = self.workflow.prepare(session, self._seed)
                    stack.enter_context(session.run())
                    session.pump()  # from here on this is its training thread
                    member = Member(number, session, training, rng.capture())
                    self.members.append(member)
                    self._spread_out(member)
                done = 0
                while done < self.workflow.steps:
                    todo = min(self.ready_every, self.workflow.steps - done)
                    for member in self.members:
                        rng.restore(member.streams)
                        self._train(member, done, todo)
                        member.streams = rng.capture()
                    done += todo
                    if done < self.workflow.steps:
                        self._exchange()
        finally:
            rng.restore(before)
        return self.best

    def _train(self, member: Member, first: int, count: int) -> None:
        session, training = member.session, member.training
        for step in range(first, first + count):
            if session.stop_requested:
                return
            session.step(training.update(step))
        found = training.evaluate()
        session.report_eval(found)
        self.evaluations += 1
        value = found.get(self.goal.metric)
        member.score = float(value) if value is not None else None

    def _rank(self, member: Member) -> float:
        if member.score is None or not is_number(member.score):
            return float("inf")
        return member.score if self.goal.direction == "min" else -member.score

    # --- exploit and explore ---------------------------------------------------------------

    def _exchange(self) -> None:
        ranked = sorted(self.members, key=self._rank)
        best, worst = ranked[: self.moved], ranked[-self.moved :]
        saved: dict[int, str] = {}
        for loser in worst:
            winner = self._random.choice(best)
            if winner is loser or loser.session.stop_requested:
                continue
            if winner.number not in saved:
                told = _ask(winner, "save_checkpoint", {}, f"taken over at step {loser.score}")
                if not told.ok:
                    continue
                saved[winner.number] = told.data["path"]
            reason = (
                f"{self.goal.metric} {loser.score:.4g}: takes over member {winner.number} with "
                f"{winner.score:.4g}"
            )
            told = _ask(loser, "load_checkpoint", {"path": saved[winner.number]}, reason)
            loser.exploited.append(
                {"step": loser.session.step_count, "from": winner.number, "status": told.status}
            )
            if told.ok:
                loser.streams = winner.streams
                loser.score = winner.score
                self._explore(loser)

    def _explore(self, member: Member) -> None:
        for name in self.knobs:
            self._multiply(member, name, self._random.choice(self.factors), "explores")

    def _spread_out(self, member: Member) -> None:
        if member.number == 0:
            return
        for name in self.knobs:
            factor = self.spread ** self._random.uniform(-1.0, 1.0)
            self._multiply(member, name, factor, "starts apart from the others")

    def _multiply(self, member: Member, name: str, factor: float, why: str) -> None:
        knob = member.session.knobs[name]
        value: Any = knob.value * factor
        if knob.dtype == "int":
            value = round(value)
        if knob.max is not None:
            value = min(value, knob.max)
        if knob.min is not None:
            value = max(value, knob.min)
        _ask(member, "set_knob", {"name": name, "value": value}, f"{why}: × {factor:.3g}")

    def describe(self) -> list[Mapping[str, Any]]:
        """Say how the members stand, as JSON."""
        return [
            {
                "member": each.number, "run_id": each.session.run_id, "score": each.score,
                "exploited": each.exploited,
                "knobs": {name: each.session.knobs[name].value for name in self.knobs},
            }
            for each in self.members
        ]  # fmt: skip


def _ask(member: Member, type: str, payload: dict[str, Any], reason: str) -> ActionResult:
    """Ask on the training thread, between two steps, and have it done at once."""
    action = Action(type=type, payload=payload, actor="pbt", reason=reason)
    result: ActionResult = member.session.submit(action, source="plan", wait=True)
    return result
