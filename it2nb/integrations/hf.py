"""Hugging Face: any `Trainer` as a steered run, by callbacks.

::

    import it2nb
    from transformers import Trainer

    trainer = it2nb.make_interactive(Trainer)(model, args, train_dataset=data, session=session)
    trainer.train()

The class that is made only looks on: at the loss that `training_step` returns, before the
Trainer's log averages it (and leaves NaN out), and at where `train` begins and ends. All else
are callbacks, so that Seq2SeqTrainer and TRL's trainers are steered in the same way.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from it2nb.core.control import StopTraining
from it2nb.integrations.hf_callback import SteeringCallback
from it2nb.integrations.steered_run import NamedSession, NewSession
from it2nb.pytorch.sampling import SteeredSampler

if TYPE_CHECKING:
    from it2nb.core.session import Session


class SteeredTrainer:
    """The part of the classes that `interactive_class` makes; it stands before the Trainer."""

    it2nb_callback: SteeringCallback

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train as the Trainer does, as one steered run; it ends whatever happens."""
        callback = self.it2nb_callback
        callback.open(self)
        try:
            result = super().train(*args, **kwargs)  # type: ignore[misc]
        except StopTraining:
            # Before the first update: the Trainer has no way of its own to make none.
            result = callback.nothing_trained(self)
            callback.close()
        except BaseException as error:  # raised again: the session ends whatever happens
            callback.close(error)
            raise
        else:
            callback.close()
        return result

    def training_step(self, *args: Any, **kwargs: Any) -> Any:
        """Forward and backward as the Trainer does it; its loss is looked at."""
        loss = super().training_step(*args, **kwargs)  # type: ignore[misc]
        self.it2nb_callback.saw_loss(loss)
        return loss

    def _get_train_sampler(self, *args: Any, **kwargs: Any) -> Any:
        """A data set that knows its sampler is drawn from by it."""
        sampler = getattr(getattr(self, "train_dataset", None), "sampler", None)
        if isinstance(sampler, SteeredSampler):
            return sampler
        return super()._get_train_sampler(*args, **kwargs)  # type: ignore[misc]


@functools.lru_cache(maxsize=100)
def interactive_class(base: Any, new_session: NamedSession) -> Any:
    """Make the steered subclass of a Trainer class; the same one each time.

    Parameters
    ----------
    base : type
        `transformers.Trainer` or a subclass.
    new_session : callable
        Makes a session for a training that was given none: ``new_session(title)``.
    """
    if issubclass(base, SteeredTrainer):
        return base

    @functools.wraps(base.__init__)
    def __init__(
        self: Any, *args: Any, session: Session | NewSession | None = None, **kwargs: Any
    ) -> None:
        base.__init__(self, *args, **kwargs)
        attach(self, session, new_session)

    return type(
        f"Interactive{base.__name__}",
        (SteeredTrainer, base),
        {"__init__": __init__, "__doc__": base.__doc__, "__module__": base.__module__},
    )


def interactive_trainer(
    trainer: Any, session: Session | NewSession | None, new_session: NamedSession
) -> Any:
    """Make a Trainer that is there a steered one, in place; returns it."""
    if isinstance(trainer, SteeredTrainer):
        if session is not None:
            trainer.it2nb_callback.given = session
        return trainer
    kind: Any = type(trainer)
    trainer.__class__ = interactive_class(kind, new_session)
    attach(trainer, session, new_session)
    return trainer


def attach(
    trainer: Any, session: Session | NewSession | None, new_session: NamedSession
) -> SteeringCallback:
    """Give a Trainer its callback."""
    callback = SteeringCallback(session, new_session)
    trainer.it2nb_callback = callback
    trainer.add_callback(callback)
    return callback
