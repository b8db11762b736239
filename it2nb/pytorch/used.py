"""The learning rate that an update used, read when it was used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch


class Used:
    """Reads ``lr`` of optimizers in a hook of their own: after every edit, before the update.

    Training thread.
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._handles: list[Any] = []

    def watch(self, optimizers: Iterable[Any]) -> None:
        """Watch these, and no others any more."""
        self.close()
        several = list(optimizers)
        for at, optimizer in enumerate(several):
            register = getattr(optimizer, "register_step_pre_hook", None)
            if register is None or not optimizer.param_groups:
                continue
            name = "lr" if len(several) == 1 else f"lr_{at}"
            self._handles.append(register(self._hook(name)))

    def _hook(self, name: str) -> Any:
        def hook(optimizer: Any, args: Any, kwargs: Any) -> None:
            groups = optimizer.param_groups
            rate = groups[0].get("lr") if groups else None
            if type(rate) is not float or not rate:
                rate = _standing([group.get("lr") for group in groups])
            if rate is not None:
                self._values[name] = rate

        return hook

    def values(self) -> Mapping[str, Any]:
        """Return what the last update used."""
        return self._values

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._values.clear()


def _standing(rates: Sequence[Any]) -> Any:
    """Choose the rate that stands for all: the first that is not 0.

    Tensors on a device are not waited for: they count as not 0.
    """
    for rate in rates:
        if isinstance(rate, torch.Tensor):
            return rate.clone()  # the next edit fills it in place
        if rate:
            return rate
    return rates[0] if rates else None
