"""Which schedulers drive an optimizer: those that we are told of, and those that are found."""

from __future__ import annotations

import gc
import inspect
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from math import isclose
from typing import Any

from torch.optim.lr_scheduler import LRScheduler

from it2nb.pytorch.groups import Cell
from it2nb.pytorch.places import leaves


def unwrapped(each: Any, attribute: str) -> Any:
    """Return what stands inside a wrapper (Accelerate's, for one)."""
    for _ in range(4):
        inner = getattr(each, attribute, None)
        if inner is None or not hasattr(inner, "step"):
            break
        each = inner
    return each


class Schedulers:
    """The schedulers that drive one optimizer. Holds neither of them.

    Parameters
    ----------
    optimizer : weakref to the optimizer
    bound : callable
        Returns the schedulers that the session knows, of any optimizer.
    """

    def __init__(
        self, optimizer: Callable[[], Any], bound: Callable[[], Iterable[Any]] = tuple
    ) -> None:
        self._optimizer = optimizer
        self._bound = bound
        self._found: weakref.WeakSet[Any] = weakref.WeakSet()
        self._again_at = 0.0
        self._looked = False
        self._held = 0

    def all(self) -> list[Any]:
        """Return those that are known, outermost ones only."""
        optimizer = self._optimizer()
        if optimizer is None:
            return []
        given = [unwrapped(each, "scheduler") for each in self._bound()]
        known: dict[int, Any] = {}
        for each in (*given, *self._found):
            if unwrapped(getattr(each, "optimizer", None), "optimizer") is optimizer:
                known.setdefault(id(each), each)
        inside = {
            id(leaf) for each in known.values() for leaf in _below(each)
        }  # children of another one that is known
        return [each for key, each in known.items() if key not in inside]

    def driving(self, cell: Cell) -> list[Any]:
        """Return those that move the hyper-parameter `cell`."""
        if cell.name == "lr":
            return self.all()
        if cell.name in ("momentum", "betas[0]"):
            return [s for s in self.all() if any(_cycles(leaf, cell) for leaf in leaves(s))]
        return []

    def catch_up(self) -> None:
        """Look for another scheduler that was made since the last edit, beside known ones.

        A second phase of a training makes one, and the first one's is not told of it. Each holds
        the optimizer, so the number of its holders has grown; other holders may have come too,
        and then the look was in vain.
        """
        optimizer = self._optimizer()
        if optimizer is None or sys.getrefcount(optimizer) == self._held:
            return
        self._again_at, self._looked = 0.0, False
        self.discover()
        self._held = sys.getrefcount(optimizer)

    def discover(self) -> bool:
        """Look for schedulers that no one told us of. Walks all objects: tens of ms.

        Returns
        -------
        bool
            Whether there is one now.
        """
        optimizer = self._optimizer()
        began = time.perf_counter()
        # PyTorch marks the step of an optimizer that ever had a scheduler, apart from one that
        # only has a ReduceLROnPlateau: without the mark one look is enough.
        marked = hasattr(getattr(optimizer, "step", None), "_wrapped_by_lr_sched")
        if optimizer is not None and began >= self._again_at and (marked or not self._looked):
            self._looked = True
            for each in _holders(optimizer):
                if _is_scheduler_of(each, optimizer):
                    self._found.add(each)
            # A slider that is dragged asks often: at most a fiftieth of the time goes into this.
            now = time.perf_counter()
            self._again_at = now if self._found else now + 50 * (now - began)
        return bool(self._found)

    def last(self, cell: Cell, at: int) -> float | None:
        """Return the lr that the schedulers computed last for group `at`, if they agree."""
        found = {_last_of(each, at) for each in self.driving(cell)} if cell.name == "lr" else set()
        return found.pop() if len(found) == 1 else None

    def who(self, cell: Cell, at: int, value: float) -> str:
        """Name who wrote `value` into group `at`: the class of a scheduler, or the loop."""
        for each in self.driving(cell):
            last = _last_of(each, at)
            if cell.name != "lr" or (last is not None and same_lr(last, value)):
                return type(each).__name__
        return "the loop"


def _holders(optimizer: Any) -> Iterator[Any]:
    """Yield the objects that hold it as an attribute, and others."""
    # The collector's own walk, in C: a third of the time of a loop over all objects.
    found = gc.get_referrers(optimizer)
    yield from found
    # An object whose attributes stand in a dict holds the dict, which holds the optimizer.
    attributes = [each for each in found if type(each) is dict]
    if attributes:
        yield from gc.get_referrers(*attributes)


def _is_scheduler_of(each: Any, optimizer: Any) -> bool:
    """Whether it is one of PyTorch's, or like them: `GreedyLR` of transformers is no subclass."""
    kind = type(each)
    if not issubclass(kind, LRScheduler) and not (
        # Read without running anything of an object that is a stranger.
        callable(inspect.getattr_static(kind, "step", None))
        and isinstance(inspect.getattr_static(each, "_last_lr", None), (list, tuple))
    ):
        return False
    return inspect.getattr_static(each, "optimizer", None) is optimizer


def same_lr(one: float, other: float) -> bool:
    """Equal up to the rounding of a float32 tensor."""
    return isclose(one, other, rel_tol=1e-6)


def _last_of(scheduler: Any, at: int) -> float | None:
    last = getattr(scheduler, "_last_lr", None)
    return float(last[at]) if isinstance(last, (list, tuple)) and at < len(last) else None


def _below(scheduler: Any) -> Iterator[Any]:
    for each in getattr(scheduler, "_schedulers", None) or ():
        yield each
        yield from _below(each)


def _cycles(leaf: Any, cell: Cell) -> bool:
    """Whether a scheduler cycles momentum, and under which name."""
    if not getattr(leaf, "cycle_momentum", False):
        return False
    return bool(getattr(leaf, "use_beta1", False)) == (cell.key == "betas")
