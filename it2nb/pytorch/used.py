"""The learning rate that an update used, read when it was used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from it2nb.pytorch.edits import first_nonzero


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
            rates = [group.get("lr") for group in optimizer.param_groups]
            rate = rates[0] if len(rates) == 1 else rates[first_nonzero(_plain(rates))]
            if rate is not None:
                # A tensor is filled in place by the next edit.
                self._values[name] = rate.clone() if isinstance(rate, torch.Tensor) else rate

        return hook

    def values(self) -> dict[str, Any]:
        """Return what the last update used."""
        return dict(self._values)

    def close(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._values.clear()


def _plain(rates: list[Any]) -> list[Any]:
    """Tensors on a device are not waited for: they count as not 0."""
    return [1.0 if isinstance(rate, torch.Tensor) else rate for rate in rates]
