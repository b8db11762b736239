"""Schedulers: which ones drive an optimizer, and every place where they keep an absolute value.

All schedulers of `torch.optim.lr_scheduler` are homogeneous: multiply the lr in the group and
every absolute lr that the scheduler keeps by one number, and the rest of the schedule is the
old one times that number. The table below lists these places. A scheduler that is not in it
(or a loop that writes lr by itself) is left alone, and its value is multiplied during the step
instead (`setting.py`).
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import torch
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler, SequentialLR

from it2nb.pytorch.groups import Cell, Group

_TORCH = ("torch.optim.lr_scheduler", "torch.optim.swa_utils")
_OVERRIDDEN = ("get_lr", "step", "_get_closed_form_lr", "_update_lr", "_reduce_lr")


@dataclass(frozen=True, slots=True)
class Places:
    """Where one class of schedulers keeps absolute values.

    Attributes
    ----------
    lists : tuple of str
        Attributes with one lr a group, beside ``base_lrs`` and ``_last_lr``.
    scalars : tuple of str
        Attributes that hold one lr for all groups: they can only be scaled with all of them.
    thresholds : tuple of str
        The same, but small and left alone when the groups are scaled differently.
    group_keys : tuple of str
        Entries of the parameter group, beside ``initial_lr``.
    momentum_lists, momentum_keys : tuple of str
        The same for momentum.
    multiplies : bool
        The next lr is the lr in the group times a number: from 0 it never moves again.
    """

    lists: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    thresholds: tuple[str, ...] = ()
    group_keys: tuple[str, ...] = ()
    momentum_lists: tuple[str, ...] = ()
    momentum_keys: tuple[str, ...] = ()
    multiplies: bool = False


_PLAIN = Places()
_MULTIPLIES = Places(multiplies=True)

PLACES: Mapping[str, Places] = {
    "LambdaLR": _PLAIN,
    "MultiplicativeLR": _MULTIPLIES,
    "StepLR": _MULTIPLIES,
    "MultiStepLR": _MULTIPLIES,
    "ConstantLR": _MULTIPLIES,
    "LinearLR": _MULTIPLIES,
    "ExponentialLR": _MULTIPLIES,
    "PolynomialLR": _MULTIPLIES,
    "CosineAnnealingLR": Places(scalars=("eta_min",)),
    "CosineAnnealingWarmRestarts": Places(scalars=("eta_min",)),
    "CyclicLR": Places(
        lists=("max_lrs",),
        momentum_lists=("base_momentums", "max_momentums"),
        momentum_keys=("base_momentum", "max_momentum"),
    ),
    "OneCycleLR": Places(
        group_keys=("max_lr", "min_lr"), momentum_keys=("base_momentum", "max_momentum")
    ),
    "ReduceLROnPlateau": Places(
        lists=("min_lrs",), thresholds=("default_min_lr", "eps"), multiplies=True
    ),
    "SWALR": Places(group_keys=("swa_lr",)),
    # transformers; the others there are LambdaLR.
    "GreedyLR": Places(
        lists=("min_lrs", "max_lrs", "_init_lrs"), thresholds=("eps",), multiplies=True
    ),
}


def places_of(scheduler: Any) -> Places | None:
    """Return where a scheduler keeps absolute values; None when that is not known.

    A subclass of a known one counts as known while it inherits the arithmetic.
    """
    kind = type(scheduler)
    for each in kind.__mro__:
        known = PLACES.get(each.__name__)
        if known is None or not (
            each.__module__ in _TORCH or each.__module__.startswith("transformers.")
        ):
            continue
        own = all(getattr(kind, n, None) is getattr(each, n, None) for n in _OVERRIDDEN)
        return known if own else None
    return None


def leaves(scheduler: Any) -> Iterator[Any]:
    """Yield the schedulers inside SequentialLR and ChainedScheduler, or the one itself."""
    inner = getattr(scheduler, "_schedulers", None)
    step = getattr(type(scheduler), "step", None)
    if inner is None or step not in (SequentialLR.step, ChainedScheduler.step):
        yield scheduler
        return
    for each in inner:
        yield from leaves(each)


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
            for each in gc.get_objects():
                if issubclass(type(each), LRScheduler) and (
                    getattr(each, "optimizer", None) is optimizer
                ):
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


def same_lr(one: float, other: float) -> bool:
    """Equal up to the rounding of a float32 tensor."""
    return isclose(one, other, rel_tol=1e-6)


def multiplies(schedulers: Iterable[Any]) -> bool:
    """Whether an lr of 0 stays 0 for ever under these schedulers, unless it is written."""
    found = [places_of(leaf) for each in schedulers for leaf in leaves(each)]
    return all(each is not None and each.multiplies for each in found)


def scale(
    schedulers: Sequence[Any],
    cell: Cell,
    groups: Sequence[Group],
    factors: Mapping[int, float],
    below: float | None = None,
) -> bool:
    """Multiply every absolute value that the schedulers keep, for some groups.

    The value in the group itself is left to the caller.

    Parameters
    ----------
    schedulers : sequence
        Outermost ones, all that drive `cell`.
    cell : Cell
        lr, momentum or betas[0].
    groups : sequence of parameter groups
    factors : mapping of group index to factor
        Groups that are not in it keep their schedule.
    below : float, optional
        Values are kept at or below it: momentum has to stay under 1.

    Returns
    -------
    bool
        False when nothing was touched: a scheduler is not known, or keeps one value for
        groups that would need different ones.
    """
    found = [leaf for each in schedulers for leaf in leaves(each)]
    known = [places_of(leaf) for leaf in found]
    if any(each is None for each in known):
        return False
    same = len(factors) == len(groups) and all(
        isclose(f, factors[0], rel_tol=1e-9) for f in factors.values()
    )
    lr = cell.name == "lr"
    pairs = [(leaf, each) for leaf, each in zip(found, known, strict=True) if each is not None]
    if lr and not same and any(getattr(s, n) for s, p in pairs for n in p.scalars):
        return False

    def by(value: Any, factor: float) -> Any:
        return _times(value, factor, below)

    keys = {"initial_lr"} if lr else set()
    for leaf, places in pairs:
        keys.update(places.group_keys if lr else places.momentum_keys)
        names = ("base_lrs", *places.lists) if lr else places.momentum_lists
        for name in names:
            _scale_list(getattr(leaf, name, None), factors, by)
        if lr and same:
            for name in (*places.scalars, *places.thresholds):
                value = getattr(leaf, name, None)
                if value is not None:
                    setattr(leaf, name, by(value, factors[0]))
    for at, factor in factors.items():
        for key in keys & groups[at].keys():
            groups[at][key] = by(groups[at][key], factor)
    if lr:
        # A container hands out the very list of its child: once each.
        lists = {id(x): x for s in (*schedulers, *found) if (x := getattr(s, "_last_lr", None))}
        for each in lists.values():
            _scale_list(each, factors, by)
    return True


def peak(schedulers: Iterable[Any], groups: Sequence[Group]) -> float:
    """Return the largest lr that the schedulers keep: roughly where the schedule will go."""
    found = [float(g[k]) for g in groups for k in ("initial_lr", "max_lr", "swa_lr") if k in g]
    for each in schedulers:
        for leaf in leaves(each):
            found += [float(v) for n in ("base_lrs", "max_lrs") for v in getattr(leaf, n, ())]
    return max(found, default=0.0)


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


def _scale_list(values: Any, factors: Mapping[int, float], by: Callable[[Any, float], Any]) -> None:
    if not isinstance(values, list):
        return
    for at, factor in factors.items():
        if at < len(values):
            values[at] = by(values[at], factor)


def _times(value: Any, factor: float, below: float | None) -> Any:
    if isinstance(value, torch.Tensor):
        with torch.no_grad():
            return value.mul_(factor) if below is None else value.mul_(factor).clamp_(max=below)
    product = value * factor
    return product if below is None else min(product, below)
