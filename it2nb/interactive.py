"""``make_interactive``: a trainer, or a data set, of another library as a steered one."""

from __future__ import annotations

import sys
from typing import Any

from it2nb.core.session import Session
from it2nb.session import TrainingSession


def make_interactive(target: Any, *, session: Any = None) -> Any:
    """Make a trainer a steered run.

    ::

        trainer = it2nb.make_interactive(Trainer)(model, args, ..., session=session)
        trainer.train()

    Parameters
    ----------
    target : class or instance
        Of Hugging Face's `Trainer` and whatever derives from it (Seq2SeqTrainer, TRL's), of
        Lightning's `Trainer`, or of a PyTorch `Dataset`; or an `Accelerator`. A class gives a
        subclass, so it works as a decorator too; an instance becomes a steered one in place and
        is returned.
    session : TrainingSession or callable, optional
        For an instance; a class takes it when it is called, ``session=``. A callable makes one
        for each training. By default that of the ``%%it2`` cell or of the ``with session.run()``
        around it, else a new one for each training, which is `it2nb.current()` while it runs.

    Returns
    -------
    class or instance

    Raises
    ------
    TypeError
        If `target` is something else.
    """
    _check(session)
    if _is_a(target, "transformers.trainer", "Trainer"):
        from it2nb.integrations import hf

        if isinstance(target, type):
            return hf.interactive_class(target, _new_session)
        return hf.interactive_trainer(target, session, _new_session)
    for package in ("lightning.pytorch", "pytorch_lightning"):
        if _is_a(target, package, "Trainer"):
            from it2nb.integrations import lightning

            if isinstance(target, type):
                return lightning.interactive_class(target, _new_session)
            return lightning.interactive_trainer(target, session, _new_session)
    if _is_a(target, "accelerate", "Accelerator") and not isinstance(target, type):
        from it2nb.integrations import accelerate

        accelerate.steer(target, session, lambda: _new_session("accelerate"))
        return target
    if _is_a(target, "torch.utils.data", "Dataset"):
        from it2nb.pytorch.datasets import make_interactive_dataset

        return make_interactive_dataset(target, session=session)
    raise TypeError(
        f"{target!r:.80} is no Trainer of transformers or Lightning and no Dataset; for a loop "
        f"of your own use %%it2, session.loop(loader) or it2nb.autopatch(optimizer)"
    )


def _new_session(title: str) -> TrainingSession:
    return TrainingSession(title=title)


def _check(session: Any) -> None:
    if session is not None and not isinstance(session, Session) and not callable(session):
        raise TypeError(
            f"session={session!r:.60} has to be a TrainingSession, or a function that makes one"
        )


def _is_a(target: Any, module: str, name: str) -> bool:
    """Whether it is a class of that name or one of its instances; imports nothing."""
    base = getattr(sys.modules.get(module), name, None)
    kind = target if isinstance(target, type) else type(target)
    return isinstance(base, type) and issubclass(kind, base)
