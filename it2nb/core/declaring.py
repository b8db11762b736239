"""What a run can be asked for, and who looks on: knobs, actions, evaluators, turns, guards."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from it2nb.core.actions import spec_from
from it2nb.core.bound import Bound
from it2nb.core.errors import KnobRangeError
from it2nb.core.expected import Expected
from it2nb.core.guards import Condition, Guard, watched
from it2nb.core.knob_registry import KnobRegistry
from it2nb.core.knobs import Knob
from it2nb.core.queue import ActionHandle
from it2nb.core.telling import Telling
from it2nb.core.turns import Turns
from it2nb.core.wire import DType, Scale

if TYPE_CHECKING:
    from it2nb.core.odd_loss import OddLoss
    from it2nb.core.session import Session


class Declaring(Telling):
    """The part of a session where knobs, actions and onlookers are declared."""

    knobs: KnobRegistry
    turns: Turns
    bound: Bound
    expected: Expected
    odd_loss: OddLoss
    evaluator: Callable[[], Any] | None
    _ending: threading.RLock
    _on_end: list[Callable[[], Any]]
    _when_ended: list[Callable[[], Any]]

    def register_knob(
        self,
        name: str,
        get: Callable[[], Any],
        set: Callable[[Any], Any],
        *,
        dtype: DType | type = "float",
        min: float | int | None = None,
        max: float | int | None = None,
        step: float | int | None = None,
        description: str = "",
        scale: Scale = "linear",
        choices: Sequence[Any] | None = None,
        unit: str = "",
        group: str = "",
        out_of_bounds: Literal["clamp", "reject"] = "clamp",
        replace: bool = False,
        **more: Any,
    ) -> Knob:
        """Declare a typed setting; see `Knob` for the parameters. Any thread.

        Raises
        ------
        KnobError
            If the declaration contradicts itself, or the name is taken.
        KnobRangeError
            If the value is outside of the bounds when the run has not begun. Later it is only
            told: nothing that is declared ends a training.
        """
        knob = Knob(
            name, get, set, dtype=dtype, min=min, max=max, step=step, description=description,
            scale=scale, choices=choices, unit=unit, group=group, out_of_bounds=out_of_bounds,
            **more,
        )  # fmt: skip
        wrong = None if self._began else knob.misfit()
        if wrong is not None:
            raise KnobRangeError(f"{wrong}; widen them, or start inside")
        self.add_knob(knob, replace=replace)
        if self.rounds is not None:
            self.rounds.knobs_came()
        return knob

    def add_knob(self, knob: Knob, *, replace: bool = False) -> Knob:
        """Add a ready-made knob. While the run lives, the journal tells of it. Any thread."""
        self.knobs.register(knob, replace=replace)
        wrong = knob.misfit()
        if wrong is not None:
            self.warn(f"{wrong}; the next request for it brings it inside")
        if self._began and not self._ended.is_set():
            self.emit("knobs_registered", {"knobs": [knob.view().model_dump(exclude={"v"})]})
        return knob

    def action(
        self,
        name: str | Callable[..., Any],
        description: str = "",
        payload_keys: Sequence[str] | None = None,
        *,
        dangerous: bool = False,
        unavailable: Callable[[], str | None] | None = None,
        replace: bool = False,
    ) -> Any:
        """Declare an action, as a decorator of its handler; see `spec_from`. Any thread."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            label = function.__name__ if callable(name) else name
            spec = spec_from(
                function, label, description, payload_keys,
                dangerous=dangerous, unavailable=unavailable,
            )  # fmt: skip
            self.actions.register(spec, replace=replace)
            return function

        return register(name) if callable(name) else register

    def on_evaluate(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Give the function that `evaluate` runs: no arguments, returns a dict of metrics."""
        self.evaluator = function
        return function

    def on_end(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Call `function` once when the session ends, on the thread that ends it."""
        self._on_end.append(function)
        return function

    def when_ended(self, function: Callable[[], Any]) -> Callable[[], None]:
        """Call `function` once all is over and written, at once if it is so already. Any thread.

        Returns
        -------
        callable
            Takes it back.
        """
        with self._ending:
            over = self._ended.is_set()
            if not over:
                self._when_ended.append(function)
        if over:
            function()

        def remove() -> None:
            with self._ending, suppress(ValueError):
                self._when_ended.remove(function)

        return remove

    def bind(
        self,
        model: Any = None,
        *,
        optimizers: Sequence[Any] = (),
        schedulers: Sequence[Any] = (),
        scaler: Any = None,
    ) -> None:
        """Tell what the run trains, for checkpoints, resets and the model tree. Any thread."""
        self.bound.add(model, optimizers, schedulers, scaler)

    def bind_model(self, model: Any) -> None:
        """Tell the model; the same as ``bind(model)``."""
        self.bind(model)

    def every(
        self, steps: int, function: Callable[[Session], Any], *, name: str = ""
    ) -> Callable[[], None]:
        """Call `function(session)` on the training thread at a control point every n steps.

        Returns
        -------
        callable
            Removes it.
        """
        return self.turns.add(steps, function, name or getattr(function, "__name__", "turn"))

    def guard(self, condition: Condition, do: Any = "note", *, cooldown: int = 100) -> Guard:
        """Watch a condition at every control point; see `Guard`. Any thread."""
        watcher = Guard(condition, do, cooldown=cooldown)
        self.every(1, watcher, name=f"guard {type(condition).__name__}")
        for metric in watched(condition):
            self.expected.add(metric, f"the guard {type(condition).__name__}")
        return watcher

    def before_change(self, function: Callable[[ActionHandle], Any]) -> Callable[[], None]:
        """Call `function(handle)` before each request that may change the run is carried out."""
        return self.turns.add_before(function)
