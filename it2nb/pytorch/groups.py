"""One hyper-parameter in a parameter group: found by name each time, never held on to.

`Optimizer.load_state_dict` puts new group dicts in the place of the old ones, so nothing here
keeps a group, its list or a tensor in it (CASES C11).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Group = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """Where a hyper-parameter stands in its group: ``lr``, or element 0 of ``betas``.

    Attributes
    ----------
    key : str
        In the group.
    index : int or None
        Element of a tuple or list.
    """

    key: str
    index: int | None = None

    @property
    def name(self) -> str:
        """``"lr"``, ``"betas[0]"``."""
        return self.key if self.index is None else f"{self.key}[{self.index}]"

    def raw(self, group: Group) -> Any:
        """Return what stands in the group: a float, a tensor, ..."""
        value = group[self.key]
        return value if self.index is None else value[self.index]

    def read(self, group: Group) -> Any:
        """Return its plain value. A CUDA tensor is waited for."""
        value = self.raw(group)
        return value.item() if isinstance(value, torch.Tensor) else value

    def write(self, group: Group, value: Any) -> None:
        """Put a value in: a tensor is filled in place, a tuple stays a tuple."""
        old = self.raw(group)
        if isinstance(old, torch.Tensor):
            with torch.no_grad():
                old.fill_(value)
            return
        self.replace(group, value)

    def replace(self, group: Group, value: Any) -> None:
        """Put another object in the place of what stands there; a tuple stays a tuple."""
        if self.index is None:
            group[self.key] = value
            return
        whole = group[self.key]
        # A new sequence: a list of defaults is the same object in every group.
        group[self.key] = type(whole)(
            value if index == self.index else each for index, each in enumerate(whole)
        )

    def keep(self, group: Group) -> Any:
        """Return a copy of what stands there, to be put back with `put_back`."""
        value = self.raw(group)
        return value.detach().clone() if isinstance(value, torch.Tensor) else value

    def put_back(self, group: Group, kept: Any) -> None:
        """Put back exactly what `keep` returned."""
        old = self.raw(group)
        if isinstance(old, torch.Tensor):
            with torch.no_grad():
                old.copy_(kept) if isinstance(kept, torch.Tensor) else old.fill_(kept)
            return
        self.replace(group, kept)

    def as_stored(self, group: Group, value: Any) -> Any:
        """Return what `read` would give after `value` was written; a float32 tensor rounds."""
        old = self.raw(group)
        if isinstance(old, torch.Tensor):
            return torch.tensor(value, dtype=old.dtype).item()
        return value

    def mark(self, group: Group) -> Any:
        """Return something that is no longer `same_mark` once somebody wrote here.

        The object itself for a number; identity and version for a tensor, so that a CUDA
        tensor is not waited for.
        """
        value = self.raw(group)
        if isinstance(value, torch.Tensor):
            return id(value), value._version
        return value


def same_mark(one: Any, other: Any) -> bool:
    """Whether two marks tell that nobody wrote in between."""
    return one is other or (isinstance(one, tuple) and bool(one == other))


def is_capturing() -> bool:
    """Whether a CUDA graph is being captured: then nothing may wait for the device."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def labels(groups: Sequence[Group], models: Iterable[nn.Module] = ()) -> list[str]:
    """Name the parameter groups of an optimizer, each differently.

    A group's own ``name`` comes first; then what is common to the names of its parameters
    (``block.3``), known from ``named_parameters`` or from the models; then ``decay`` and
    ``no_decay`` for two groups of which one has no weight decay; else its index.

    Digits in brackets mean the index of a group and nothing else. So a name that the user gave
    and that is a number is used only where it is the index, and names of modules are used for
    no group when one of them has digits and dots alone, as in a ``Sequential``.

    Returns
    -------
    list of str, one a group
    """
    fallback = [str(index) for index in range(len(groups))]
    given = [
        "" if _is_number(name) and name != index else name
        for name, index in zip(_given(groups), fallback, strict=True)
    ]
    known = parameter_names(models)
    common = [_common(_names_of(group, known)) for group in groups]
    if any(map(_is_number, common)):
        common = [""] * len(groups)
    for names in (given, common, _by_decay(groups)):
        if all(names) and len(set(names)) == len(names):
            return names
    # Some are named, or some names are taken twice: keep those that are clear.
    merged = [own or shared or index for own, shared, index in zip(
        given, common, fallback, strict=True)]  # fmt: skip
    return [
        name if merged.count(name) == 1 else index
        for name, index in zip(merged, fallback, strict=True)
    ]


def misleading_names(groups: Sequence[Group]) -> dict[int, str]:
    """Return the names that the user gave and `labels` does not use, by index of the group."""
    return {
        at: name for at, name in enumerate(_given(groups)) if _is_number(name) and name != str(at)
    }


def parameter_names(models: Iterable[nn.Module]) -> dict[int, str]:
    """Return the names of all parameters by id."""
    return {
        id(parameter): name.removeprefix("_orig_mod.").removeprefix("module.")
        for model in models
        for name, parameter in model.named_parameters()
    }


def _given(groups: Sequence[Group]) -> list[str]:
    told = [(each.get("name"), each.get("group_name")) for each in groups]
    # Not by truth: a group may be called 0.
    return [
        next((str(name).strip() for name in names if name is not None and name != ""), "")
        for names in told
    ]


def _is_number(name: str) -> bool:
    """Whether a name could be taken for an index: ``"0"``, ``"1.2"``."""
    return re.fullmatch(r"[\d.]+", name) is not None


def _names_of(group: Group, known: Mapping[int, str]) -> list[str]:
    own = group.get("param_names")
    if isinstance(own, list) and own:
        return [str(each) for each in own]
    found = [known.get(id(each)) for each in group["params"]]
    return [each for each in found if each is not None] if None not in found else []


def _common(names: Sequence[str]) -> str:
    """Return the longest common module path: ``block.3`` of block.3.fc.weight and block.3.bias."""
    if not names:
        return ""
    paths = [name.split(".") for name in names]
    if len(paths) > 1:
        paths = [path[:-1] for path in paths]
    shared: list[str] = []
    for parts in zip(*paths, strict=False):
        if len(set(parts)) > 1:
            break
        shared.append(parts[0])
    return ".".join(shared)


def _by_decay(groups: Sequence[Group]) -> list[str]:
    if len(groups) != 2:
        return [""] * len(groups)
    decays = [bool(each.get("weight_decay")) for each in groups]
    if len(set(decays)) == 1:
        return ["", ""]
    return ["decay" if each else "no_decay" for each in decays]
