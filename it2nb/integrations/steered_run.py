"""One training by a trainer under a session: who begins and ends it, what counts as an update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import torch

from it2nb.core.control import RunStatus, StepControl, StopTraining
from it2nb.core.errors import It2nbError, SessionEnded
from it2nb.core.faults import guard
from it2nb.core.guards import Guard, NonFinite
from it2nb.core.lifetime import is_inert, runs
from it2nb.pytorch.live import adopt
from it2nb.pytorch.optimizers import add_optimizer_knobs
from it2nb.pytorch.schedulers import unwrapped
from it2nb.pytorch.switchboard import switchboard
from it2nb.pytorch.used import Used

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Share of the run's time that snapshots may take which nobody asked for.
SNAPSHOT_SHARE = 0.005

#: The sessions under which a trainer trains just now.
_under_way: WeakSet[Any] = WeakSet()

NewSession = Callable[[], Any]
#: Makes a session with this title.
NamedSession = Callable[[str], Any]


def session_for(given: Session | NewSession | None, new: NewSession) -> Session:
    """Find the session of a training that begins: the one given, the one here, or a new one.

    Parameters
    ----------
    given : Session, callable or None
        A callable makes one for each training.
    new : callable
        Makes one where none is given and none lives on this thread.

    Raises
    ------
    SessionEnded
        If the given one is over: a run has one beginning and one end.
    """
    if given is None:
        return session_here() or new()
    session: Session = given() if callable(given) else given
    if is_inert(session):
        raise SessionEnded(
            f"run {session.run_id} belongs to the process that launched this one, and can't be "
            f"steered from here; make the TrainingSession inside of the launched function"
        )
    if session.is_ended:
        raise SessionEnded(
            f"run {session.run_id} is over ({session.status}), and a run has one end; give this "
            f"training a new session, or a function that makes one for each: "
            f"session=lambda: it2nb.TrainingSession()"
        )
    return session


def session_here() -> Session | None:
    """Return the live run whose training thread this is: a cell's, or a ``with session.run()``."""
    attachment = switchboard().attachments.get(get_ident())
    if attachment is not None and not attachment.session.is_ended:
        return attachment.session  # type: ignore[no-any-return]
    for session in reversed(runs()):
        is_open = session._running and not session.is_ended and session.owner is None
        if session.on_training_thread or (is_open and session.source_cell is None):
            return session
    return None


class SteeredRun:
    """A trainer's run. All methods on the training thread.

    Parameters
    ----------
    session : Session
    trainer : str
        What people call it: its class.
    goes_on : str
        What a restored state does not take back, in words; part of the result of going back.

    Notes
    -----
    The trainer's own hooks are the control points: the step hooks of a ``%%it2`` cell on this
    thread are set aside meanwhile, so that each update counts once, and where it is whole.
    """

    def __init__(self, session: Session, trainer: str, goes_on: str) -> None:
        if session in _under_way:
            raise It2nbError(
                f"a trainer trains under run {session.run_id} already, and each step would count "
                f"twice: give the one inside a session of its own (session=...), or begin it "
                f"after the other has ended"
            )
        self.session = session
        self.trainer = trainer
        self.used = Used()
        #: Whether the session ends with this training.
        self.owns = not session._running and session.source_cell is None
        self._goes_on = goes_on
        self._aside: Any = None
        self._has_begun = False
        self._base = 0
        self._honoured = session.honours_control
        self._tell_non_finite: Callable[[int], None] | None = None
        #: Metrics beside the loss that were told of.
        self._told_non_finite: set[str] = set()

    # --- the beginning -----------------------------------------------------------------------

    def prepare(self) -> None:
        """Set the session up, before anything of it is used."""
        session = self.session
        _under_way.add(session)
        board = switchboard()
        self._aside = board.attachments.pop(get_ident(), None)
        self._honoured = True if self._aside is not None else session.honours_control
        session.honours_control = True
        session.bound.goes_on = self._goes_on
        session.stepper = session.stepper or self.trainer
        if getattr(session, "_snapshots", None) is True:
            session._snapshots = {"max_share": SNAPSHOT_SHARE}  # type: ignore[attr-defined]
        adopt(session)
        watched = (getattr(turn.function, "condition", None) for turn in session.turns._turns)
        if not any(isinstance(each, NonFinite) for each in watched):
            # Each loss is looked at as it comes: only one that is not finite needs its turn.
            guarding = Guard(NonFinite(["loss"]))
            self._tell_non_finite = session.turns.add_on_call(guarding, "guard NonFinite")

    def bind(
        self,
        model: Any,
        optimizers: Iterable[Any],
        schedulers: Sequence[Any] = (),
        scaler: Any = None,
    ) -> list[Any]:
        """Tell the session what is trained; returns the optimizers inside their wrappers."""
        session = self.session
        inner = [unwrapped(each, "optimizer") for each in optimizers]
        inner = [each for each in inner if hasattr(each, "param_groups")]
        for at, optimizer in enumerate(inner):
            name = "optimizer" if at == 0 else f"optimizer_{at}"
            session.bound.names.setdefault(id(optimizer), name)
        unwrapped_schedulers = [unwrapped(each, "scheduler") for each in schedulers]
        with guard(f"binding what the {self.trainer} trains", session.report):
            session.bind(model, optimizers=inner, schedulers=unwrapped_schedulers, scaler=scaler)
        for optimizer in inner:
            with guard("knobs of an optimizer", session.report):
                add_optimizer_knobs(session, optimizer)
        self.used.watch(inner)
        return inner

    def begin(self, total_steps: int | None, at: int = 0) -> bool:
        """Stand at the first control point; returns whether to stop.

        Parameters
        ----------
        total_steps : int, optional
            Updates that the trainer means to make.
        at : int
            Updates made already: a resumed training.
        """
        session = self.session
        if self._has_begun:  # a trainer that begins anew, with a smaller batch for example
            return self._obey(lambda: session.pump(step=self._base))
        self._has_begun = True
        self._base = at if session.step_count == 0 else session.step_count
        if session.total_steps is None and total_steps:
            session.total_steps = self._base + max(0, total_steps - at)
        session.start()
        return self._obey(lambda: session.pump(step=self._base or None))

    # --- updates -----------------------------------------------------------------------------

    def updated(self, metrics: Mapping[str, Any], count: int = 1) -> bool:
        """One update is whole: a control point. Returns whether to stop."""
        session = self.session
        values = {name: _number(value) for name, value in metrics.items()}
        values.update(self.used.values())
        step = session.step_count + count
        loss = values.get("loss")
        if self._tell_non_finite and isinstance(loss, float) and not math.isfinite(loss):
            self._tell_non_finite(step)
        try:
            # No lambda, no guard and no call that is not needed: after an update the caches are
            # cold, and each of them takes microseconds.
            return session.step(values, step).stop
        except StopTraining:
            return True
        except BaseException:  # the boundary is the guard, made only where it is needed
            with guard("control point", session.report):
                raise
        return False

    def skipped(self, scale: float | None) -> bool:
        """A GradScaler left the update out. Returns whether to stop."""
        session = self.session
        row = {"what": "optimizer step", "optimizer": "optimizer", "reason": "found_inf"}
        session.emit("skipped", {**row, "scale": scale})
        return self._obey(session.pump)

    def measured(self) -> bool:
        """An evaluation of the trainer's own is over. Returns whether to stop.

        It may have taken minutes, and what was asked for meanwhile should not wait for one more
        update.
        """
        return self._obey(self.session.pump)

    def record(self, metrics: Mapping[str, Any]) -> None:
        """Record what was measured beside the updates."""
        session = self.session
        if not metrics or session.is_ended:
            return
        with guard("metrics", session.report):
            session.record(metrics)
            for name, value in metrics.items() if self._tell_non_finite else ():
                number = _number(value)
                odd = isinstance(number, float) and not math.isfinite(number)
                if odd and name not in self._told_non_finite:
                    self._told_non_finite.add(name)
                    session.warn(f"non-finite {name} at step {session.step_count}: {number!r}")

    @property
    def stop_requested(self) -> bool:
        """Whether no further update may happen."""
        return self.session.stop_requested

    def _obey(self, point: Callable[[], StepControl]) -> bool:
        try:
            with guard("control point", self.session.report):
                return point().stop
        except StopTraining:
            return True
        return False

    # --- the end -----------------------------------------------------------------------------

    def close(self, status: RunStatus | None = None, error: BaseException | None = None) -> None:
        """Take everything away again, and end the session where it is the training's own."""
        session = self.session
        _under_way.discard(session)
        self.used.close()
        session.honours_control = self._honoured
        if self._aside is not None and not session.is_ended:
            # The cell goes on: other optimizers of it are counted as before.
            session.honours_control = False
            switchboard().attach(get_ident(), self._aside)
            self._aside = None
        if not self.owns:
            return
        if error is None:
            session.finish(status)
        else:
            session.fail(error)


def _number(value: Any) -> Any:
    """Read a tensor of one number, so that it is recorded the fast way. The rest stays as it is."""
    if isinstance(value, torch.Tensor):
        try:
            return value.item()
        except RuntimeError:
            return value  # no single number: recording it says so
    return value


def most_norm(now: float) -> float:
    """Return the upper bound of a knob that clips gradients: far from any norm that clips.

    No farther than that, since the panel's slider ends there.
    """
    return max(1e3, 1e3 * now)
