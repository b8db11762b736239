"""One tensor in several parameter groups: what is written into one group is written into all.

PyTorch makes such groups by itself: ``Adam([{"params": a}, {"params": b}], lr=tensor)`` puts the
tensor that is the default into each of them as it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch

from it2nb.core.errors import Rejected
from it2nb.pytorch.groups import Cell, Group

if TYPE_CHECKING:
    from it2nb.pytorch.setting import Setting


def separate(setting: Setting, chosen: Collection[int]) -> None:
    """Give each group a tensor of its own, before some alone are written. Training thread.

    Groups that get the same value go on with one tensor: whoever holds it, a compiled step or a
    captured graph, goes on to see what is set.
    """
    cell, groups = setting.cell, setting.groups()
    shared = _sharing(cell, groups)
    if setting.is_captured or not shared or shared <= set(chosen):
        return
    seen: set[int] = set()
    for at in sorted(shared):
        value = cell.raw(groups[at])
        if id(value) in seen:
            cell.replace(groups[at], value.detach().clone())
        seen.add(id(value))
    setting.look()
    setting.tell.note(
        f"{cell.name} was one tensor in several parameter groups; each has its own now, and "
        f"what is written into that tensor by hand reaches the first of them alone"
    )


def admit_alone(setting: Setting, at: int, value: Any) -> None:
    """Raise `Rejected` when one group can't get a value without the others."""
    if not setting.is_captured or value == setting.value(at):
        return
    if at in _sharing(setting.cell, setting.groups()):
        name = setting.cell.name
        raise Rejected(
            f"the step is in a captured graph, and {name} of group {at} is the tensor of other "
            f"groups too: set {name} of all of them, or make the optimizer with a tensor for each"
        )


def look_at_shared(setting: Setting) -> None:
    """Remember what stands in groups that share: the first was looked at before the last write."""
    groups = setting.groups()
    for at in _sharing(setting.cell, groups):
        setting.slot(at).look(groups[at])


def once_each(cell: Cell, groups: Sequence[Group], chosen: Iterable[int]) -> Iterator[int]:
    """Yield those groups whose tensor is not the one of a group before."""
    seen: set[int] = set()
    for at in chosen:
        value = cell.raw(groups[at])
        if isinstance(value, torch.Tensor):
            if id(value) in seen:
                continue
            seen.add(id(value))
        yield at


def _sharing(cell: Cell, groups: Sequence[Group]) -> set[int]:
    """Return the groups whose tensor is that of another one too."""
    found = [
        (at, id(v)) for at, g in enumerate(groups) if isinstance(v := cell.raw(g), torch.Tensor)
    ]
    many = Counter(each for _, each in found)
    return {at for at, each in found if many[each] > 1}
