"""Lightning 2.x: ``fit`` as a steered run, by one callback.

::

    trainer = L.Trainer(callbacks=[it2nb.LightningCallback(session)])
    trainer.fit(module)
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import It2nbError
from it2nb.core.faults import guard
from it2nb.core.knobs import Knob
from it2nb.integrations.lightning_library import Callback
from it2nb.integrations.steered_run import (
    NamedSession,
    NewSession,
    SteeredRun,
    most_norm,
    session_for,
)
from it2nb.pytorch.datasets import steering_of as steering_of_data
from it2nb.pytorch.sampling import SteeredSampler

if TYPE_CHECKING:
    from it2nb.core.session import Session

GOES_ON = (
    "weights, optimizers, schedules and random streams are those of step {step}; Lightning counts "
    "on, and its data goes on where it was: it makes the updates that were left, no more"
)


class SteeringCallback(Callback):
    """Lets requests into a Lightning `Trainer` at the end of each update.

    A control point stands at the end of a batch after which ``trainer.global_step`` has grown:
    accumulated batches are one step, and with several optimizers each of their steps counts, as
    Lightning counts them. No signal handler is touched. All methods on the thread of `fit`.

    Parameters
    ----------
    session : Session, callable or None
        A callable makes one for each `fit`.
    new_session : callable
        ``new_session(title)``, for a `fit` that was given none.
    """

    def __init__(self, session: Session | NewSession | None, new_session: NamedSession) -> None:
        super().__init__()
        self.given = session
        self._new_session = new_session
        self._run: SteeredRun | None = None
        self._trainer: Any = None
        self._loss: Any = None
        self._counted = 0
        #: Whether a validation is over and nobody was let in since.
        self._has_validated = False
        #: Names of metrics that a training step logs, and of those that a validation does.
        self._trained: set[str] = set()
        self._validated: set[str] = set()
        self._set_aside: dict[str, Any] = {}

    @property
    def session(self) -> Session | None:
        """The session of the `fit` under way."""
        return None if self._run is None else self._run.session

    # --- one fit -----------------------------------------------------------------------------

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """`fit` begins: its session."""
        if stage != "fit":
            return
        self._refuse_twin(trainer)
        self._close()  # what another fit left, that was broken off
        kind = type(pl_module).__name__
        session = session_for(self.given, lambda: self._new_session(kind))
        self._trainer, self._loss, self._has_validated = trainer, None, False
        self._trained, self._validated = set(), set()
        self._run = SteeredRun(session, "Trainer", GOES_ON)
        self._run.prepare()
        if session.evaluator is None:
            session.on_evaluate(self._evaluate)
            spec = replace(session.actions["evaluate"], unavailable=self._cant_evaluate)
            session.actions.register(spec, replace=True)
        # Last of all, so that what another callback asks for at the end of an update holds from
        # the next one. A list of its own: Lightning goes through the old one just now.
        others = [each for each in trainer.callbacks if each is not self]
        trainer.callbacks = [*others, self]
        self._watch_over(trainer.fit_loop)

    def _watch_over(self, loop: Any) -> None:
        """See what breaks the training off, also where Lightning tells no callback of it.

        In another thread than the main one an interrupt is such a case: Lightning trips over its
        own ``signal.signal`` first.
        """
        run = loop.run

        @functools.wraps(run)
        def watched(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except BaseException as error:  # raised again: the session ends whatever happens
                self._close(error)
                raise

        loop.run = watched

    def _refuse_twin(self, trainer: Any) -> None:
        for other in trainer.callbacks:
            same = isinstance(other, SteeringCallback) and other.given is self.given
            if same and other is not self and not callable(self.given):
                raise It2nbError(
                    "this Trainer has two LightningCallbacks for one session, and each step would "
                    "count twice: leave one of them away"
                )

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Bind what is trained, and let in what was asked before."""
        run = self._run
        if run is None:
            return
        schedulers = [each.scheduler for each in trainer.lr_scheduler_configs]
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        run.bind(pl_module, trainer.optimizers, schedulers, scaler)
        with guard("knobs of the Trainer", run.session.report):
            run.session.add_knob(_gradient_clip_val(trainer, pl_module), replace=True)
            self._add_data(run.session, trainer)
        self._counted = trainer.global_step  # a resumed one has its own by now
        steps = trainer.estimated_stepping_batches
        total = int(steps) if steps != float("inf") else None
        if run.begin(total, trainer.global_step):
            self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """The run failed, or was interrupted."""
        self._close(exception)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """`fit` is over."""
        if stage == "fit":
            self._close()

    def _close(self, error: BaseException | None = None) -> None:
        run, trainer = self._run, self._trainer
        self._run = self._trainer = self._loss = None
        if run is None:
            return
        for name, value in self._set_aside.items():
            setattr(*_home_of(trainer, name), value)
        self._set_aside = {}
        vars(trainer.fit_loop).pop("run", None)
        if getattr(run.session.evaluator, "__self__", None) is self:
            run.session.evaluator = None
        run.close(error=error)

    # --- updates -----------------------------------------------------------------------------

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """A control point, where an update is whole."""
        run = self._run
        if run is None:
            return
        self._add_loss(outputs)
        made = trainer.global_step
        count = made - self._counted
        if count <= 0:
            return
        self._counted = made
        values: dict[str, Any] = {}
        with guard("metrics of a step", run.session.report):
            found = trainer.callback_metrics
            values = {name: each for name, each in found.items() if name not in self._validated}
            self._trained.update(values)
        loss, self._loss = self._loss, None
        if loss is not None:
            values["loss"] = loss
        if run.updated(values, count):
            self._stop()

    def _add_loss(self, outputs: Any) -> None:
        # A dict nearly always; asking for a Mapping alone takes microseconds.
        is_mapping = type(outputs) is dict or isinstance(outputs, Mapping)
        loss: Any = outputs.get("loss") if is_mapping else outputs
        if hasattr(loss, "detach"):
            # Lightning has divided it by the number of accumulated batches.
            if loss.requires_grad:
                loss = loss.detach()
            self._loss = loss if self._loss is None else self._loss + loss

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        """Record what the validation of Lightning's own schedule measured."""
        if self._run is None or trainer.sanity_checking:
            return
        # Not here: an evaluation that was asked for would begin inside of this one.
        self._has_validated = True
        found = trainer.callback_metrics
        self._validated.update(found.keys() - self._trained)
        self._run.record({name: found[name] for name in self._validated if name in found})

    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        """Let in what was asked while a validation in the middle of an epoch went on."""
        if self._has_validated and self._stops_after_validation():
            # As Lightning itself leaves an epoch whose module wants no more batches.
            raise StopIteration

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Let in what was asked while the validation at the end of an epoch went on."""
        if self._has_validated:
            self._stops_after_validation()

    def _stops_after_validation(self) -> bool:
        self._has_validated = False
        if self._run is None or not self._run.measured():
            return False
        self._stop()
        return True

    def _stop(self) -> None:
        """End after this update, also where Lightning would go on until min_epochs are over."""
        trainer, run = self._trainer, self._run
        assert run is not None
        trainer.should_stop = True
        for name in ("min_epochs", "min_steps"):
            where, attribute = _home_of(trainer, name)
            wanted = getattr(where, attribute, None)
            if wanted and name not in self._set_aside:
                self._set_aside[name] = wanted
                setattr(where, attribute, None)
                text = f"stop: {name}={wanted} was set aside, the run ends after this update"
                run.session.emit("note", {"text": text, "level": "info"})

    # --- evaluation and knobs ----------------------------------------------------------------

    def _cant_evaluate(self) -> str | None:
        if self._trainer is None:
            return "the training is over"
        if not self._trainer.enable_validation:
            return "there is no validation here: fit needs val_dataloaders and a validation_step"
        return None

    def _evaluate(self) -> dict[str, float]:
        """Run the validation loop. No other callback counts it: it was asked for."""
        trainer = self._trainer
        loop = trainer.fit_loop.epoch_loop.val_loop
        with _alone(trainer):
            found = loop.run()
        values = {name: float(value) for part in found for name, value in part.items()}
        self._validated.update(values.keys() - self._trained)
        return values

    def _add_data(self, session: Session, trainer: Any) -> None:
        loader = trainer.train_dataloader
        own = steering_of_data(getattr(loader, "dataset", None))
        if own is not None:
            own.register(session)
        sampler = getattr(loader, "sampler", None)
        if isinstance(sampler, SteeredSampler):
            sampler.register(session)


@contextmanager
def _alone(trainer: Any) -> Iterator[None]:
    """Validate in the middle of a training epoch, as Lightning does it, without callbacks."""
    connector = trainer._logger_connector
    callbacks, first = trainer.callbacks, connector._first_loop_iter
    trainer.callbacks = []
    trainer.validating = True
    try:
        yield
    finally:
        trainer.training = True
        trainer.callbacks = callbacks
        connector._first_loop_iter = first


def _home_of(trainer: Any, name: str) -> tuple[Any, str]:
    loop = trainer.fit_loop
    return (loop, name) if name == "min_epochs" else (loop.epoch_loop, name)


def _gradient_clip_val(trainer: Any, module: Any) -> Knob:
    def write(value: float) -> None:
        trainer.gradient_clip_val = value

    def unavailable() -> str | None:
        if module.automatic_optimization:
            return None
        return "with manual optimization the module clips its gradients itself"

    def read() -> float:
        return float(trainer.gradient_clip_val or 0.0)

    return Knob(
        "gradient_clip_val", read, write, min=0.0, max=most_norm(read()), scale="log",
        group="Trainer", aliases=["max_grad_norm"], unavailable=unavailable,
        description="bound to which gradients are clipped; 0 clips nothing",
    )  # fmt: skip


@functools.lru_cache(maxsize=100)
def interactive_class(base: Any, new_session: NamedSession) -> Any:
    """Make a subclass of Lightning's Trainer whose instances are steered; the same each time."""

    @functools.wraps(base.__init__)
    def __init__(
        self: Any, *args: Any, session: Session | NewSession | None = None, **kwargs: Any
    ) -> None:
        base.__init__(self, *args, **kwargs)
        interactive_trainer(self, session, new_session)

    space = {"__init__": __init__, "__doc__": base.__doc__, "__module__": base.__module__}
    return type(f"Interactive{base.__name__}", (base,), space)


def interactive_trainer(
    trainer: Any, session: Session | NewSession | None, new_session: NamedSession
) -> Any:
    """Give a Trainer the callback; returns the Trainer."""
    known = [each for each in trainer.callbacks if isinstance(each, SteeringCallback)]
    for each in known:
        each.given = session or each.given
    if not known:
        trainer.callbacks.append(SteeringCallback(session, new_session))
    return trainer
