"""Steps that ``torch.amp.GradScaler`` leaves out because a gradient was not finite.

A plain optimizer is not called at all then, so its step hooks stay silent; a fused one is
called and skips inside its kernel. Both are found by ``found_inf`` and told alike.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler


class ScalerWatch:
    """Notices steps that a GradScaler does not call.

    Parameters
    ----------
    skipped : callable
        Called with the optimizer and the scale after such a step.
    """

    def __init__(self, skipped: Callable[[Any, float | None], Any]) -> None:
        home: Any = GradScaler
        self._original = original = home._maybe_opt_step
        self._called: set[int] = set()
        self._is_open = True

        @functools.wraps(original)
        def watched(scaler: Any, optimizer: Any, state: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(scaler, optimizer, state, *args, **kwargs)
            # What decided it was read a moment ago: no further wait for the device.
            if self._is_open and any(v.item() for v in state["found_inf_per_device"].values()):
                skipped(optimizer, scale_of(scaler))
            return result

        self._watched = watched
        home._maybe_opt_step = watched

    def close(self) -> None:
        """Put the method back; one that others wrapped meanwhile stays, and does nothing."""
        self._is_open = False
        home: Any = GradScaler
        if home._maybe_opt_step is self._watched:
            home._maybe_opt_step = self._original


def scale_of(scaler: Any) -> float | None:
    """Return the loss scale."""
    scale = getattr(scaler, "_scale", None)
    return float(scale) if isinstance(scale, torch.Tensor) else None


def was_skipped(optimizer: Any) -> bool:
    """Whether a fused optimizer skipped the step that just ended. Waits for the device."""
    found = getattr(optimizer, "found_inf", None)
    return isinstance(found, torch.Tensor) and bool(found.item())
