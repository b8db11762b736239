"""Steps inside of steps: of another optimizer, or of the class that a step is inherited from.

PyTorch puts its hooks around ``step`` of each class that an optimizer was ever made of. So
``super().step()`` in a class of the user's runs them a second time for one update, as soon as
an optimizer of the parent's class exists anywhere in the process.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import CodeType
from typing import Any

from torch.optim import Optimizer

#: Code around a step, whose first positional argument is the optimizer.
AROUND: set[CodeType] = set()


def is_layered(optimizer: Any) -> bool:
    """Whether the step of an optimizer may call one that its class inherits."""
    classes = [each for each in type(optimizer).__mro__ if each is not Optimizer]
    return sum("step" in vars(each) for each in classes) > 1


def is_inner(optimizer: Any) -> bool:
    """Whether the step that begins or ends is part of a step of the same optimizer."""
    return sum(each is optimizer for each in _under_way()) > 1


def is_inside_another() -> bool:
    """Whether the step that begins is part of any other step (a wrapper, SAM, ZeRO)."""
    return sum(1 for _ in _under_way()) > 1


def _under_way() -> Iterator[Any]:
    """Yield the optimizers whose hooked steps are on this thread's stack, innermost first."""
    AROUND.add(Optimizer.profile_hook_step(is_inner).__code__)
    frame: Any = sys._getframe()
    while frame is not None:
        if frame.f_code in AROUND:
            yield next(iter(frame.f_locals.get("args") or ()), None)
        frame = frame.f_back
