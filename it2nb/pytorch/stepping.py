"""Training by a step function: the loop is ours, so it can go back and on to the bit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.control import RunStatus

if TYPE_CHECKING:
    from it2nb.core.session import Session


def train(session: Session, step_fn: Callable[[int], Any], steps: int | None = None) -> RunStatus:
    """Run a training whose updates `step_fn` makes, until `steps` are completed.

    Parameters
    ----------
    session : Session
    step_fn : callable
        ``step_fn(step) -> metrics`` does exactly one update; `step` counts the completed ones.
        Its data depends on `step`, the random streams and what is bound, and on nothing else:
        then going back and on without changes equals never having left.
    steps : int, optional
        Updates; until it is stopped by default.

    Returns
    -------
    str
        How the run ended.

    Raises
    ------
    BaseException
        What `step_fn` raised; the session has ended as `failed`.
    """
    session.bound.step_fn = step_fn
    if session.total_steps is None:
        session.total_steps = steps
    with session.run():
        while steps is None or session.step_count < steps:
            before = session.step_count
            # Control points inside (hooks on optimizer.step) only count: requests are served
            # between two calls, where the state is a whole number of calls.
            session.gate.only = frozenset()
            try:
                metrics = step_fn(before)
            finally:
                session.gate.only = None
            if session.step_count == before:
                numbers = metrics if isinstance(metrics, Mapping) else {"loss": metrics}
                control = session.step(None if metrics is None else numbers)
            else:
                control = session.pump()
            if control.stop:
                break
    return session.status
