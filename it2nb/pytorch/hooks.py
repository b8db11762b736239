"""optimizer.step as a control point, by PyTorch's own global step hooks.

No method of the user's optimizer is replaced: schedulers made before or after, closures and
return values are untouched, and nothing warns (CASES C36, C37, C39).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any

from it2nb.core.control import StepControl, StopTraining
from it2nb.core.errors import SessionEnded
from it2nb.core.faults import guard
from it2nb.pytorch import layered, modules, scaler
from it2nb.pytorch.groups import is_capturing
from it2nb.pytorch.live import adopt
from it2nb.pytorch.optimizers import add_optimizer_knobs, steering_of
from it2nb.pytorch.schedulers import unwrapped
from it2nb.pytorch.steered import SteeredOptimizer
from it2nb.pytorch.switchboard import switchboard

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Steps of other optimizers after which requests are served at these too: the counting one rests.
SERVED_AFTER = 20
#: ... and after which another one counts.
REPLACED_AFTER = 200

#: Requests that have to wait until no step is under way.
NEEDS_WHOLE_STEPS = frozenset({"save_checkpoint", "load_checkpoint", "undo", "goto", "fork"})

MetricsFn = Callable[[], Mapping[str, Any] | None]


class Attachment:
    """Makes the optimizer steps of one thread control points of one session.

    Made by `attach`. All methods but `detach` run on the training thread.

    Attributes
    ----------
    ticks : int
        Steps that began.
    """

    def __init__(
        self,
        session: Session,
        metrics_fn: MetricsFn | None,
        on_new_optimizer: Callable[[Any], Any] | None,
        steps_of: str | None,
        only: bool,
    ) -> None:
        self.session = session
        self.metrics_fn = metrics_fn
        self.on_new_optimizer = on_new_optimizer
        self.steps_of = steps_of
        self.only = only
        self.ticks = 0
        self._pid = os.getpid()
        self._met: dict[int, weakref.ref[Any]] = {}
        self._stepper: Callable[[], Any] = lambda: None
        self._others = 0
        #: Branch and number of the step that was counted last.
        self._counted: tuple[int, int] | None = None
        self._has_begun = False
        self._honoured = session.honours_control
        session.honours_control = False

    def detach(self) -> None:
        """Take everything away again. Any thread, idempotent."""
        self.session.honours_control = self._honoured
        switchboard().detach(self)

    close = detach

    # --- a step ----------------------------------------------------------------------------

    def before(self, optimizer: Any) -> None:
        """A step begins: none after a stop; the first one lets earlier requests in.

        Raises
        ------
        StopTraining
        """
        session = self.session
        if self._pid != os.getpid():
            return
        if session.must_leave:
            raise StopTraining
        self.ticks += 1
        self._greet(optimizer)
        if not self._has_begun:
            self._has_begun = True
            # The gradients of this step are made: no state is saved or put back before its end.
            session.gate.only = frozenset(session.actions) - NEEDS_WHOLE_STEPS
            try:
                session.pump()
            finally:
                session.gate.only = None

    def overtaken(self, optimizer: Any) -> None:
        """A step is over whose beginning nobody told us of: the first of a compiled function."""
        self._has_begun = True
        self._greet(optimizer)

    def _greet(self, optimizer: Any) -> None:
        if not self._knows(optimizer) and not is_capturing():
            self._meet(optimizer)

    def after(self, optimizer: Any) -> None:
        """A step is over.

        Raises
        ------
        StopTraining
            When the run was stopped at this control point.
        """
        if self._pid != os.getpid() or not self._counts_at_all(optimizer):
            return
        if is_capturing():
            steered = self._steered(optimizer)
            if steered is not None:
                steered.captured()
            return
        if scaler.was_skipped(optimizer):
            self.skipped(optimizer, None)
        elif self._is_stepper(optimizer):
            self._others = 0
            self._step()
        else:
            self._other(optimizer)

    def skipped(self, optimizer: Any, scale: float | None) -> None:
        """A GradScaler left a step out: it is no update, and requests are served all the same."""
        if self._pid != os.getpid():
            return
        steered = self._steered(optimizer)
        self.session.emit(
            "skipped",
            {
                "what": "optimizer step",
                "optimizer": type(optimizer).__name__ if steered is None else steered.name,
                "reason": "found_inf",
                "scale": scale,
            },
        )
        self._obey(self.session.pump())

    def _step(self) -> None:
        values: Mapping[str, Any] | None = None
        if self.metrics_fn is not None:
            with guard("metrics of a step", self.session.report):
                values = self.metrics_fn()
        session = self.session
        if (
            self._counted is not None
            and (session.branch_id, session.step_count - 1) == self._counted
        ):
            session.warn(
                "each update is counted twice: at the optimizer's step (autopatch, %%it2) and by "
                "session.step(...) in the loop; leave one of them out, the numbers for autopatch "
                "come from its metrics_fn"
            )
        control = session.step(values)
        self._counted = session.branch_id, session.step_count
        self._obey(control)

    def _obey(self, control: StepControl) -> None:
        if control.stop:
            raise StopTraining

    def _other(self, optimizer: Any) -> None:
        """One of the optimizers that don't count made a step."""
        self._others += 1
        if self._others < SERVED_AFTER:
            return
        if self._others >= REPLACED_AFTER and self.steps_of is None:
            self._choose(optimizer)
            self._others = 0
        elif self._others == REPLACED_AFTER:
            self.session.warn(
                f"no step of the optimizer {self.steps_of!r} was seen among {REPLACED_AFTER} of "
                f"others: nothing is counted; --steps-of names another one"
            )
        self._obey(self.session.pump())

    # --- which optimizer -------------------------------------------------------------------

    def _knows(self, optimizer: Any) -> bool:
        met = self._met.get(id(optimizer))
        return met is not None and met() is optimizer

    def _counts_at_all(self, optimizer: Any) -> bool:
        return self._knows(optimizer) and self._steered(optimizer) is not None

    def _steered(self, optimizer: Any) -> SteeredOptimizer | None:
        found = switchboard().steered.get(id(optimizer))
        if found is None or found.optimizer() is not optimizer or found.session is not self.session:
            return None
        return found  # type: ignore[no-any-return]

    def _meet(self, optimizer: Any) -> None:
        """An optimizer steps for the first time: knobs for it, unless it is a copy of one."""
        self._met[id(optimizer)] = weakref.ref(optimizer)
        if self._steered(optimizer) is not None:
            if self.on_new_optimizer is not None:
                with guard("what belongs to an optimizer", self.session.report):
                    self.on_new_optimizer(optimizer)
            self._tell_stepper()
            return
        if self.only or layered.is_inside_another() or (_is_copy(optimizer) and self._has_others()):
            return
        if self.on_new_optimizer is not None:
            with guard("a new optimizer", self.session.report):
                self.on_new_optimizer(optimizer)
        with guard("knobs of a new optimizer", self.session.report):
            add_optimizer_knobs(self.session, optimizer)
        self._tell_stepper()

    def _has_others(self) -> bool:
        return any(each.optimizer() is not None for each in steering_of(self.session).optimizers)

    def _is_stepper(self, optimizer: Any) -> bool:
        """Whether the steps of this one count. The first that steps does, or ``--steps-of``."""
        stepper = self._stepper()
        if stepper is not None and self._steered(stepper) is None:
            stepper = None  # another one took its place
        if stepper is None:
            steered = self._steered(optimizer)
            wanted = self.steps_of
            if wanted is not None and steered is not None and wanted != steered.name:
                return False
            self._choose(optimizer)
            return True
        return stepper is optimizer

    def _choose(self, optimizer: Any) -> None:
        self._stepper = weakref.ref(optimizer)
        self._tell_stepper()

    def _tell_stepper(self) -> None:
        stepper = self._stepper()
        steered = None if stepper is None else self._steered(stepper)
        if steered is None:
            return
        count = sum(
            1
            for ref in self._met.values()
            if (each := ref()) is not None and self._steered(each) is not None
        )
        named = steered.name if steered.name == steered.kind.lower() else (
            f"{steered.name} ({steered.kind})"
        )  # fmt: skip
        self.session.stepper = named if count < 2 else f"{named}, one of {count} optimizers"


def attach(
    session: Session,
    *,
    metrics_fn: MetricsFn | None = None,
    on_new_optimizer: Callable[[Any], Any] | None = None,
    steps_of: str | None = None,
    only: bool = False,
    thread: int | None = None,
) -> Attachment:
    """Make the optimizer steps of the calling thread control points of `session`.

    Attaching twice is attaching once: the given functions take the place of the earlier ones.

    Parameters
    ----------
    session : Session
    metrics_fn : callable, optional
        Called after each counted step; what it returns is recorded.
    on_new_optimizer : callable, optional
        Called with an optimizer at the beginning of its first step, one that is known too: its
        scheduler may be newer. It may give it a name with `add_optimizer_knobs`; without, it is
        called by its class.
    steps_of : str, optional
        The name of the optimizer whose steps count; else the first that steps.
    only : bool
        Optimizers without knobs are left alone instead of getting some.
    thread : int, optional
        Another thread than the calling one, by its ident.

    Returns
    -------
    Attachment
        With ``detach()``; the end of the session detaches too.

    Raises
    ------
    SessionEnded
    """
    if session.is_ended:
        raise SessionEnded(f"{session.run_id} has ended: no step can be a control point of it")
    board = switchboard()
    ident = get_ident() if thread is None else thread
    known = board.attachments.get(ident)
    if known is not None and known.session is session:
        known.metrics_fn = metrics_fn or known.metrics_fn
        known.on_new_optimizer = on_new_optimizer or known.on_new_optimizer
        known.steps_of = steps_of or known.steps_of
        known.only = known.only and only
        return known  # type: ignore[no-any-return]
    if known is not None and not known.session.is_ended:
        known.session.warn(
            f"the optimizer steps of this thread count for run {session.run_id} from now on, and "
            f"no longer for {known.session.run_id}: a thread has one run at a time; give each "
            f"run a thread of its own, or end one before the next begins"
        )
    attachment = Attachment(session, metrics_fn, on_new_optimizer, steps_of, only)
    for optimizer in session.bound.optimizers:
        with guard("knobs of a bound optimizer", session.report):
            add_optimizer_knobs(session, optimizer)
    if "freeze" not in session.actions:
        modules.install(session)
    adopt(session)
    board.attach(ident, attachment)
    session.on_end(attachment.detach)
    return attachment


def _is_copy(optimizer: Any) -> bool:
    """Whether an optimizer was deep-copied or unpickled: its constructor never ran."""
    optimizer = unwrapped(optimizer, "optimizer")
    return "_warned_capturable_if_run_uncaptured" not in vars(optimizer)
