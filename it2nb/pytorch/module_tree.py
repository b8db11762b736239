"""The modules of a model by name, and the tree of them that people see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from it2nb.core.errors import Rejected, near
from it2nb.core.wire import Offer
from it2nb.pytorch.state import bare

#: Nodes of a model tree; what is below is left out and counted.
MAX_NODES = 2_000
#: Modules that a form offers: the outermost ones. Others are taken by their names.
MOST_OFFERS = 60


def model_tree(model: nn.Module) -> dict[str, Any]:
    """Describe a model: ``{name, module_type, params, trainable, children}``.

    Names are those that `find_module` takes; the model itself has the name ``""``. `params`
    counts the parameters of a module and of what is in it; one that is shared is counted
    wherever it stands. At most 2,000 modules are listed.
    """
    budget = [MAX_NODES]
    return _node(bare(model), "", budget)


def _node(module: nn.Module, name: str, budget: list[int]) -> dict[str, Any]:
    budget[0] -= 1
    parameters = list(module.parameters())
    children: list[dict[str, Any]] = []
    left_out = 0
    for child_name, child in module.named_children():
        if budget[0] <= 0:
            left_out += 1
            continue
        children.append(_node(child, f"{name}.{child_name}" if name else child_name, budget))
    node: dict[str, Any] = {
        "name": name,
        "module_type": type(module).__name__,
        "params": sum(each.numel() for each in parameters),
        "trainable": sum(each.numel() for each in parameters if each.requires_grad),
        "children": children,
    }
    if left_out:
        node["left_out"] = left_out
    return node


def module_offers(
    tree: Mapping[str, Any], allow: Sequence[str], fits: Callable[[Mapping[str, Any]], bool]
) -> list[Offer]:
    """Offer the modules of a `model_tree` that have parameters and that fit, in its order."""
    found = [
        (depth, at, node)
        for at, (depth, node) in enumerate(_walk(tree, 0))
        if node["name"]
        and node["params"]
        and fits(node)
        and any(fnmatchcase(node["name"], pattern) for pattern in allow)
    ]
    outermost = sorted(found, key=lambda each: each[:2])[:MOST_OFFERS]
    return [
        Offer(
            value=node["name"],
            label=f"{node['name']}, {node['module_type']}, {node['params']:,} parameters",
        )
        for _, _, node in sorted(outermost, key=lambda each: each[1])
    ]


def _walk(node: Mapping[str, Any], depth: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    yield depth, node
    for child in node["children"]:
        yield from _walk(child, depth + 1)


def find_module(models: Sequence[nn.Module], name: str, allow: Sequence[str] = ("*",)) -> nn.Module:
    """Return a module by its dotted name; ``""`` is the whole model.

    Parameters
    ----------
    models : sequence of torch.nn.Module
        Looked through in order.
    name : str
    allow : sequence of str
        Patterns of the names that may be asked for.

    Raises
    ------
    Rejected
        When there is none of that name, or it may not be asked for.
    """
    if not any(fnmatchcase(name, pattern) for pattern in allow):
        raise Rejected(f"the module {name!r} may not be changed; allowed: {', '.join(allow)}")
    known: dict[str, nn.Module] = {}
    for model in models:
        for each_name, module in bare(model).named_modules(remove_duplicate=False):
            known.setdefault(each_name, module)
    if name not in known:
        raise Rejected(f"the model has no module {name!r}{near(name, [n for n in known if n])}")
    return known[name]
