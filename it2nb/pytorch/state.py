"""The state of a training: live objects to a plain tree, and back in place.

`Live` names the objects, `capture` reads them, `check` tells without touching anything whether
a tree fits them, `restore` writes it into them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from it2nb.core.errors import Rejected
from it2nb.pytorch import rng
from it2nb.pytorch.optimizer_state import restore_optimizer, unwrapped
from it2nb.pytorch.plain import Reducer, expand

#: What has to be there before anything can be saved.
NOTHING_BOUND = (
    "no model was found or bound; call session.bind(model=..., optimizers=..., schedulers=...)"
)


@runtime_checkable
class Stateful(Protocol):
    """Anything whose state is saved and restored with the rest: a loader, an EMA, a schedule."""

    def state_dict(self) -> Mapping[str, Any]:
        """Return the state: tensors, arrays, numbers, text, lists and dicts."""
        ...

    def load_state_dict(self, state_dict: Any, /) -> Any:
        """Take the state back."""
        ...


@dataclass
class Live:
    """The live objects of one training, by name.

    Attributes
    ----------
    models : dict of str to torch.nn.Module
    optimizers : dict of str to torch.optim.Optimizer
        Or anything with ``state_dict`` and ``load_state_dict``.
    schedulers : dict of str to any
        With ``state_dict`` and ``load_state_dict``.
    scaler : torch.amp.GradScaler, optional
    stateful : dict of str to Stateful
        Restored after the others.
    generators : dict of str to rng.Generator
        Random streams that are not global.
    """

    models: dict[str, nn.Module] = field(default_factory=dict)
    optimizers: dict[str, Any] = field(default_factory=dict)
    schedulers: dict[str, Any] = field(default_factory=dict)
    scaler: Any = None
    stateful: dict[str, Stateful] = field(default_factory=dict)
    generators: dict[str, rng.Generator] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.models or self.optimizers or self.stateful)


def named(objects: Any, stem: str) -> dict[str, Any]:
    """Give names to one object, several, or a mapping: ``model``, ``model_1``, ``model_2``."""
    if objects is None:
        return {}
    if isinstance(objects, Mapping):
        return {str(name): each for name, each in objects.items() if each is not None}
    # A Sequential is a module before it is an iterable of modules.
    if isinstance(objects, nn.Module) or not isinstance(objects, Iterable):
        objects = [objects]
    several = [each for each in objects if each is not None]
    return {stem if index == 0 else f"{stem}_{index}": e for index, e in enumerate(several)}


def bare(model: nn.Module) -> nn.Module:
    """Return the module inside ``torch.compile``, DataParallel and DDP: its names stay the same."""
    for _ in range(4):
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(
            model, (nn.DataParallel, nn.parallel.DistributedDataParallel)
        ):
            inner = model.module
        if not isinstance(inner, nn.Module):
            break
        model = inner
    return model


def capture(live: Live, reduce: Reducer, *, with_rng: bool = True) -> dict[str, Any]:
    """Read the state of all objects as one plain tree. Training thread, at a control point.

    Gradients are not part of it: at a control point they were used already.

    Parameters
    ----------
    live : Live
    reduce : Reducer
        Says whether tensors are copied and what may be in the tree.
    with_rng : bool
        Also the random streams.

    Raises
    ------
    Rejected
        If some state is not plain and the reducer is portable, or an object has no state_dict.
    """
    tree: dict[str, Any] = {
        "models": {
            name: _capture_model(bare(model), reduce, f"model {name!r}")
            for name, model in live.models.items()
        }
    }
    for kind, stem in (*_PARTS[1:], ("stateful", "state")):
        tree[kind] = {
            name: _state_dict(each, reduce, f"{stem} {name!r}")
            for name, each in getattr(live, kind).items()
        }
    if live.scaler is not None:
        tree["scaler"] = _state_dict(live.scaler, reduce, "scaler")
    if with_rng:
        tree["rng"] = rng.capture(live.generators)
    return tree


def check(live: Live, tree: Mapping[str, Any]) -> None:
    """Raise `Rejected` if `tree` does not fit the live objects; touches nothing."""
    for kind, stem in _PARTS:
        objects = getattr(live, kind)
        for name, saved in _paired(objects, tree.get(kind, {}), stem).items():
            _CHECKS[stem](objects[name], saved, f"{stem} {name!r}")
    scaler = tree.get("scaler")
    both = scaler is not None and live.scaler is not None
    if both and bool(scaler) != bool(live.scaler.state_dict()):
        raise Rejected("GradScaler " + _sides(bool(scaler), "enabled"))


def restore(live: Live, tree: Mapping[str, Any], *, clone: bool) -> list[str]:
    """Write a tree into the live objects, in place. Training thread, at a control point.

    Weights, optimizer state and parameter groups keep their identity where shape and type
    match, so that references from outside, and captured graphs, stay right. The random
    streams come last: nothing in here moves them.

    Parameters
    ----------
    live : Live
    tree : plain tree
        From `capture`, or from a file.
    clone : bool
        The tree is used again (a snapshot), so the live objects get copies.

    Returns
    -------
    list of str
        What was left out, in words.
    """
    notes: list[str] = []
    for kind, stem in _PARTS:
        objects = getattr(live, kind)
        for name, saved in _paired(objects, tree.get(kind, {}), stem).items():
            _RESTORES[stem](objects[name], saved, f"{stem} {name!r}", clone)
    if live.scaler is not None and tree.get("scaler"):
        _load(live.scaler, tree["scaler"], "scaler", clone)
    elif (live.scaler is None) != (tree.get("scaler") is None):
        notes.append("GradScaler left out: " + _sides(tree.get("scaler") is not None, "there"))
    for name, saved in tree.get("stateful", {}).items():
        if name in live.stateful:
            _load(live.stateful[name], saved, f"stateful {name!r}", clone)
        else:
            notes.append(f"state of {name!r} was saved and nothing of that name is bound: left out")
    if "rng" in tree:
        notes.extend(rng.restore(tree["rng"], live.generators))
    return notes


def _sides(saved: bool, what: str) -> str:
    return f"{what} in the saved state, not in the run" if saved else f"{what} in the run alone"


def _paired(objects: Mapping[str, Any], saved: Mapping[str, Any], stem: str) -> dict[str, Any]:
    """Match saved states with live objects: by name, or one with one whatever its name.

    Raises
    ------
    Rejected
        If a live object has no saved state, or the other way round.
    """
    if len(objects) == 1 and len(saved) == 1:
        return {next(iter(objects)): next(iter(saved.values()))}
    if set(objects) != set(saved):
        raise Rejected(
            f"the saved state has the {stem}s {sorted(saved)} and the run has {sorted(objects)}; "
            f"bind the same ones under the same names with session.bind(...)"
        )
    return {name: saved[name] for name in objects}


def _state_dict(each: Any, reduce: Reducer, where: str) -> Any:
    read = getattr(each, "state_dict", None)
    if not callable(read):
        raise Rejected(
            f"{where} is a {type(each).__name__} without state_dict(), so it can't be saved; "
            f"give it state_dict and load_state_dict, or leave it out of session.bind(...)"
        )
    return reduce(read(), where)


def _load(each: Any, saved: Any, where: str, clone: bool) -> None:
    each.load_state_dict(expand(saved, each.state_dict(), where=where, clone=clone))


# ------------------------------------------------------------------------------------ models


def _capture_model(model: nn.Module, reduce: Reducer, where: str) -> dict[str, Any]:
    state = model.state_dict()
    # state_dict leaves out buffers that are not persistent; going on to the bit needs them.
    buffers = {name: each for name, each in model.named_buffers() if name not in state}
    return {
        "state": reduce(state, where),
        "buffers": reduce(buffers, where),
        # Exceptions only: nearly all modules train and nearly all parameters learn, or none do.
        "evaluating": [name for name, each in model.named_modules() if not each.training],
        "frozen": [name for name, each in model.named_parameters() if not each.requires_grad],
    }


def _check_model(model: nn.Module, tree: Mapping[str, Any], where: str) -> None:
    live, saved = bare(model).state_dict(), tree["state"]
    missing, surplus = live.keys() - saved.keys(), saved.keys() - live.keys()
    if missing or surplus:
        said = [
            f"{what} {', '.join(sorted(names)[:3])}{', ...' if len(names) > 3 else ''}"
            for what, names in (("lacks", missing), ("has the unknown", surplus))
            if names
        ]
        raise Rejected(f"the saved state is another architecture's: {where} {' and '.join(said)}")
    for name, value in live.items():
        there = saved[name]
        if isinstance(value, torch.Tensor) and isinstance(there, torch.Tensor):
            if value.shape != there.shape:
                raise Rejected(
                    f"the saved state is another architecture's: {where}, {name} has shape "
                    f"{tuple(there.shape)} and the live one {tuple(value.shape)}"
                )
        elif isinstance(value, torch.Tensor) != isinstance(there, torch.Tensor):
            raise Rejected(f"the saved state is damaged: {where}, {name} is no tensor")


def _restore_model(model: nn.Module, saved: Mapping[str, Any], where: str, clone: bool) -> None:
    model = bare(model)
    # load_state_dict copies into the live tensors: no clone is needed for these.
    model.load_state_dict(expand(saved["state"], model.state_dict(), where=where, clone=False))
    modules = dict(model.named_modules())
    for name, value in saved.get("buffers", {}).items():
        owner, _, own_name = name.rpartition(".")
        buffers = modules[owner]._buffers if owner in modules else {}
        live = buffers.get(own_name)
        if live is not None and live.shape == value.shape and live.dtype == value.dtype:
            live.copy_(value)
        elif own_name in buffers:
            device = live.device if live is not None else value.device
            buffers[own_name] = value.to(device=device, copy=True)
    evaluating, frozen = set(saved.get("evaluating", ())), set(saved.get("frozen", ()))
    for name, module in modules.items():
        module.training = name not in evaluating
    for name, parameter in model.named_parameters():
        if parameter.requires_grad == (name in frozen):
            parameter.requires_grad_(name not in frozen)


# ------------------------------------------------------------------- optimizers, schedulers


def _check_optimizer(optimizer: Any, saved: Mapping[str, Any], where: str) -> None:
    groups = getattr(unwrapped(optimizer), "param_groups", None)
    there = saved.get("param_groups")
    if groups is None or there is None:
        return
    sizes = [len(group["params"]) for group in groups]
    saved_sizes = [len(group["params"]) for group in there]
    if sizes != saved_sizes:
        raise Rejected(
            f"{where} has parameter groups of {sizes} tensors and the saved state of {saved_sizes}"
        )


def _check_scheduler(scheduler: Any, saved: Any, where: str) -> None:
    live = scheduler.state_dict()
    if not isinstance(live, Mapping) or not isinstance(saved, Mapping):
        return
    # A new version of a class may have more keys or fewer; another class has both.
    lacks, surplus = live.keys() - saved.keys(), saved.keys() - live.keys()
    if lacks and surplus:
        raise Rejected(
            f"{where} is a {type(scheduler).__name__} and the saved state is another class's: it "
            f"has {', '.join(sorted(surplus)[:3])} and lacks {', '.join(sorted(lacks)[:3])}"
        )


_PARTS = (("models", "model"), ("optimizers", "optimizer"), ("schedulers", "scheduler"))
_CHECKS = {"model": _check_model, "optimizer": _check_optimizer, "scheduler": _check_scheduler}
_RESTORES = {"model": _restore_model, "optimizer": restore_optimizer, "scheduler": _load}
