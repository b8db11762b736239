"""Schedulers: which ones drive an optimizer, and every place where they keep an absolute value.

All schedulers of `torch.optim.lr_scheduler` are homogeneous: multiply the lr in the group and
every absolute lr that the scheduler keeps by one number, and the rest of the schedule is the
old one times that number. The table below lists these places. A scheduler that is not in it
(or a loop that writes lr by itself) is left alone, and its value is multiplied during the step
instead (`setting.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose
from typing import Any

import torch
from torch.optim.lr_scheduler import ChainedScheduler, SequentialLR

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
