"""LightningCallback: Lightning's ``fit`` as a steered run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from it2nb.core.errors import It2nbError
from it2nb.core.session import Session
from it2nb.integrations.lightning import SteeringCallback
from it2nb.session import TrainingSession


class LightningCallback(SteeringCallback):
    """Makes each `fit` of a Lightning `Trainer` a steered run.

    ::

        trainer = L.Trainer(callbacks=[it2nb.LightningCallback(session)])
        trainer.fit(module)

    Parameters
    ----------
    session : TrainingSession or callable, optional
        A callable makes one for each `fit`. By default that of the ``%%it2`` cell or of the
        ``with session.run()`` around it, else a new one for each `fit`.

    Raises
    ------
    MissingDependency
        When it is imported without ``pip install 'it2nb[lightning]'``.
    """

    def __init__(self, session: Session | Callable[[], Any] | None = None) -> None:
        if session is not None and not isinstance(session, Session) and not callable(session):
            raise It2nbError(
                f"session={session!r:.60} has to be a TrainingSession, or a function that makes one"
            )
        super().__init__(session, lambda title: TrainingSession(title=title))
