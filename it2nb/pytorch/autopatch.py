"""autopatch and unpatch, as in the paper's release: one optimizer's steps are the run's steps."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from it2nb.pytorch.hooks import Attachment, MetricsFn, attach
from it2nb.pytorch.optimizers import add_optimizer_knobs
from it2nb.pytorch.schedulers import unwrapped
from it2nb.pytorch.switchboard import switchboard

if TYPE_CHECKING:
    from it2nb.core.session import Session

_MARK = "_it2nb_patched"


def autopatch(
    session: Session,
    optimizer: Any,
    metrics_fn: MetricsFn | None = None,
    *,
    name: str | None = None,
) -> Attachment:
    """Let each step of `optimizer` on this thread be a step of the run.

    Its hyper-parameters become knobs, `metrics_fn` is called after each step and what it
    returns is recorded, and after a stop `StopTraining` is raised, at once and before any later
    step. Patching again changes `metrics_fn` and nothing else.

    Parameters
    ----------
    session : Session
    optimizer : torch.optim.Optimizer
        Or any object with ``step``, ``param_groups`` and ``defaults``; nothing is replaced in
        one that has PyTorch's step hooks.
    metrics_fn : callable, optional
    name : str, optional
        What people call the optimizer.

    Returns
    -------
    Attachment
        ``detach()`` and `unpatch` take it away; so does the end of the session.
    """
    inner = unwrapped(optimizer, "optimizer")
    add_optimizer_knobs(session, inner, name=name)
    attachment = attach(session, metrics_fn=metrics_fn, only=True)
    if not _has_hooks(inner):
        _wrap(inner)
        session.on_end(functools.partial(_unwrap, inner))
    return attachment


def unpatch(session: Session, optimizer: Any = None) -> None:
    """Take `autopatch` back: for one optimizer, or for all of the session."""
    board = switchboard()
    for attachment in {id(a): a for a in board.attachments.values()}.values():
        if attachment.session is session:
            attachment.detach()
    if optimizer is not None:
        _unwrap(unwrapped(optimizer, "optimizer"))
    board.forget(session)


def _has_hooks(optimizer: Any) -> bool:
    return isinstance(optimizer, torch.optim.Optimizer) and bool(
        getattr(type(optimizer).step, "hooked", False)
    )


def _wrap(optimizer: Any) -> None:
    """Call the switchboard around the step of an optimizer without PyTorch's hooks.

    As a bound method: a scheduler that is made later looks for its ``__func__`` (CASES C36).
    """
    if hasattr(optimizer.step, _MARK):
        return
    original = optimizer.step

    @functools.wraps(getattr(original, "__func__", original))
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        switchboard().before(self)
        result = original(*args, **kwargs)
        switchboard().after(self)
        return result

    setattr(step, _MARK, original)
    optimizer.step = types.MethodType(step, optimizer)


def _unwrap(optimizer: Any) -> None:
    own = vars(optimizer).get("step")
    if own is not None and hasattr(own, _MARK):
        del optimizer.step
