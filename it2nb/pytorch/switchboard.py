"""The one place where PyTorch's own step hooks lead to us.

It hangs on torch's module, not on ours: a second import or an autoreload of this package finds
it there and adds no second pair of hooks. With nothing connected it is gone without a trace.
"""

from __future__ import annotations

import weakref
from threading import get_ident
from typing import Any

import torch
import torch.optim.optimizer as home
from torch._compile import _disable_dynamo

from it2nb.core.faults import guard
from it2nb.pytorch import compiled, layered, scaler

_NAME = "_it2nb_switchboard"
#: Of our hooks among the global ones, whose own numbers are 0, 1, 2... PyTorch's registering
#: would give them another one with each run, and a compiled step, which looks at the numbers,
#: would be compiled again for each run until it is at its limit and raises.
_KEY = -1


class Switchboard:
    """Who wants to hear of which optimizer step.

    Attributes
    ----------
    attachments : dict of int to Attachment
        By thread: whose steps are control points.
    steered : dict of int to SteeredOptimizer
        By id of the optimizer.
    sessions : WeakKeyDictionary of Session to Steering
    onlookers : dict of int to InForce
        By id of the optimizer: sees its SteeredOptimizer before and after its edits come into
        force.
    """

    def __init__(self) -> None:
        self.attachments: dict[int, Any] = {}
        self.steered: dict[int, Any] = {}
        self.sessions: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.onlookers: dict[int, Any] = {}
        self._ends: dict[int, weakref.ref[Any]] = {}
        self._scaler_watch: scaler.ScalerWatch | None = None

    # --- who is connected ------------------------------------------------------------------

    def attach(self, thread: int, attachment: Any) -> None:
        """Make the optimizer steps of a thread control points."""
        self.attachments[thread] = attachment
        self._connect()

    def detach(self, attachment: Any) -> None:
        """No longer."""
        for thread in [t for t, each in self.attachments.items() if each is attachment]:
            del self.attachments[thread]
        self._disconnect_if_idle()

    def steer(self, steered: Any) -> None:
        """Work out the edits of an optimizer before each of its steps."""
        optimizer = steered.optimizer()
        key = id(optimizer)
        self.steered[key] = steered
        # An optimizer that is gone has no steps: with the last one our hooks go too.
        self._ends[key] = weakref.ref(optimizer, lambda _: self._gone(key, steered))
        self._connect()

    def leave(self, steered: Any) -> None:
        """No longer."""
        for key in [key for key, each in self.steered.items() if each is steered]:
            self._gone(key, steered)

    def _gone(self, key: int, steered: Any) -> None:
        if self.steered.get(key) is steered:
            del self.steered[key], self._ends[key]
            self._disconnect_if_idle()

    def forget(self, session: Any) -> None:
        """Let go of everything that belongs to a session."""
        steering = self.sessions.pop(session, None)
        if steering is not None:
            steering.close()
        self._disconnect_if_idle()

    def _connect(self) -> None:
        if self._scaler_watch is not None:
            return
        compiled.prepare()
        before, after = home._global_optimizer_pre_hooks, home._global_optimizer_post_hooks
        before[_KEY], after[_KEY] = _before, _after
        # First, so that hooks of others see the value that the step will use.
        before.move_to_end(_KEY, last=False)  # type: ignore[attr-defined]
        self._scaler_watch = scaler.ScalerWatch(self.skipped)

    def _disconnect_if_idle(self) -> None:
        if self.attachments or self.steered:
            return
        home._global_optimizer_pre_hooks.pop(_KEY, None)
        home._global_optimizer_post_hooks.pop(_KEY, None)
        if self._scaler_watch is not None:
            self._scaler_watch.close()
            self._scaler_watch = None
        if home.__dict__.get(_NAME) is self and not self.sessions:
            delattr(home, _NAME)

    # --- a step ----------------------------------------------------------------------------

    def overtaken(self, optimizer: Any) -> None:
        """An optimizer finished a step, of whose beginning we may not have heard. Any thread."""
        attachment = self.attachments.get(get_ident())
        if attachment is not None:
            attachment.overtaken(optimizer)

    def before(self, optimizer: Any) -> None:
        """An optimizer begins its step. Any thread."""
        steered = self._steered(optimizer)
        if steered is not None and steered.is_layered and layered.is_inner(optimizer):
            return
        if steered is not None:
            steered.heed_stop()
            steered.glance()
        attachment = self.attachments.get(get_ident()) if self.attachments else None
        if attachment is not None:
            attachment.before(optimizer)
            steered = self._steered(optimizer)
        if steered is not None and (self.onlookers or steered.has_work(optimizer)):
            onlooker = self.onlookers.get(id(optimizer)) if self.onlookers else None
            if onlooker is not None:
                with guard("what an edit came to", steered.session.report):
                    onlooker.before(steered)
            with guard("edits before a step", steered.session.report):
                steered.before_step()
            if onlooker is not None:
                with guard("what an edit came to", steered.session.report):
                    onlooker.after(steered)

    def after(self, optimizer: Any) -> None:
        """An optimizer finished its step. Any thread."""
        steered = self._steered(optimizer)
        if steered is not None and steered.is_layered and layered.is_inner(optimizer):
            return
        if steered is not None:
            try:
                steered.after_step()
            except BaseException:  # the boundary is the guard: made only where it is needed,
                # since it costs microseconds after an update, when the caches are cold
                with guard("edits after a step", steered.session.report):
                    raise
        attachment = self.attachments.get(get_ident()) if self.attachments else None
        if attachment is not None:
            attachment.after(optimizer)

    def _steered(self, optimizer: Any) -> Any:
        steered = self.steered.get(id(optimizer))
        return None if steered is None or steered.optimizer() is not optimizer else steered

    def ticks(self) -> int:
        """How many steps began on this thread; for telling that one did not."""
        attachment = self.attachments.get(get_ident())
        return 0 if attachment is None else attachment.ticks

    def skipped(self, optimizer: Any, scale: float | None) -> None:
        """A GradScaler left a step out. Any thread."""
        attachment = self.attachments.get(get_ident())
        if attachment is not None:
            attachment.skipped(optimizer, scale)


def switchboard() -> Switchboard:
    """Return the one that there is, or make it. Any thread."""
    board = home.__dict__.get(_NAME)
    if board is None:
        board = Switchboard()
        setattr(home, _NAME, board)
    return board


# PyTorch traces its hooks along with a compiled step. Traced, they would put guards on our
# objects; disabled, they run between the graphs of a step that is in several anyway. One that is
# whole stays so: see `compiled`.
@_disable_dynamo
def _call_before(optimizer: Any) -> None:
    board = home.__dict__.get(_NAME)
    if board is not None:
        board.before(optimizer)


@_disable_dynamo
def _call_after(optimizer: Any) -> None:
    board = home.__dict__.get(_NAME)
    if board is not None:
        board.after(optimizer)


# Outside of the compiler they are not gone through: they cost more than what is called.
def _before(optimizer: Any, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        if not compiled.is_whole(id(optimizer)):
            _call_before(optimizer)
        return
    board = home.__dict__.get(_NAME)
    if board is not None:
        board.before(optimizer)


def _after(optimizer: Any, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        mark = compiled.mark(id(optimizer))
        if mark:
            setattr(compiled.MARKS, mark, True)
            return
        _call_after(optimizer)
        return
    board = home.__dict__.get(_NAME)
    if board is not None:
        board.after(optimizer)
