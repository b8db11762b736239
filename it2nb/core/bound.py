"""What a run trains: kept so that checkpoints, resets and the model tree find it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(slots=True)
class Bound:
    """Models, optimizers, schedulers and scaler of a run.

    Attributes
    ----------
    models, optimizers, schedulers : list
    scaler : GradScaler or None
    on_save, on_load : list of callable
        ``on_save() -> plain data`` and ``on_load(data)`` for what only the user can save.
    names : dict of int to str
        What the user's variable for an object (by id) is called.
    stateful : dict of str to object
        Further objects with ``state_dict`` and ``load_state_dict``, saved and restored with the
        rest: a replayable loader, a schedule, an EMA.
    generators : dict of str to generator
        Random streams that are not global.
    step_fn : callable, optional
        ``step_fn(step) -> metrics``, exactly one optimizer update: lets a fork train by itself.
    goes_on : str, optional
        What does not go back with a restored state, in words that begin a result's note; with
        ``{step}`` for the step. A plain for loop's by default.
    """

    models: list[Any] = field(default_factory=list)
    optimizers: list[Any] = field(default_factory=list)
    schedulers: list[Any] = field(default_factory=list)
    scaler: Any = None
    on_save: list[Callable[[], Any]] = field(default_factory=list)
    on_load: list[Callable[[Any], Any]] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    stateful: dict[str, Any] = field(default_factory=dict)
    generators: dict[str, Any] = field(default_factory=dict)
    step_fn: Callable[[int], Any] | None = None
    goes_on: str | None = None

    def copy(self) -> Bound:
        """Copy what is bound; the objects themselves are the same."""
        kept = Bound()
        kept.put_back(self)
        return kept

    def put_back(self, kept: Bound) -> None:
        """Bind what `kept` holds, in place, and nothing else."""
        for each in fields(self):
            mine, theirs = getattr(self, each.name), getattr(kept, each.name)
            if isinstance(mine, list):
                mine[:] = theirs
            elif isinstance(mine, dict):
                mine.clear()
                mine.update(theirs)
            else:
                setattr(self, each.name, theirs)

    def add(
        self, model: Any, optimizers: Sequence[Any], schedulers: Sequence[Any], scaler: Any
    ) -> None:
        """Add what is not there yet; compared by identity."""
        models = [] if model is None else [model]
        for kept, given in (
            (self.models, models),
            (self.optimizers, optimizers),
            (self.schedulers, schedulers),
        ):
            known = {id(each) for each in kept}
            kept.extend(each for each in given if id(each) not in known)
        if scaler is not None:
            self.scaler = scaler
