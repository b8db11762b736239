"""TorchSession: the core's session with the doors to what it trains. Loads no PyTorch by itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from it2nb.core.control import RunStatus
from it2nb.core.errors import It2nbError
from it2nb.core.session import Session

if TYPE_CHECKING:
    from it2nb.core.knobs import Knob
    from it2nb.pytorch.fork import Fork
    from it2nb.pytorch.hooks import Attachment


def checked_autosave(autosave_s: Any) -> float | Literal["auto"] | None:
    """Read how often a run wants to be saved; see `it2nb.TrainingSession`.

    Raises
    ------
    It2nbError
        If it is no number of seconds.
    """
    if autosave_s is None or autosave_s == "auto":
        return autosave_s  # type: ignore[no-any-return]
    is_number = isinstance(autosave_s, (int, float)) and not isinstance(autosave_s, bool)
    if not is_number or not 0 <= autosave_s < float("inf"):
        raise It2nbError(
            f"autosave_s={autosave_s!r} has to be a number of seconds such as 600, None for no "
            f"checkpoint by itself, or 'auto'"
        )
    return float(autosave_s) or None


class TorchSession(Session):
    """The part of a `TrainingSession` that knows what it trains, and how that goes back."""

    _snapshots: Mapping[str, Any] | bool
    _autosave_s: float | Literal["auto"] | None

    # --- what it trains --------------------------------------------------------------------

    def bind(
        self,
        model: Any = None,
        *,
        optimizers: Sequence[Any] = (),
        schedulers: Sequence[Any] = (),
        scaler: Any = None,
    ) -> None:
        """Tell what the run trains. Any thread.

        With a model and an optimizer the session saves, loads, undoes, forks and resets by
        itself, and every hyper-parameter of the optimizers becomes a knob.
        """
        super().bind(model, optimizers=optimizers, schedulers=schedulers, scaler=scaler)
        for optimizer in optimizers:
            self.register_optimizer(optimizer)
        if self.bound.models and self.bound.optimizers:
            from it2nb.pytorch import modules, rewind

            rewind.install(self, snapshots=self._snapshots, autosave_s=self._autosave_s)
            modules.install(self)

    def bind_model(self, model: Any) -> None:
        """Tell the model; its module tree is in the state. Any thread."""
        super().bind(model)
        if self.bound.optimizers:
            self.bind()
        else:
            from it2nb.pytorch.modules import show_tree

            show_tree(self)

    def register_optimizer(
        self,
        optimizer: Any,
        scheduler: Any = None,
        *,
        name: str | None = None,
        only: Sequence[str] | None = None,
    ) -> list[Knob]:
        """Make every hyper-parameter of an optimizer a knob; see `add_optimizer_knobs`."""
        from it2nb.pytorch.optimizers import add_optimizer_knobs

        super().bind(optimizers=[optimizer], schedulers=[] if scheduler is None else [scheduler])
        return add_optimizer_knobs(self, optimizer, name=name, only=only)

    def register_optimizer_lr(self, optimizer: Any, scheduler: Any = None) -> list[Knob]:
        """Make the learning rates of an optimizer knobs, and nothing else of it. Any thread."""
        return self.register_optimizer(optimizer, scheduler, only=("lr",))

    def autopatch(
        self,
        optimizer: Any,
        metrics_fn: Callable[[], Mapping[str, Any] | None] | None = None,
        *,
        name: str | None = None,
    ) -> Attachment:
        """Let each step of `optimizer` be a step of the run; see `it2nb.autopatch`."""
        from it2nb.pytorch.autopatch import autopatch

        return autopatch(self, optimizer, metrics_fn, name=name)

    def unpatch(self, optimizer: Any = None) -> None:
        """Take `autopatch` back. Any thread."""
        from it2nb.pytorch.autopatch import unpatch

        unpatch(self, optimizer)

    def loop(self, items: Iterable[Any], metrics_fn: Any = None, *, epochs: int = 1) -> Any:
        """Wrap an iterable: each turn is one step, and going back replays its batches."""
        from it2nb.pytorch.loops import loop

        return loop(self, items, metrics_fn, epochs=epochs)

    # --- going back ------------------------------------------------------------------------

    def on_save(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Save what `function` returns (plain data, tensors) in every checkpoint."""
        self.bound.on_save.append(function)
        return function

    def on_load(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Call `function` with what the `on_save` of the same place had returned."""
        self.bound.on_load.append(function)
        return function

    def train(self, step_fn: Callable[[int], Any], steps: int | None = None) -> RunStatus:
        """Run a training whose updates `step_fn` makes; see `it2nb.pytorch.stepping.train`."""
        from it2nb.pytorch.stepping import train

        return train(self, step_fn, steps)

    def evaluate_now(self) -> Any:
        """Run the evaluator and leave no trace in the training. Training thread."""
        if "torch" not in sys.modules:
            return super().evaluate_now()
        from it2nb.pytorch.evaluate import undisturbed

        with undisturbed(self.bound.models, of=self.evaluator):
            return super().evaluate_now()

    def undo(self, **args: Any) -> Any:
        """Take the last intervention back, in a branch of its own; see `do`."""
        return self.do("undo", **args)

    def goto(self, step: int, **args: Any) -> Any:
        """Go back to a step, in a branch of its own; see `do`."""
        return self.do("goto", step=step, **args)

    def fork(
        self,
        steps: int,
        *,
        step_fn: Callable[[int], Any] | None = None,
        timeout: float | None = None,
    ) -> Fork:
        """Train on with and without the last change; see `it2nb.pytorch.fork.fork`."""
        from it2nb.pytorch.fork import fork

        return fork(self, steps, step_fn=step_fn, timeout=timeout)
