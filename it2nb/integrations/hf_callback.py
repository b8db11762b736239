"""The callback of a steered Hugging Face Trainer: where it stands between two updates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from it2nb.core.control import StopTraining
from it2nb.core.faults import guard
from it2nb.core.knobs import Knob
from it2nb.integrations.hf_library import TrainerCallback, TrainOutput
from it2nb.integrations.steered_run import (
    NamedSession,
    NewSession,
    SteeredRun,
    most_norm,
    session_for,
)
from it2nb.pytorch.datasets import steering_of as steering_of_data
from it2nb.pytorch.optimizers import steering_of
from it2nb.pytorch.sampling import SteeredSampler

if TYPE_CHECKING:
    from it2nb.core.session import Session

GOES_ON = (
    "weights, optimizer, schedule and random streams are those of step {step}; the Trainer counts "
    "on, and its data goes on where it was: it makes the updates that were left, no more"
)
#: What a Trainer logs beside measured values.
_NOT_METRICS = frozenset({"loss", "learning_rate", "epoch", "total_flos", "step"})
_NOT_MEASURED = ("_runtime", "_per_second", "_model_preparation_time", "_timestamp")


class SteeringCallback(TrainerCallback):
    """Lets requests into a Trainer at the end of each update. Made by `make_interactive`.

    All methods on the training thread.

    Parameters
    ----------
    given : Session, callable or None
        The session, or what makes one for each training.
    new_session : callable
        ``new_session(title)``, for a training that was given none.
    """

    def __init__(self, given: Session | NewSession | None, new_session: NamedSession) -> None:
        self.given = given
        self._new_session = new_session
        self._trainer: Any = None
        self._run: SteeredRun | None = None
        self._loss: Any = None
        self._is_asked = False
        self._went_back = False

    @property
    def session(self) -> Session | None:
        """The session of the training under way."""
        return None if self._run is None else self._run.session

    # --- one training ------------------------------------------------------------------------

    def open(self, trainer: Any) -> None:
        """A training begins: its session."""
        kind = next(
            each.__name__ for each in type(trainer).__mro__
            if each.__module__.partition(".")[0] != "it2nb" and "Interactive" not in each.__name__
        )  # fmt: skip
        session = session_for(self.given, lambda: self._new_session(kind))
        self._trainer = trainer
        self._loss = None
        self._run = SteeredRun(session, kind, GOES_ON)
        self._run.prepare()
        self._add_evaluation()

    def close(self, error: BaseException | None = None) -> None:
        """It is over, one way or another."""
        run, self._run, self._trainer, self._loss = self._run, None, None, None
        if run is not None:
            if getattr(run.session.evaluator, "__self__", None) is self:
                run.session.evaluator = None
            run.close(error=error)

    def nothing_trained(self, trainer: Any) -> Any:
        """Return what `train` returns when it was stopped before the first update."""
        trainer.is_in_train = False
        return TrainOutput(trainer.state.global_step, 0.0, {"train_loss": 0.0})

    def saw_loss(self, loss: Any) -> None:
        """Look at the loss of one micro-batch; those of an update add up to its loss."""
        if self._run is not None and hasattr(loss, "detach"):
            if loss.requires_grad:  # the Trainer's own step gives it detached
                loss = loss.detach()
            self._loss = loss if self._loss is None else self._loss + loss

    # --- callbacks ---------------------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Bind what is trained, and let in what was asked before."""
        run, trainer = self._run, self._trainer
        if run is None:
            return
        self._loss = None
        scaler = getattr(trainer.accelerator, "scaler", None)
        scheduler = trainer.lr_scheduler
        optimizers = run.bind(
            trainer.model, [trainer.optimizer], [] if scheduler is None else [scheduler], scaler
        )
        session = run.session
        with guard("knobs of the Trainer", session.report):
            for optimizer in optimizers:
                _tell_decay(session, trainer, optimizer)
            session.add_knob(_max_grad_norm(args), replace=True)
            self._add_data()
        if run.begin(state.max_steps, state.global_step):
            control.should_training_stop = True

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """No update begins after a stop."""
        if self._run is not None and self._run.session.stop_requested:
            raise StopTraining

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An update is whole: the control point."""
        run = self._run
        if run is None:
            return
        loss, self._loss = self._loss, None
        branch_id = run.session.branch_id
        accelerator = self._trainer.accelerator
        if accelerator.optimizer_step_was_skipped:
            scaler = getattr(accelerator, "scaler", None)
            stop = run.skipped(None if scaler is None else float(scaler.get_scale()))
        else:
            stop = run.updated({} if loss is None else {"loss": loss})
        self._went_back = run.session.branch_id != branch_id
        if stop:
            control.should_training_stop = True

    def on_log(
        self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **_: Any
    ) -> None:
        """Record what the Trainer measured beside the loss: grad_norm, rewards..."""
        if self._run is None or not logs or self._is_asked:
            return
        if self._went_back and "loss" in logs:
            return  # of the update that was left, and the run stands at an earlier one now
        self._run.record(measured(logs))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation of the Trainer's own schedule is over: let in what was asked meanwhile."""
        run = self._run
        if run is not None and not self._is_asked and self._trainer.is_in_train and run.measured():
            control.should_training_stop = True

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write down that the Trainer saved a checkpoint of its own."""
        if self._run is not None:
            name = f"{args.output_dir}/checkpoint-{state.global_step}"
            self._run.session.emit("note", {"text": f"Trainer saved {name}", "level": "info"})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write down which weights the training left in the model."""
        best = state.best_model_checkpoint
        if self._run is not None and args.load_best_model_at_end and best is not None:
            text = f"Trainer loaded its best model, {best}: {state.best_metric}"
            self._run.session.emit("note", {"text": text, "level": "info"})

    # --- evaluation --------------------------------------------------------------------------

    def _add_evaluation(self) -> None:
        run = self._run
        assert run is not None
        session = run.session
        if session.evaluator is not None:
            return
        session.on_evaluate(self._evaluate)
        spec = session.actions["evaluate"]
        session.actions.register(replace(spec, unavailable=self._cant_evaluate), replace=True)

    def _cant_evaluate(self) -> str | None:
        trainer = self._trainer
        if trainer is None:
            return "the training is over"
        if trainer.eval_dataset is None:
            return "this Trainer has no eval_dataset: give it one, or set trainer.eval_dataset"
        return None

    def _evaluate(self) -> dict[str, float]:
        """Evaluate on one or several sets. Nobody else counts it: it was asked for."""
        trainer = self._trainer
        with _alone(trainer), self._asked():
            found = trainer.evaluate()
        return {str(name): value for name, value in measured(found).items()}

    @contextmanager
    def _asked(self) -> Iterator[None]:
        self._is_asked = True
        try:
            yield
        finally:
            self._is_asked = False

    # --- knobs -------------------------------------------------------------------------------

    def _add_data(self) -> None:
        run, trainer = self._run, self._trainer
        assert run is not None
        data = trainer.train_dataset
        own = steering_of_data(data)
        if own is not None:
            own.register(run.session)
        sampler = getattr(data, "sampler", None)
        if isinstance(sampler, SteeredSampler):
            sampler.register(run.session)


@contextmanager
def _alone(trainer: Any) -> Iterator[None]:
    """Keep an evaluation that was asked for from early stopping, plateaus and the best model.

    What the schedule of the Trainer wants at this step stays wanted.
    """
    handler, control = trainer.callback_handler, trainer.control
    callbacks, wanted = handler.callbacks, dict(vars(control))
    handler.callbacks = []
    try:
        yield
    finally:
        handler.callbacks = callbacks
        vars(control).update(wanted)
        trainer.control = control


def measured(logs: Mapping[str, Any]) -> dict[str, float]:
    """Pick what was measured out of what a Trainer logs."""
    return {
        str(name): float(value)
        for name, value in logs.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        and name not in _NOT_METRICS
        and not str(name).startswith("train_")
        and not str(name).endswith(_NOT_MEASURED)
    }  # fmt: skip


def _max_grad_norm(args: Any) -> Knob:
    def write(value: float) -> None:
        args.max_grad_norm = value

    def read() -> float:
        return float(args.max_grad_norm or 0.0)

    return Knob(
        "max_grad_norm", read, write, min=0.0, max=most_norm(read()), scale="log",
        group="Trainer", description="norm at which gradients are clipped; 0 clips nothing",
    )  # fmt: skip


def _tell_decay(session: Session, trainer: Any, optimizer: Any) -> None:
    """Tell which groups never decay: with a weight decay of 0 nothing else shows it."""
    steered = steering_of(session).find(optimizer)
    setting = None if steered is None else steered.settings.get("weight_decay")
    names: Callable[[Any], list[str]] | None = getattr(trainer, "get_decay_parameter_names", None)
    if setting is None or names is None:
        return
    decaying = set(names(trainer.model))
    wanted = {id(p) for n, p in trainer.model.named_parameters() if n in decaying}
    kinds = [{id(p) in wanted for p in group["params"]} for group in optimizer.param_groups]
    if all(len(kind) <= 1 for kind in kinds):
        setting.assume([float(kind == {True}) for kind in kinds])
