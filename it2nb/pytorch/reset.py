"""Initialising a module anew in mid-run."""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from it2nb.core.errors import Rejected


def reset_module(
    module: nn.Module,
    optimizers: Iterable[Any] = (),
    *,
    seed: int | None = None,
    root: nn.Module | None = None,
) -> dict[str, Any]:
    """Initialise a module anew, in place, and let its optimizer moments go. Training thread.

    The global random streams are where they were afterwards.

    Parameters
    ----------
    module : torch.nn.Module
    optimizers : iterable of torch.optim.Optimizer
        In which its parameters may be.
    seed : int, optional
        Of the new weights; drawn from the operating system by default.
    root : torch.nn.Module, optional
        The whole model, for those that initialise their parts (transformers).

    Returns
    -------
    dict
        ``{"seed", "params", "moments"}``: the seed, how many parameter tensors were initialised,
        how many lost their optimizer state.

    Raises
    ------
    Rejected
        When some part does not know how to initialise itself; nothing was touched then.
    """
    ways = list(_ways(module, root))
    seed = secrets.randbelow(2**31) if seed is None else seed
    with _own_randomness(module, seed), torch.no_grad():
        for way in ways:
            way()
    parameters = list(module.parameters())
    dropped = sum(_drop_state(optimizer, parameters) for optimizer in optimizers)
    return {"seed": seed, "params": len(parameters), "moments": dropped}


def _ways(module: nn.Module, root: nn.Module | None) -> Iterator[Callable[[], Any]]:
    """Yield how to initialise each part, inner ones first, as constructors do."""
    for child in module.children():
        yield from _ways(child, root)
    for name in ("reset_parameters", "_reset_parameters"):
        way = getattr(module, name, None)
        if callable(way):
            yield way
            return
    if next(module.parameters(recurse=False), None) is None:
        return
    ours = getattr(root, "_init_weights", None)
    if not callable(ours):
        raise Rejected(
            f"nothing was reset: {type(module).__name__} has parameters of its own and no "
            f"reset_parameters(); give it that method"
        )
    yield lambda: ours(module)


@contextmanager
def _own_randomness(module: nn.Module, seed: int) -> Iterator[None]:
    """Seed the streams that initialisers draw from, and put them back."""
    indices = sorted({p.get_device() for p in module.parameters() if p.is_cuda})
    generators = [torch.default_generator, *(torch.cuda.default_generators[i] for i in indices)]
    kept = [each.get_state() for each in generators]
    python, numpy = random.getstate(), np.random.get_state()
    try:
        for each in generators:
            each.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        yield
    finally:
        for each, state in zip(generators, kept, strict=True):
            each.set_state(state)
        random.setstate(python)
        np.random.set_state(numpy)


def _drop_state(optimizer: Any, parameters: Iterable[nn.Parameter]) -> int:
    state = optimizer.state
    if isinstance(optimizer, torch.optim.LBFGS):
        # It remembers one flat vector of all parameters, under the first of them.
        ours = {id(each) for each in parameters}
        if any(id(each) in ours for group in optimizer.param_groups for each in group["params"]):
            dropped = len(state)
            state.clear()
            return dropped
        return 0
    return sum(1 for each in parameters if state.pop(each, None))
