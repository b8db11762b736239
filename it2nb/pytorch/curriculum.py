"""A curriculum: easy items first, and how many of them is a knob."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from it2nb.core.errors import KnobError, Rejected
from it2nb.core.rounds import is_number
from it2nb.pytorch.sampling import Draws, SteeredSampler

if TYPE_CHECKING:
    from it2nb.core.session import Session


class CurriculumSampler(SteeredSampler):
    """Draws from the easiest items; the share of items that it draws from is a knob.

    ::

        easy_first = it2nb.CurriculumSampler(lengths, share=0.3)
        loader = DataLoader(data, sampler=easy_first, batch_size=32)
        ...
        session.set("curriculum", 0.6)

    Every item of the share comes once before one comes again, in random order.

    Parameters
    ----------
    difficulties : sequence of float, shape (n,)
        One for each item of the data set; the smallest is the easiest.
    share : float, 0 < share <= 1
        To begin with.
    num_samples : int, optional
        Indices of one pass; n by default.
    seed : int
    session : Session, optional
        By default the run that lives, or else the one that starts next.
    knob : str
        What the knob is called.
    """

    def __init__(
        self,
        difficulties: Sequence[float],
        share: float = 1.0,
        *,
        num_samples: int | None = None,
        seed: int = 0,
        session: Session | None = None,
        knob: str = "curriculum",
    ) -> None:
        values = np.asarray(difficulties, dtype=np.float64)
        if values.ndim != 1 or not len(values) or np.isnan(values).any():
            raise KnobError("difficulties are one number for each item, and no NaN")
        if not is_number(share) or not 0.0 < share <= 1.0:
            raise KnobError(f"share={share!r} has to be above 0 and at most 1")
        self.order = np.argsort(values, kind="stable")
        self._knob = knob
        super().__init__({knob: share}, num_samples or len(values), seed=seed, session=session)

    def admit(self, settings: Mapping[str, float]) -> None:
        """See `SteeredSampler`."""
        if settings[self._knob] <= 0:
            raise Rejected("a share of 0 holds no item; the smallest share holds one")

    def describe(self, name: str) -> str:
        """See `SteeredSampler`."""
        return "share of the items that are drawn from, the easiest first"

    def begin(self, epoch: int) -> Pool:
        """See `SteeredSampler`."""
        return Pool(np.random.default_rng([self.seed, epoch]))

    def draw(self, pass_: Pool, settings: Mapping[str, float]) -> int:
        """See `SteeredSampler`."""
        size = max(1, math.ceil(settings[self._knob] * len(self.order)))
        return int(self.order[pass_.item(size)])


class Pool(Draws):
    """One pass: the items that are drawn from, without those that were just drawn."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(rng)
        self._size = 0
        self._left: list[Any] = []

    def item(self, size: int) -> int:
        """Return the next of `size` items."""
        if size != self._size or not self._left:
            self._size = size
            self._left = self.rng.permutation(size).tolist()
        return int(self._left.pop())
