"""Trials: the same steps with and without the last change, taken back afterwards."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from it2nb.core.actions import Deferred, Owed
from it2nb.core.errors import Rejected
from it2nb.core.faults import guard
from it2nb.core.queue import ActionHandle
from it2nb.core.relative import absolute
from it2nb.core.serving import KnobChange, settle
from it2nb.pytorch.change import INERT, Change
from it2nb.pytorch.knob_state import KnobValues, read_knobs, write_knobs
from it2nb.pytorch.past import Past
from it2nb.pytorch.plain import Reducer, tensors
from it2nb.pytorch.state import Live, capture, restore

if TYPE_CHECKING:
    from it2nb.core.session import Session

NEEDS_REPLAY = (
    "a fork runs the same batches twice, and a plain for loop can't: iterate over "
    "session.loop(loader), or give a function that does one update: session.fork(k, step_fn=fn)"
)
#: What is served while a trial trains in the user's loop; the rest waits for its end.
_SERVED = frozenset({"stop", "pause", "resume", "note"})


@dataclass(eq=False)
class Moment:
    """A state to return to."""

    step: int
    branch_id: int
    tree: Mapping[str, Any]
    knobs: KnobValues


@dataclass(eq=False)
class Trial:
    """One fork under way.

    Attributes
    ----------
    handle : ActionHandle
        Whose result it owes.
    steps : int
        On each arm.
    change : Change or None
    origin : Moment
        Where both arms begin.
    home : Moment
        Where the run goes on afterwards.
    arms : list of str
        Still to be trained, the present one first.
    branches, digests : dict of str to int, str
        Of each arm: its branch, and the SHA-256 of the weights at its end.
    """

    handle: ActionHandle
    steps: int
    change: Change | None
    origin: Moment
    home: Moment
    arms: list[str] = field(default_factory=lambda: ["without", "with"])
    branches: dict[str, int] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)


class Trials:
    """Runs forks, one at a time. Training thread, unless a method says otherwise."""

    def __init__(self, past: Past) -> None:
        self.session = past.session
        self.past = past
        #: By the id of a fork's request: does one update and returns metrics.
        self.step_fns: dict[str, Callable[[int], Any]] = {}
        self._trial: Trial | None = None
        self._live = Live()
        self.session.before_change(self._before)

    def unavailable(self) -> str | None:
        """Why no fork can begin; None when one can. Any thread."""
        if self._trial is not None:
            return "a fork is under way"
        if not self.step_fns and not self.past.replays:
            return NEEDS_REPLAY
        return None

    def begin(self, payload: dict[str, Any], session: Session) -> Any:
        """Train `steps` updates without and with the last change, then go on as if nothing was."""
        handle, live = session.serving, self.past.live()
        assert handle is not None
        step_fn = self.step_fns.pop(handle.id, None) or session.bound.step_fn
        if step_fn is None and not self.past.replays:
            raise Rejected(NEEDS_REPLAY)
        if not live:
            raise Rejected("no model was found or bound: there is nothing to fork")
        change = self.past.last_change()
        home = self._here(live)
        origin = home if change is None else self._origin(change)
        self._live = live
        trial = Trial(handle, payload["steps"], change, origin, home)
        if step_fn is not None:
            return self._run_by_itself(trial, step_fn)
        self._trial = trial
        session.gate.only = _SERVED
        session.turns.leave_alone(self._after_step)
        try:
            self._enter_arm(trial)
        except BaseException:
            self._go_home(trial)
            raise
        return Deferred()

    def _origin(self, change: Change) -> Moment:
        if change.handle.action.type in (*INERT, "goto", "load_checkpoint"):
            raise Rejected(f"a fork compares a change of the run; the last one was {change.what}")
        kept = change.snapshot
        if kept is None or kept not in self.past.ring:
            raise Rejected(
                f"the state from before {change.what} is not kept: "
                f"{self.past.reason or 'newer snapshots took its room'}"
            )
        return Moment(kept.step, kept.branch_id, kept.tree, kept.knobs)

    # --- the loop of the user trains -----------------------------------------------------------

    def _after_step(self, session: Session) -> None:
        """Look after each step of an arm whether it is at its end."""
        trial = self._trial
        if trial is None or session.step_count < trial.origin.step + trial.steps:
            return
        with guard("fork") as fault:
            self._leave_arm(trial)
            if trial.arms:
                self._enter_arm(trial)
                return
        self._finish(trial, fault.error or None)

    def _finish(self, trial: Trial, error: str | None) -> None:
        self._go_home(trial)
        if error is None:
            settle(self.session, trial.handle, "applied", data=self._told(trial))
        else:
            settle(self.session, trial.handle, "failed", error, error=error)

    def _before(self, handle: ActionHandle) -> None:
        # A stop ends the run with its own weights, not with those of a trial.
        if handle.action.type == "stop":
            self.give_up("the run was stopped before")

    def give_up(self, reason: str) -> None:
        """Take a fork under way back, and say that it has no outcome."""
        trial = self._trial
        if trial is not None:
            with guard("fork", self.session.report):
                self._go_home(trial)
            settle(self.session, trial.handle, "cancelled", f"{reason} the fork was done")

    # --- a step function trains ------------------------------------------------------------------

    def _run_by_itself(self, trial: Trial, step_fn: Callable[[int], Any]) -> dict[str, Any]:
        session = self.session
        session.gate.only = frozenset()
        try:
            while trial.arms:
                self._enter_arm(trial)
                for step in range(trial.origin.step, trial.origin.step + trial.steps):
                    if session.queue.waits_for("stop"):
                        raise RuntimeError("given up for the stop that was asked meanwhile")
                    metrics = step_fn(step)
                    if session.step_count == step:  # the function makes no control point itself
                        numbers = metrics if isinstance(metrics, Mapping) else {"loss": metrics}
                        session.step(None if metrics is None else numbers, act=False)
                self._leave_arm(trial)
        finally:
            self._go_home(trial)
        return self._told(trial)

    # --- arms --------------------------------------------------------------------------------

    def _enter_arm(self, trial: Trial) -> None:
        arm, session = trial.arms[0], self.session
        self._restore(trial.origin)
        if arm == "with" and trial.change is not None:
            self._repeat(trial.change)
        what = trial.change.what if trial.change is not None else "any change"
        branch = session.fork_branch(
            trial.origin.step, f"fork {arm} {what}", trial.origin.branch_id
        )
        trial.branches[arm] = branch.id

    def _repeat(self, change: Change) -> None:
        """Make the change again, without a row of its own."""
        session, action = self.session, change.handle.action
        spec = session.actions[action.type]
        payload = absolute(action.type, spec.validate(action.payload), session)
        done = spec.handler(payload, session)
        if isinstance(done, KnobChange) and done.outcome.status not in ("applied", "clamped"):
            raise RuntimeError(f"{change.what} could not be made again: {done.outcome.reason}")
        if isinstance(done, (Owed, Deferred)):
            raise RuntimeError(f"{change.what} is done by the loop and can't be made again here")

    def _leave_arm(self, trial: Trial) -> None:
        trial.digests[trial.arms.pop(0)] = _digest(self._live)

    def _go_home(self, trial: Trial) -> None:
        session = self.session
        self._trial = None
        session.gate.only = None
        session.turns.leave_alone(None)
        session.call_attention()
        try:
            self._restore(trial.home)
        finally:
            session.resume_branch(trial.home.branch_id, trial.home.step)
            self._live = Live()

    def _here(self, live: Live) -> Moment:
        session = self.session
        tree = capture(live, Reducer(portable=False, clone=True, device=self.past.ring.device))
        return Moment(session.step_count, session.branch_id, tree, read_knobs(session))

    def _restore(self, moment: Moment) -> None:
        restore(self._live, moment.tree, clone=True)
        write_knobs(self.session, moment.knobs)

    def _told(self, trial: Trial) -> dict[str, Any]:
        return {
            "change": trial.change.what if trial.change is not None else None,
            "from_step": trial.origin.step,
            "steps": trial.steps,
            "branches": trial.branches,
            "weights_sha256": trial.digests,
            "is_equal": len(set(trial.digests.values())) == 1,
        }


def _digest(live: Live) -> str:
    """Hash all weights and buffers, bit by bit."""
    found = hashlib.sha256()
    for model in live.models.values():
        for each in tensors(model.state_dict()):
            flat = each.detach().to("cpu").contiguous().reshape(-1)
            found.update(flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
