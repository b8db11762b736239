"""An optimizer's state, put back without replacing what others hold references to.

`torch.optim.Optimizer.load_state_dict` alone makes three kinds of trouble: it keeps the tensors
that it is given (the next step would write into a snapshot), it casts moments to the dtype of
their parameter (fp32 moments of bf16 weights lose bits), and it puts new groups and new tensors
in the place of those that schedulers, users and captured CUDA graphs hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import Optimizer

from it2nb.pytorch.plain import expand


def unwrapped(optimizer: Any) -> Any:
    """Return the optimizer inside a wrapper (Accelerate's, for one)."""
    inner = getattr(optimizer, "optimizer", None)
    return inner if isinstance(inner, Optimizer) else optimizer


def restore_optimizer(optimizer: Any, saved: Any, where: str, clone: bool) -> None:
    """Load `saved` into `optimizer`; groups and tensors keep their identity where they match.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer or any
        Anything else is given to its own ``load_state_dict``.
    saved : plain tree
        From its ``state_dict()``.
    where : str
        Names it in errors.
    clone : bool
        `saved` is used again.
    """
    target = unwrapped(optimizer)
    tree = expand(saved, target.state_dict(), where=where, clone=clone)
    own = vars(target) if hasattr(target, "__dict__") else {}
    if not isinstance(target, Optimizer) or not {"param_groups", "state"} <= own.keys():
        target.load_state_dict(tree)
        return
    groups, state = target.param_groups, target.state
    before = [dict(group) for group in groups]
    tensors = {key: dict(entry) for key, entry in state.items() if isinstance(entry, dict)}
    target.load_state_dict(tree)
    parameters = _by_index(tree, target)
    for index, entry in tree["state"].items():
        parameter = parameters.get(index)
        if isinstance(entry, dict) and parameter is not None and parameter in target.state:
            known = tensors.get(parameter, {})
            _settle(target.state[parameter], entry, known)
    _keep_groups(target, groups, before)
    loaded = dict(target.state)
    state.clear()
    state.update(loaded)
    target.state = state


def _by_index(tree: Mapping[str, Any], optimizer: Optimizer) -> dict[Any, torch.Tensor]:
    indices = [index for group in tree["param_groups"] for index in group["params"]]
    live = [each for group in optimizer.param_groups for each in group["params"]]
    return dict(zip(indices, live, strict=True))


def _settle(live: dict[Any, Any], saved: dict[Any, Any], known: dict[Any, Any]) -> None:
    """Give each loaded tensor its saved dtype again, inside the tensor that was there before."""
    for key, value in saved.items():
        loaded = live.get(key)
        if not isinstance(value, torch.Tensor) or not isinstance(loaded, torch.Tensor):
            # load_state_dict rebuilds any iterable, text too, as type(value)(generator).
            if isinstance(value, (str, bytes)):
                live[key] = value
            continue
        if loaded.dtype != value.dtype:
            loaded = value.to(device=loaded.device)
        live[key] = _into(known.get(key), loaded)


def _into(old: Any, new: torch.Tensor) -> torch.Tensor:
    """Fill the old tensor with the new one's values if it can hold them exactly."""
    if (
        isinstance(old, torch.Tensor)
        and type(old) is type(new)
        and old is not new
        and old.shape == new.shape
        and old.dtype == new.dtype
        and old.device == new.device
        and old.layout == new.layout
    ):
        with torch.no_grad():
            return old.copy_(new)
    return new


def _keep_groups(
    optimizer: Optimizer, groups: list[dict[str, Any]], before: list[dict[str, Any]]
) -> None:
    """Put the loaded groups' contents into the dicts and the list that were there before."""
    for group, old, loaded in zip(groups, before, optimizer.param_groups, strict=True):
        fresh = {key: _same_kind(old.get(key), value) for key, value in loaded.items()}
        group.clear()
        group.update(fresh)
    optimizer.param_groups = groups


def _same_kind(old: Any, new: Any) -> Any:
    """Keep a tensor lr a tensor, the same one, and a float a float."""
    if isinstance(old, torch.Tensor) and old.ndim == 0:
        with torch.no_grad():
            if isinstance(new, torch.Tensor):
                return old.copy_(new)
            if isinstance(new, (int, float)) and not isinstance(new, bool):
                return old.fill_(new)
    if type(old) is float and isinstance(new, torch.Tensor) and new.ndim == 0:
        return float(new)
    return new
