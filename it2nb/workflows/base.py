"""Workflow: a training with a name, a goal, three sizes, and a loop that honours every request."""

from __future__ import annotations

import operator
import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from it2nb.core.control import StepControl
from it2nb.core.errors import It2nbError, SessionEnded, near, require
from it2nb.core.faults import guard
from it2nb.core.goals import Goal
from it2nb.core.session import Session
from it2nb.workflows.requirements import Requirements

if TYPE_CHECKING:
    from it2nb.workflows.training import Training

#: ``ci`` runs in seconds, ``laptop`` shows a real effect in minutes on two CPU cores, ``paper``
#: takes the hub's models and data and the budgets of the paper.
Scale = Literal["ci", "laptop", "paper"]


def scale_of_environment(default: Scale = "laptop") -> Scale:
    """Return the scale that ``IT2NB_SCALE`` asks for.

    A number is one too, as in the quickstart: less than 1 is ``ci``.

    Raises
    ------
    It2nbError
        If it is neither.
    """
    asked = os.environ.get("IT2NB_SCALE", default)
    try:
        return "ci" if float(asked) < 1 else default
    except ValueError:
        return _known(asked)


class Workflow(ABC):
    """A training that is made to be steered.

    Parameters
    ----------
    scale : {"ci", "laptop", "paper"}
    steps : int, optional
        Optimizer updates, in the place of the scale's own.
    evaluate_every : int, optional
        Updates between two evaluations, in the place of the scale's own.

    Raises
    ------
    It2nbError
        If there is no such scale, or a count is no whole number of at least 1.

    Attributes
    ----------
    name, title : str
    goal : Goal
        The metric that `evaluate` measures.
    sizes : dict of scale to (steps, evaluate_every)

    Notes
    -----
    The same seed and the same requests at the same steps give the same run, to the bit.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    goal: ClassVar[Goal]
    sizes: ClassVar[Mapping[Scale, tuple[int, int]]]

    def __init__(
        self,
        scale: Scale = "laptop",
        *,
        steps: int | None = None,
        evaluate_every: int | None = None,
    ) -> None:
        self.scale = _known(scale)
        own_steps, own_every = self.sizes[self.scale]
        self.steps = own_steps if steps is None else _count("steps", steps)
        self.evaluate_every = (
            own_every if evaluate_every is None else _count("evaluate_every", evaluate_every)
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.scale} scale: {self.steps} steps>"

    @abstractmethod
    def requirements(self) -> Requirements:
        """Tell what it needs at its scale."""

    @abstractmethod
    def train(self, session: Session, ctx: Any = None) -> None:
        """Train once from fresh weights inside of a run: what `run_rounds` calls.

        Parameters
        ----------
        session : Session
            Its run has begun, or begins with the first control point.
        ctx : RoundContext, optional
            Its `seed` goes before the session's.
        """

    def check(self) -> None:
        """Check what it needs; see `Requirements.check`."""
        self.requirements().check(f"workflow {self.name!r} at scale {self.scale!r}")

    def run(self, session: Session, *, seed: int = 0, ctx: Any = None) -> Any:
        """Do one whole run with a session that has not begun. Training thread.

        Parameters
        ----------
        session : Session
        seed : int
            Of weights and batches; the session's own goes first, then the context's.
        ctx : RoundContext, optional
            Of `run_rounds`.

        Returns
        -------
        str
            How the run ended.

        Raises
        ------
        SessionEnded
            If the session's run is over.
        WorkflowUnavailable, MissingDependency
            See `check`.
        """
        self._begin(session)
        seed = self._seed(session, ctx, seed)
        session.seed = seed
        with session.run():
            self.train(session, ctx)
        return session.status

    def _begin(self, session: Session) -> None:
        if session.is_ended:
            raise SessionEnded(
                f"the run of this session, {session.run_id}, is over ({session.status}): each run "
                f"takes a session of its own, it2nb.TrainingSession(flow.goal)"
            )
        self.check()

    def _seed(self, session: Session, ctx: Any, seed: int) -> int:
        of_round = getattr(ctx, "seed", None)
        if of_round is not None:
            return int(of_round)
        return seed if session.seed is None else session.seed


class LoopWorkflow(Workflow):
    """A workflow whose loop is ours: it makes updates and honours every request itself."""

    @abstractmethod
    def fresh(self, seed: int) -> Training:
        """Make weights, optimizers and data anew. Training thread.

        Two calls with the same seed give the same training to the bit.
        """

    def prepare(self, session: Session, seed: int) -> Training:
        """Make a fresh training and join it with the session.

        Checks first what it needs, before anything is loaded; see `check`.
        """
        self.check()
        torch = require("torch", extra="torch", feature=f"workflow {self.name!r}")
        torch.manual_seed(seed)
        training = self.fresh(seed)
        session.total_steps = session.total_steps or self.steps
        if session.goal is None:
            session.goal = self.goal
        training.join(session)
        _present[session] = training
        return training

    def run(self, session: Session, *, seed: int = 0, ctx: Any = None) -> Any:
        """Do one whole run with a session that has not begun; see `Workflow.run`."""
        self._begin(session)
        session.seed = self._seed(session, ctx, seed)
        training = self.prepare(session, session.seed)
        with session.run():
            self.loop(session, training)
        return session.status

    def train(self, session: Session, ctx: Any = None) -> None:
        """Train once from fresh weights inside of a run; see `Workflow.train`."""
        self.loop(session, self.prepare(session, self._seed(session, ctx, 0)))

    def loop(self, session: Session, training: Training) -> None:
        """Update, let requests in, evaluate on schedule and at the end, until done or stopped."""
        first = session.step_count

        def update(step: int) -> Mapping[str, Any]:
            return training.update(step - first)

        session.bound.step_fn = update
        while session.step_count - first < self.steps:
            control = session.step(update(session.step_count))
            if control.stop:
                break
            self.honour(control, session, training)
            done = session.step_count - first
            due = done % self.evaluate_every == 0 or done == self.steps
            if due and done > 0 and not control.evaluate:
                session.report_eval(training.evaluate())

    def honour(self, control: StepControl, session: Session, training: Training) -> None:
        """Do what a control point left to the loop.

        A session that knows model and optimizers saves, loads and resets by itself; then there
        is nothing of it left to do.
        """
        from it2nb.workflows import files

        # What goes wrong here is told, its request fails, and the training goes on.
        with guard("loading a checkpoint", session.report):
            if control.load is not None:
                files.load(Path(control.load), training)
                session.checkpoint_loaded(control.load)
        for name in control.reset:
            with guard(f"resetting {name}", session.report):
                files.reset(name, training)
                session.module_reset(name)
        with guard("evaluating", session.report):
            if control.evaluate:
                session.report_eval(training.evaluate())
        with guard("saving a checkpoint", session.report):
            if control.save:
                path = files.save(session, training, control.tag)
                session.checkpoint_saved(path, tag=control.tag)


def training_of(session: Session) -> Training | None:
    """Return the training that a workflow joined with a session last. Any thread."""
    return _present.get(session)


_SCALES: tuple[Scale, ...] = get_args(Scale)

#: The last training of each session.
_present: weakref.WeakKeyDictionary[Session, Training] = weakref.WeakKeyDictionary()


def _known(scale: str) -> Scale:
    for each in _SCALES:
        if scale == each:
            return each
    raise It2nbError(f"scale={scale!r} is none of ours{near(str(scale), _SCALES)}")


def _count(name: str, value: int) -> int:
    with suppress(TypeError):  # numpy's whole numbers are some, too
        if not isinstance(value, bool) and operator.index(value) >= 1:
            return operator.index(value)
    raise It2nbError(f"{name}={value!r} has to be a whole number of at least 1")
