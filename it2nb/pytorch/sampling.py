"""Samplers whose settings are knobs, and which can draw the same indices again.

What was set when is kept for the pass under way. With the seed it determines every index, so
that a pass that is begun again from a restored state draws what it drew the first time.
"""

from __future__ import annotations

import bisect
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import Sampler

from it2nb.core.errors import KnobError
from it2nb.core.knobs import Knob
from it2nb.pytorch.live import home_or_wait
from it2nb.pytorch.pipeline import Pipeline, said

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Knobs of this group are parameters of the data.
DATASET = "dataset"


class Draws:
    """What one pass has drawn so far; a subclass of `SteeredSampler` makes its own."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng


class SteeredSampler(Sampler[int]):
    """Draws indices by settings that are knobs of the run.

    A setting that is changed at a control point holds for the next index that is drawn; the
    result says in which batch that is, and how many batches were drawn before and are still to
    be trained on (workers, prefetching).

    Parameters
    ----------
    settings : mapping of str to float
        Knob names and values.
    num_samples : int
        Indices of one pass.
    seed : int
        The same seed and the same settings draw the same indices. No global stream is used.
    session : Session, optional
        By default the run that lives, or else the one that starts next.

    Attributes
    ----------
    settings : dict of str to float
        The values now.
    drawn : int
        Indices drawn in the pass under way.
    epoch : int
        Passes that were begun before this one.
    """

    def __init__(
        self,
        settings: Mapping[str, float],
        num_samples: int,
        *,
        seed: int = 0,
        session: Session | None = None,
    ) -> None:
        if num_samples < 1:
            raise KnobError(f"num_samples={num_samples!r} has to be at least 1")
        self.settings = {name: float(value) for name, value in settings.items()}
        self.num_samples = num_samples
        self.seed = seed
        self.drawn = 0
        self.epoch = -1
        self.pipeline = Pipeline()
        self._log: list[tuple[int, dict[str, float]]] = []
        self._wanted: Mapping[str, Any] | None = None
        self._session: Any = None
        home_or_wait(self, session)

    # --- the part of subclasses --------------------------------------------------------------

    @abstractmethod
    def begin(self, epoch: int) -> Any:
        """Make what one pass keeps; depends on `seed` and `epoch` alone."""

    @abstractmethod
    def draw(self, pass_: Any, settings: Mapping[str, float]) -> int:
        """Return the next index of a pass."""

    def admit(self, settings: Mapping[str, float]) -> None:
        """Raise `Rejected` if these settings together make no sense."""

    def knob(self, name: str) -> Knob:
        """Make the knob of one setting."""
        return Knob(
            name, lambda: self.settings[name], lambda value: self.assign(name, value),
            min=0.0, max=1.0, group=DATASET, description=self.describe(name),
            out_of_bounds="reject", effect=self.effect,
        )  # fmt: skip

    def describe(self, name: str) -> str:
        """Say in words what a setting is."""
        return ""

    # --- knobs -------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Its name among the things whose state is saved."""
        return "sampler " + next(iter(self.settings))

    @property
    def has_session(self) -> bool:
        """Whether its settings are knobs of a run that has not ended."""
        session = None if self._session is None else self._session()
        return session is not None and not session.is_ended

    def register(self, session: Session) -> None:
        """Make the settings knobs of `session`, and the position part of its state. Any thread."""
        import weakref

        for name in self.settings:
            if name not in session.knobs or self._is_mine(session.knobs[name]):
                session.add_knob(self.knob(name), replace=True)
            else:
                raise KnobError(
                    f"the knob {name!r} is there already; give the sampler another knob=..."
                )
        self._session = weakref.ref(session)
        session.bound.stateful[self.name] = self

    def _is_mine(self, knob: Knob) -> bool:
        return isinstance(getattr(knob.effect, "__self__", None), type(self))

    def assign(self, name: str, value: float) -> None:
        """Set one setting, from the next index on. Training thread."""
        settings = {**self.settings, name: float(value)}
        self.admit(settings)
        self.settings = settings
        self._note()

    def _note(self) -> None:
        if self._log and self._log[-1][0] == self.drawn:
            self._log.pop()
        self._log.append((self.drawn, dict(self.settings)))

    def effect(self) -> str:
        """Say where the settings that were set last take effect."""
        if self.epoch < 0 or self.drawn == 0 or self.drawn >= self.num_samples:
            waiting = self.pipeline.prefetched if self.drawn else 0
            told = "in force from the next pass on"
            return told if not waiting else f"{told}; {waiting} batches of this one are prefetched"
        return said(-(-self.drawn // self.pipeline.batch_size), self.pipeline.prefetched)

    # --- drawing -----------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        wanted, self._wanted = self._wanted, None
        if wanted is None:
            self.epoch += 1
            past: list[tuple[int, dict[str, float]]] = []
            until = 0
            self._log = [(0, dict(self.settings))]
        else:
            self.epoch, until = wanted["epoch"], wanted["drawn"]
            past = [(at, dict(settings)) for at, settings in wanted["log"]]
            self._log = [each for each in past if each[0] < until]
            if not self._log or self._log[-1][1] != self.settings:
                self._log.append((until, dict(self.settings)))
        self.drawn = 0
        self.pipeline.forget()
        return self._run(self.epoch, past, until)

    def _run(
        self, epoch: int, past: list[tuple[int, dict[str, float]]], until: int
    ) -> Iterator[int]:
        pass_ = self.begin(epoch)
        starts = [at for at, _ in past]
        self.pipeline.look()
        for at in range(self.num_samples):
            self._wanted = None  # whoever put the state back goes on where the loop is
            settings = self.settings
            if at < until:  # a second time: as it was set the first time
                settings = past[max(0, bisect.bisect_right(starts, at) - 1)][1]
            index = self.draw(pass_, settings)
            self.drawn = at + 1
            yield index

    # --- state -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the position and what was set in this pass, as plain data."""
        return {
            "epoch": self.epoch,
            "drawn": self.drawn,
            "log": [[at, dict(settings)] for at, settings in self._log],
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Draw that pass again when a loader begins anew; a running one goes on."""
        self._wanted = dict(state_dict) if state_dict["epoch"] >= 0 else None
