"""Steps of optimizers that have none of PyTorch's hooks: wrapped, as a bound method.

PyTorch's hooks stand around ``step`` of each class whose constructor called
``super().__init__()``. Some classes never do, and some optimizers are no `torch.optim.Optimizer`.
"""

from __future__ import annotations

import functools
import types
import weakref
from typing import Any

import torch

from it2nb.pytorch import layered
from it2nb.pytorch.switchboard import switchboard

_MARK = "_it2nb_patched"


class Wrapped:
    """A wrapped step, that can be put back. Holds the optimizer weakly."""

    def __init__(self, optimizer: Any, step: Any, before: Any) -> None:
        self._optimizer = weakref.ref(optimizer)
        self._step = step
        self._before = before

    def remove(self) -> None:
        """Put back what was there, unless somebody wrapped it in turn: then it stays, idle."""
        optimizer = self._optimizer()
        own = None if optimizer is None else vars(optimizer).get("step")
        if getattr(own, "__func__", None) is not self._step:
            return
        if self._before is None:
            del optimizer.step  # type: ignore[union-attr]
        else:
            optimizer.step = self._before  # type: ignore[union-attr]


def wrap(optimizer: Any) -> Wrapped | None:
    """Call the switchboard around the steps of an optimizer without PyTorch's hooks.

    As a bound method: a scheduler that is made later looks for its ``__func__`` (CASES C36).

    Returns
    -------
    Wrapped or None
        None where nothing had to be done.
    """
    if (
        _has_hooks(optimizer)
        or hasattr(optimizer.step, _MARK)
        or not hasattr(optimizer, "__dict__")
    ):
        return None
    original = optimizer.step

    def step(*args: Any, **kwargs: Any) -> Any:
        own = args[0]
        if _has_hooks(own):  # by now: another one of its class was made
            return original(*args[1:], **kwargs)
        switchboard().before(own)
        result = original(*args[1:], **kwargs)
        switchboard().after(own)
        return result

    functools.update_wrapper(step, getattr(original, "__func__", original))
    setattr(step, _MARK, True)
    layered.AROUND.add(step.__code__)
    before = vars(optimizer).get("step")
    optimizer.step = types.MethodType(step, optimizer)
    return Wrapped(optimizer, step, before)


def _has_hooks(optimizer: Any) -> bool:
    return isinstance(optimizer, torch.optim.Optimizer) and bool(
        getattr(type(optimizer).step, "hooked", False)
    )
