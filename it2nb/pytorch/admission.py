"""What may be set: refused before anything was touched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from it2nb.core.errors import Rejected
from it2nb.pytorch.groups import Cell, Group

if TYPE_CHECKING:
    from it2nb.pytorch.setting import Setting


def admit(setting: Setting, at: int, value: Any) -> None:
    """Raise `Rejected` when `value` would be invalid in group `at`."""
    rule, cell = setting.rule, setting.cell
    low, high = rule.min, rule.max
    if rule.dtype in ("float", "int") and (
        not math.isfinite(value)
        or (low is not None and value < low)
        or (high is not None and value > high)
    ):
        raise Rejected(
            f"group {at} would get {cell.name}={value:g}, outside of "
            f"[{-math.inf if low is None else low:g}, {math.inf if high is None else high:g}]; "
            f"set the groups one by one"
        )
    wrong = objection(setting.optimizer(), setting.groups()[at], cell, value)
    if wrong is not None:
        raise Rejected(wrong)
    if cell.name in ("momentum", "betas[0]") and setting.mode(at) == "rescale":
        _admit_cycle(setting, at, value)


def objection(optimizer: Any, group: Group, cell: Cell, value: Any) -> str | None:
    """Say why `value` contradicts other hyper-parameters of its group; None when it does not."""
    if cell.key == "step_sizes" and isinstance(optimizer, torch.optim.Rprop):
        low, high = map(float, group["step_sizes"])
        low, high = (value, high) if cell.index == 0 else (low, value)
        if low > high:
            return f"the shortest step {low:g} would be above the longest {high:g}"
    if isinstance(optimizer, torch.optim.SGD):
        after = {**group, cell.key: value}
        # Somebody's own subclass may have a constructor of its own, and fewer keys.
        momentum, dampening = (float(after.get(key, 0)) for key in ("momentum", "dampening"))
        if after.get("nesterov") and (momentum <= 0 or dampening != 0):
            return "Nesterov momentum needs momentum above 0 and dampening 0"
    return None


def _admit_cycle(setting: Setting, at: int, value: float) -> None:
    """Momentum under a cycle: what the cycle reaches has to stay below 1."""
    now = setting.value(at)
    top = float(setting.groups()[at].get("max_momentum", 0.0))
    if now and value != now and top * value / now >= 1 and setting.drivers.driving(setting.cell):
        raise Rejected(
            f"{setting.cell.name}={value:g} would scale the cycle's largest value to "
            f"{top * value / now:g}; ask for less than {now / top:g}, or pick mode hold"
        )
