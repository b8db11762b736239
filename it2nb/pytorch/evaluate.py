"""Evaluation that leaves the training as it was.

Random streams, loader order, train and eval flags of every module and grad mode are the same
afterwards as before, whatever the user's function does, also when it raises.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from it2nb.pytorch import rng
from it2nb.pytorch.state import bare

if TYPE_CHECKING:
    from it2nb.core.session import Session


@contextmanager
def undisturbed(models: Iterable[nn.Module] = (), of: Any = None) -> Iterator[None]:
    """Evaluate inside: models in eval mode, no gradients, everything put back afterwards.

    Parameters
    ----------
    models : iterable of torch.nn.Module
        Set to eval mode.
    of : any
        The function that evaluates. The models, loaders and generators that it refers to, by
        its globals and closure, are looked after too.
    """
    found = list(referents(of)) if of is not None else []
    several = [*models, *(each for each in found if isinstance(each, nn.Module))]
    modules = {id(part): part for each in several for part in bare(each).modules()}
    loaders = [each for each in found if isinstance(each, DataLoader)]
    streams = [each for each in found if isinstance(each, _STREAMS)]
    streams += [each for loader in loaders for each in streams_of(loader)]
    flags = [(part, part.training) for part in modules.values()]
    with ExitStack() as stack:
        stack.enter_context(rng.preserved(*{id(each): each for each in streams}.values()))
        for loader in loaders:
            stack.enter_context(_own_workers(loader))
        stack.callback(_put_back, flags)
        # Not inference mode: what is made under it can never meet autograd again.
        stack.enter_context(torch.no_grad())
        for each in several:
            bare(each).eval()
        yield


def evaluate(function: Callable[[], Any], models: Iterable[nn.Module] = ()) -> dict[str, float]:
    """Run an evaluation and return its metrics as numbers. Training thread, control point.

    Parameters
    ----------
    function : callable
        Without arguments; returns a mapping of name to number, or one number.
    models : iterable of torch.nn.Module

    Returns
    -------
    dict of str to float
        A single number is called ``evaluate``.
    """
    with undisturbed(models, of=function):
        found = function()
    several = found if isinstance(found, Mapping) else {"evaluate": found}
    return {str(name): float(value) for name, value in several.items()}


def install(session: Session) -> None:
    """Make the session's `evaluate` leave the training as it was."""
    spec = session.actions["evaluate"]
    inner = spec.handler

    def handler(payload: dict[str, Any], session: Session) -> Any:
        if session.evaluator is None:
            return inner(payload, session)
        with undisturbed(session.bound.models, of=session.evaluator):
            return inner(payload, session)

    session.actions.register(replace(spec, handler=handler), replace=True)


_STREAMS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)


def referents(function: Any) -> Iterator[Any]:
    """List what a function refers to by name: globals, closure, defaults, its own object."""
    seen: set[int] = set()
    waiting = [function]
    while waiting and len(seen) < 1000:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, type):
            continue
        if isinstance(each, types.MethodType):
            waiting += [
                each.__func__,
                each.__self__,
                *getattr(each.__self__, "__dict__", {}).values(),
            ]
        elif isinstance(each, types.FunctionType):
            waiting += _named_by(each.__code__, each.__globals__)
            waiting += [cell.cell_contents for cell in each.__closure__ or () if _filled(cell)]
            waiting += [*(each.__defaults__ or ()), *(each.__kwdefaults__ or {}).values()]
        elif hasattr(each, "func") and hasattr(each, "args") and callable(each):  # partial
            waiting += [each.func, *each.args, *getattr(each, "keywords", {}).values()]
        elif isinstance(each, (list, tuple)) and len(each) < 100:
            waiting += each
        elif isinstance(each, dict) and len(each) < 100:
            waiting += each.values()
        elif isinstance(each, (nn.Module, DataLoader, *_STREAMS)):
            yield each


def _named_by(code: types.CodeType, names: Mapping[str, Any]) -> list[Any]:
    """Look up the global names that the code and the functions inside it use."""
    found = [names[name] for name in code.co_names if name in names]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            found += _named_by(constant, names)
    return found


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # an empty cell raises
    except ValueError:
        return False
    return True


def streams_of(loader: DataLoader[Any]) -> list[Any]:
    """Find the generators of a loader and its samplers."""
    holders = [loader, loader.sampler, loader.batch_sampler]
    holders.append(getattr(loader.batch_sampler, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return [each for each in found if isinstance(each, _STREAMS)]


@contextmanager
def _own_workers(loader: DataLoader[Any]) -> Iterator[None]:
    """Keep an evaluation from restarting the iteration that training is in the middle of.

    A loader with persistent workers has one iterator, and every ``iter()`` resets it.
    """
    if not getattr(loader, "persistent_workers", False):
        yield
        return
    kept, loader._iterator = loader._iterator, None
    try:
        yield
    finally:
        loader._iterator = kept


def _put_back(flags: list[tuple[nn.Module, bool]]) -> None:
    for part, training in flags:
        part.training = training
