"""autopatch and unpatch, as in the paper's release: one optimizer's steps are the run's steps."""

from __future__ import annotations

from typing import Any

from it2nb.core.errors import SessionEnded
from it2nb.core.lifetime import current
from it2nb.core.session import Session
from it2nb.pytorch.hooks import Attachment, MetricsFn, attach
from it2nb.pytorch.optimizers import add_optimizer_knobs
from it2nb.pytorch.schedulers import unwrapped
from it2nb.pytorch.switchboard import switchboard


def autopatch(*arguments: Any, name: str | None = None, **named: Any) -> Attachment:
    """Let each step of an optimizer on this thread be a step of the run.

    ``autopatch(optimizer, metrics_fn)`` for the current run, or
    ``autopatch(session, optimizer, metrics_fn)``.

    Its hyper-parameters become knobs, `metrics_fn` is called after each step and what it
    returns is recorded, and after a stop `StopTraining` is raised, at once and before any later
    step. Patching again changes `metrics_fn` and nothing else.

    Parameters
    ----------
    session : Session, optional
        The current one by default.
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

    Raises
    ------
    SessionEnded
        When there is no run to attach to.
    """
    session, optimizer, metrics_fn = _sort_out(arguments, named)
    if optimizer is None:
        raise TypeError("autopatch needs an optimizer: autopatch(optimizer, metrics_fn)")
    inner = unwrapped(optimizer, "optimizer")
    add_optimizer_knobs(session, inner, name=name)
    return attach(session, metrics_fn=metrics_fn, only=True)


def unpatch(*arguments: Any, **named: Any) -> None:
    """Take `autopatch` back.

    ``unpatch()`` and ``unpatch(optimizer)`` for the current run, or ``unpatch(session)`` and
    ``unpatch(session, optimizer)``. The run's other optimizers are let go of too.
    """
    session, _, _ = _sort_out(arguments, named, may_have_ended=True)
    board = switchboard()
    for attachment in {id(a): a for a in board.attachments.values()}.values():
        if attachment.session is session:
            attachment.detach()
    board.forget(session)


def _sort_out(
    arguments: tuple[Any, ...], named: dict[str, Any], *, may_have_ended: bool = False
) -> tuple[Session, Any, MetricsFn | None]:
    """Tell session, optimizer and metrics_fn apart: the session may come first or be left out."""
    order = ["optimizer", "metrics_fn"]
    if arguments and isinstance(arguments[0], Session):
        order.insert(0, "session")
    if len(arguments) > len(order) or named.keys() - {"session", "optimizer", "metrics_fn"}:
        raise TypeError(
            f"autopatch takes (session, optimizer, metrics_fn), not {len(arguments)} positional "
            f"arguments and {sorted(named)}"
        )
    given = {**dict(zip(order, arguments, strict=False)), **named}
    session = given.get("session") or current()
    if session.is_ended and not may_have_ended:
        raise SessionEnded(
            f"{session.run_id} has ended: make a TrainingSession() first, or name one with "
            f"session=..."
        )
    return session, given.get("optimizer"), given.get("metrics_fn")
