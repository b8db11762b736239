"""Batches that can be wound back: the position in a loader, and the way to it.

A position is an epoch, the number of batches handed out, and the random state from before the
epoch's ``iter()``. Going there means making the iterator anew from that state and passing over
the batches before it; the random streams then go on where the restored state has them, so that
shuffling, augmentation and dropout are the same as the first time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader, IterableDataset

from it2nb.core.errors import Rejected
from it2nb.pytorch import rng
from it2nb.pytorch.evaluate import streams_of

if TYPE_CHECKING:
    from it2nb.core.session import Session

_KEY = "loop"


class Batches:
    """Iterates over a loader, or any iterable, and can go back in it.

    Part of a session's state. Training thread.

    Parameters
    ----------
    session : Session
    items : iterable

    Attributes
    ----------
    epoch : int
        Times that the items were gone through.
    index : int
        Items of this epoch that were handed out: the next one's place.
    is_running : bool
        Whether a loop stands in it.
    """

    def __init__(self, session: Session, items: Iterable[Any]) -> None:
        self._session = session
        self.epoch = 0
        self.index = 0
        self.is_running = False
        #: Random state from before the ``iter()`` of this epoch; None between two epochs.
        self._start: dict[str, Any] | None = None
        self._wanted: Mapping[str, Any] | None = None
        self.take(items)

    def take(self, items: Iterable[Any]) -> None:
        """Go through these items from now on: a loader that was made anew."""
        self.items = items
        found = streams_of(items) if isinstance(items, DataLoader) else []
        self._streams = {str(number): each for number, each in enumerate(found)}

    @property
    def replays(self) -> bool:
        """Whether a loop stands in these items and they can be gone through again."""
        return self.is_running and not isinstance(self.items, Iterator)

    @property
    def caveat(self) -> str | None:
        """What does not go back, in words; None when everything does."""
        if getattr(self.items, "persistent_workers", False):
            return (
                "the batches come in the same order; workers that persist keep their own random "
                "streams, so random augmentation in them goes on (persistent_workers=False "
                "repeats it)"
            )
        return None

    def run(self, epochs: int) -> Iterator[Any]:
        """Hand out the items, `epochs` times over, from wherever the position is put meanwhile."""
        self.is_running = True
        try:
            yield from self._run(epochs)
        finally:
            self.is_running = False
            if self.index or self._start is not None:  # left by break, return or an error
                self._end_epoch()

    def left(self, first: int, epochs: int) -> int | None:
        """How many items are to come in a loop that began with epoch `first`; None if unknown."""
        length = _length(self.items)
        if length is None:
            return None
        place = self._wanted or {"epoch": self.epoch, "index": self.index}
        end = first + epochs if place["epoch"] >= first else place["epoch"] + 1
        return int(max(0, (end - place["epoch"]) * length - place["index"]))

    def _run(self, epochs: int) -> Iterator[Any]:
        first = self.epoch
        end = first + epochs
        iterator: Iterator[Any] | None = None
        # The arms of a fork may need more batches than are left; they are taken back.
        while self.epoch < end or self._wanted is not None or self._session.gate.only:
            if self._wanted is not None:
                iterator = self._go_to(self._wanted)
                self._wanted = None
                # An earlier epoch than this loop began with: a loop of the user's counts them.
                end = self.epoch + 1 if self.epoch < first else first + epochs
                continue
            if iterator is None:
                self._start = rng.capture(self._streams)
                iterator = iter(self.items)
            try:
                item = next(iterator)
            except StopIteration:
                iterator = None
                self._end_epoch()
                continue
            self.index += 1
            yield item
            del item  # the next one may need its memory

    def _end_epoch(self) -> None:
        self.epoch += 1
        self.index = 0
        self._start = None

    def _go_to(self, wanted: Mapping[str, Any]) -> Iterator[Any] | None:
        self.epoch, self.index = wanted["epoch"], wanted["index"]
        self._start = wanted["start"]
        if self._start is None:
            return None
        present = rng.capture()
        _set_epoch(self.items, wanted["sampler_epoch"])
        rng.restore(self._start, self._streams)
        iterator = iter(self.items)
        _pass_over(self.items, iterator, self.index)
        rng.restore({**present, "generators": wanted["own"]}, self._streams)
        return iterator

    def state_dict(self) -> dict[str, Any]:
        """Return the position, as plain data."""
        if self._wanted is not None:
            return dict(self._wanted)
        return {
            "epoch": self.epoch,
            "index": self.index,
            "length": _length(self.items),
            "start": self._start,
            "own": {name: rng.state_of(each) for name, each in self._streams.items()},
            "sampler_epoch": getattr(getattr(self.items, "sampler", None), "epoch", None),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> None:
        """Go to a position; the iterator gets there when the next item is asked for.

        Raises
        ------
        Rejected
            If it is a position in items of another length.
        """
        if isinstance(self.items, Iterator):  # a generator is used up
            return
        if state_dict["length"] != _length(self.items):
            raise Rejected(
                f"the position is one in {state_dict['length']} batches, and the loop has "
                f"{_length(self.items)}"
            )
        self._wanted = dict(state_dict)


def batches_of(session: Session, items: Iterable[Any]) -> Batches:
    """Return the session's batches over `items`; the same ones each time they are looped over."""
    known = {
        name: each for name, each in session.bound.stateful.items() if isinstance(each, Batches)
    }
    for each in known.values():
        if each.items is items:
            return each
    for each in known.values():
        if not each.is_running and _length(each.items) == _length(items):
            each.take(items)
            return each
    made = Batches(session, items)
    session.bound.stateful[f"{_KEY}_{len(known)}" if known else _KEY] = made
    return made


def _length(items: Iterable[Any]) -> int | None:
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:  # an iterable dataset, a generator
        return None


def _set_epoch(items: Iterable[Any], epoch: int | None) -> None:
    """Tell a sampler that shuffles by the number of the epoch which one it is."""
    setter = getattr(getattr(items, "sampler", None), "set_epoch", None)
    if epoch is not None and callable(setter):
        setter(epoch)


def _pass_over(items: Iterable[Any], iterator: Iterator[Any], count: int) -> None:
    """Let `count` items go by, without loading them where their indices alone are enough."""
    # Workers draw random numbers of their own for each item: they have to do it again.
    if (
        isinstance(items, DataLoader)
        and items.num_workers == 0
        and not isinstance(items.dataset, IterableDataset)
        and hasattr(iterator, "_next_index")
    ):
        for _ in range(count):
            iterator._next_index()
        return
    for _ in range(count):
        next(iterator)
