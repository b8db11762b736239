"""Loops with Accelerate: what `prepare` returns is steered, whenever it is called.

::

    accelerator = Accelerator(gradient_accumulation_steps=4)
    with session.run():
        it2nb.make_interactive(accelerator, session=session)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for batch in loader:
            with accelerator.accumulate(model): ...
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard
from it2nb.integrations.accelerate_library import Accelerator as Accelerator
from it2nb.integrations.steered_run import NewSession, session_for
from it2nb.pytorch.hooks import Attachment, MetricsFn, attach
from it2nb.pytorch.schedulers import unwrapped

if TYPE_CHECKING:
    from it2nb.core.session import Session


def steer(
    accelerator: Accelerator,
    session: Session | NewSession | None,
    new_session: NewSession,
    metrics_fn: MetricsFn | None = None,
) -> Attachment:
    """Make the optimizer steps of this thread control points, and bind what is prepared.

    Steps are updates: a batch after which gradients are only accumulated makes none, and one
    that the GradScaler leaves out is a row. After a stop `StopTraining` ends the loop, which
    ``with session.run()`` takes in.

    Parameters
    ----------
    accelerator : accelerate.Accelerator
        Before or after its `prepare`: models, optimizers and schedulers are looked for when an
        optimizer makes its first step.
    session : Session, callable or None
    new_session : callable
        Makes a session where none is given and none lives here.
    metrics_fn : callable, optional
        Called after each update; what it returns is recorded.

    Raises
    ------
    SessionEnded
        If the session is over, or is one of the process that launched this one.
    """
    found = session_for(session, new_session)

    def bind(optimizer: Any = None) -> None:
        with guard("binding what Accelerate prepared", found.report):
            _bind(found, accelerator)

    bind()
    found.honours_control = True
    return attach(found, metrics_fn=metrics_fn, on_new_optimizer=bind)


def _bind(session: Session, accelerator: Any) -> None:
    """Tell the session what was prepared so far; what it knows already is left as it is."""
    optimizers = [unwrapped(each, "optimizer") for each in accelerator._optimizers]
    if not optimizers:
        return
    models = [accelerator.unwrap_model(each) for each in accelerator._models]
    schedulers = [unwrapped(each, "scheduler") for each in accelerator._schedulers]
    for at, each in enumerate(optimizers):
        session.bound.names.setdefault(id(each), "optimizer" if at == 0 else f"optimizer_{at}")
    for model in models[:-1]:
        session.bind(model)
    session.bind(
        models[-1] if models else None, optimizers=optimizers, schedulers=schedulers,
        scaler=accelerator.scaler,
    )  # fmt: skip
