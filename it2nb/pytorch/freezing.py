"""Freezing modules in mid-run, and training them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from torch import nn

from it2nb.core.errors import Rejected


class Freezer:
    """Freezes modules and remembers what it froze."""

    def __init__(self) -> None:
        self._frozen: dict[str, list[nn.Parameter]] = {}

    def freeze(self, models: Sequence[nn.Module], name: str, module: nn.Module) -> dict[str, Any]:
        """Let the parameters of a module stay as they are from the next step on.

        Raises
        ------
        Rejected
            When nothing would be left to train, or the model can't take it.
        """
        if any(isinstance(each, nn.parallel.DistributedDataParallel) for each in models):
            raise Rejected("DistributedDataParallel fixes at the start what is trained")
        chosen = [each for each in module.parameters() if each.requires_grad]
        ours = {id(each) for each in chosen}
        rest = [p for m in models for p in m.parameters() if p.requires_grad and id(p) not in ours]
        if not chosen:
            raise Rejected(f"{name!r} is frozen already")
        if not rest:
            raise Rejected(f"freezing {name!r} would leave nothing to train")
        for each in chosen:
            each.requires_grad_(False)
            # A gradient that stays would go on moving it: optimizers look at nothing else.
            each.grad = None
        self._frozen.setdefault(name, []).extend(chosen)
        return {"name": name, "tensors": len(chosen)}

    def unfreeze(
        self, name: str, module: nn.Module, optimizers: Iterable[Any] = ()
    ) -> dict[str, Any]:
        """Train a module again: what `freeze` froze of it, else all of it.

        Raises
        ------
        Rejected
            When nothing of it is frozen.
        """
        inside = {id(each) for each in module.parameters()}
        chosen = [p for kept in self._frozen.values() for p in kept if id(p) in inside]
        chosen = chosen or list(module.parameters())
        chosen = [p for p in chosen if not p.requires_grad and p.is_floating_point()]
        if not chosen:
            raise Rejected(f"nothing of {name!r} is frozen")
        for each in chosen:
            each.requires_grad_(True)
        done = {id(each) for each in chosen}
        self._frozen = {
            key: left
            for key, kept in self._frozen.items()
            if (left := [each for each in kept if id(each) not in done])
        }
        held = {id(p) for o in optimizers for group in o.param_groups for p in group["params"]}
        outside = sum(1 for each in chosen if id(each) not in held)
        told = {"name": name, "tensors": len(chosen)}
        if outside:
            told["in_no_optimizer"] = outside
        return told
