"""What one training of a workflow is made of: weights, optimizers, data, settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from it2nb.core.knobs import Knob
from it2nb.core.session import Session
from it2nb.session import TrainingSession


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting of a training that becomes a knob.

    Attributes
    ----------
    name, unit, group, description : str
    value : float, int, bool or str
        At the start.
    min, max : float or int, optional
    scale : {"linear", "log"}
    choices : sequence, optional
    """

    name: str
    value: Any
    min: float | int | None = None
    max: float | int | None = None
    scale: Literal["linear", "log"] = "linear"
    unit: str = ""
    group: str = ""
    description: str = ""
    choices: Sequence[Any] | None = None


@dataclass
class Training:
    """One training from fresh weights. Training thread.

    Attributes
    ----------
    model : torch.nn.Module
    optimizers : dict of str to torch.optim.Optimizer
        By the name under which their knobs go when there are several.
    update : callable
        ``update(step) -> metrics`` does one optimizer update; `step` counts those before it.
    evaluate : callable
        Returns metrics and leaves the training as it was.
    settings : list of Setting
    values : dict of str to value
        The settings' present values, which `update` reads.
    hyper : tuple of str, optional
        Hyper-parameters of the optimizers that become knobs; all by default.
    schedulers : list
    generator : torch.Generator
        Draws the batches; part of checkpoints and snapshots.
    declare : callable, optional
        ``declare(session)`` registers actions and knobs beyond the settings.
    about : dict of str to plain data
        Sizes and sources, for the journal.
    """

    model: nn.Module
    optimizers: dict[str, Any]
    update: Callable[[int], Mapping[str, Any]]
    evaluate: Callable[[], Mapping[str, float]]
    settings: Sequence[Setting] = ()
    values: dict[str, Any] = field(default_factory=dict)
    hyper: tuple[str, ...] | None = None
    schedulers: Sequence[Any] = ()
    generator: torch.Generator = field(default_factory=torch.Generator)
    declare: Callable[[Session], Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def join(self, session: Session) -> None:
        """Make a session steer this training: knobs, actions, state. Any thread.

        What an earlier training of the same session had registered makes room: a round begins
        with fresh weights.
        """
        bound = session.bound
        for held in (bound.models, bound.optimizers, bound.schedulers):
            held.clear()
        if isinstance(session, TrainingSession):
            for name, optimizer in self.optimizers.items():
                scheduler = self._scheduler_of(optimizer)
                session.register_optimizer(optimizer, scheduler, name=name, only=self.hyper)
        session.bind(
            self.model,
            optimizers=list(self.optimizers.values()),
            schedulers=list(self.schedulers),
        )
        bound.generators["workflow"] = self.generator
        for setting in self.settings:
            self.values.setdefault(setting.name, setting.value)
            session.add_knob(self._knob(setting), replace=True)
        if self.declare is not None:
            self.declare(session)

    def _scheduler_of(self, optimizer: Any) -> Any:
        fitting = (s for s in self.schedulers if getattr(s, "optimizer", None) is optimizer)
        return next(fitting, None)

    def _knob(self, setting: Setting) -> Knob:
        values, name = self.values, setting.name

        def get() -> Any:
            return values[name]

        def put(value: Any) -> None:
            values[name] = value

        kind: Any = "choice" if setting.choices is not None else type(setting.value)
        return Knob(
            name, get, put, dtype=kind, min=setting.min, max=setting.max, scale=setting.scale,
            choices=setting.choices, unit=setting.unit, group=setting.group,
            description=setting.description,
        )  # fmt: skip


#: Of the gradient, for any training that clips it.
CLIP = Setting(
    "clip", 1.0, 0.01, 10.0, "log",
    description="a gradient that is longer is shortened to this norm",
)  # fmt: skip


def gradient_norm(parameters: Iterable[torch.Tensor]) -> float:
    """Return the norm of all gradients together; 0 where there are none."""
    grads = [each.grad for each in parameters if each.grad is not None]
    return float(torch.nn.utils.get_total_norm(grads)) if grads else 0.0
