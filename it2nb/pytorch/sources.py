"""Sampling from several sources by weights that are knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from torch.utils.data import ConcatDataset

from it2nb.core.errors import KnobError, Rejected
from it2nb.core.rounds import is_number
from it2nb.pytorch.sampling import Draws, SteeredSampler

if TYPE_CHECKING:
    from it2nb.core.session import Session


class Sources(ConcatDataset[Any]):
    """The sources of a `SourceSampler` one after the other; it knows its sampler."""

    def __init__(self, datasets: list[Any], sampler: SourceSampler) -> None:
        super().__init__(datasets)
        self.sampler = sampler


class SourceSampler(SteeredSampler):
    """Draws from several data sets, each as often as its weight says; the weights are knobs.

    ::

        mix = it2nb.SourceSampler({"clean": clean, "noisy": noisy}, weights={"noisy": 0.2})
        loader = DataLoader(mix.dataset, sampler=mix, batch_size=32)
        ...
        session.set("weight[noisy]", 0.0)

    Within a source every item comes once before one comes again, in random order.

    Parameters
    ----------
    sources : mapping of str to Dataset
        With a length each, at least one.
    weights : mapping of str to float, optional
        Shares of the draws, 0 to 1, relative to each other; 1 where nothing is said. A source
        of weight 0 is never drawn.
    num_samples : int, optional
        Indices of one pass; as many as there are items by default.
    seed : int
    session : Session, optional
        By default the run that lives, or else the one that starts next.
    knob : str
        The knobs are called ``knob[source]``.

    Attributes
    ----------
    dataset : Sources
        For the loader, or ``train_dataset`` of a Trainer.
    counts : dict of str to int
        Items drawn of each source in the pass under way.
    """

    def __init__(
        self,
        sources: Mapping[str, Any],
        weights: Mapping[str, float] | None = None,
        *,
        num_samples: int | None = None,
        seed: int = 0,
        session: Session | None = None,
        knob: str = "weight",
    ) -> None:
        if weights is not None and not isinstance(weights, Mapping):
            raise KnobError(f"weights={weights!r:.60} has to be a mapping of sources to shares")
        odd = {name: value for name, value in (weights or {}).items() if not is_number(value)}
        if odd:
            raise KnobError(f"weights are numbers between 0 and 1, not {odd!r:.80}")
        empty = [name for name, each in sources.items() if len(each) == 0]
        if not sources or empty:
            raise KnobError(f"a source needs items; empty: {', '.join(empty) or 'all of them'}")
        unknown = sorted(set(weights or {}) - set(sources))
        if unknown:
            raise KnobError(f"weights for {unknown}; the sources are {sorted(sources)}")
        self.names = list(sources)
        self.dataset = Sources(list(sources.values()), self)
        self._sizes = [len(each) for each in sources.values()]
        self._offsets = [0, *np.cumsum(self._sizes).tolist()]
        self._knobs = {name: f"{knob}[{name}]" for name in sources}
        self.counts = dict.fromkeys(sources, 0)
        given = {self._knobs[name]: (weights or {}).get(name, 1.0) for name in sources}
        outside = {name: value for name, value in given.items() if not 0.0 <= value <= 1.0}
        if outside:
            raise KnobError(f"weights are between 0 and 1, not {outside}")
        try:
            self.admit(given)
        except Rejected as err:
            raise KnobError(err.reason) from err
        super().__init__(given, num_samples or sum(self._sizes), seed=seed, session=session)

    def admit(self, settings: Mapping[str, float]) -> None:
        """See `SteeredSampler`."""
        if not any(settings.values()):
            raise Rejected("all weights would be 0: nothing could be drawn")

    def describe(self, name: str) -> str:
        """See `SteeredSampler`."""
        return "how often this source is drawn, relative to the others"

    def begin(self, epoch: int) -> Mixing:
        """See `SteeredSampler`."""
        self.counts = dict.fromkeys(self.names, 0)
        return Mixing(self.seed, epoch, self._sizes)

    def draw(self, pass_: Mixing, settings: Mapping[str, float]) -> int:
        """See `SteeredSampler`."""
        shares = [settings[self._knobs[name]] for name in self.names]
        source = pass_.choose(shares)
        self.counts[self.names[source]] += 1
        return int(self._offsets[source] + pass_.item(source))


class Mixing(Draws):
    """One pass: which source, and which item of it."""

    def __init__(self, seed: int, epoch: int, sizes: list[int]) -> None:
        super().__init__(np.random.default_rng([seed, epoch]))
        self._orders: dict[int, np.ndarray[Any, Any]] = {}
        self._at = [0] * len(sizes)
        self._key = [seed, epoch]
        self._sizes = sizes

    def choose(self, shares: list[float]) -> int:
        """Draw a source."""
        point = self.rng.random() * sum(shares)
        for source, share in enumerate(shares):
            point -= share
            if point < 0:
                return source
        return max(source for source, share in enumerate(shares) if share)

    def item(self, source: int) -> int:
        """Return its next item; after the last one all come again, in another order."""
        turn, place = divmod(self._at[source], self._sizes[source])
        if place == 0:
            rng = np.random.default_rng([*self._key, source, turn])
            self._orders[source] = rng.permutation(self._sizes[source])
        self._at[source] += 1
        return int(self._orders[source][place])
