"""What a cell trains, found by itself: optimizers, schedulers, models, scalers; and its variables.

Imports no PyTorch: where it was not imported, there is nothing of it to find.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from it2nb.core.errors import KnobError, KnobRangeError, near
from it2nb.core.knobs import Knob
from it2nb.core.wire import DType
from it2nb.notebook.options import KnobSpec

#: Members of a list, dict or object of the user's that are looked at, at most.
MAX_MEMBERS = 256


@dataclass(slots=True)
class Found:
    """Objects by the name under which they were found: ``"opt"``, ``"trainer.opt"``."""

    models: dict[str, Any] = field(default_factory=dict)
    optimizers: dict[str, Any] = field(default_factory=dict)
    schedulers: dict[str, Any] = field(default_factory=dict)
    scalers: dict[str, Any] = field(default_factory=dict)

    def names(self) -> dict[int, str]:
        """Return what each object is called, by its id."""
        kinds = (self.models, self.optimizers, self.schedulers, self.scalers)
        return {id(value): name for kind in kinds for name, value in kind.items()}


def find(namespace: Mapping[str, Any], used: Iterable[str] | None = None) -> Found:
    """Find what is trained among the variables of a namespace. Any thread.

    Parameters
    ----------
    namespace : mapping
    used : iterable of str, optional
        Names that the cell uses. Others are leftovers of earlier cells, but for the schedulers
        and scalers of the optimizers that it uses, and the models that these train.
    """
    names = _own_names(namespace)
    if used is None:
        return _related(_search(namespace, names), None)
    wanted = set(used)
    found = _search(namespace, [name for name in names if name in wanted])
    return _related(found, _search(namespace, names) if found.optimizers else None)


def of_optimizer(optimizer: Any, scopes: Iterable[Mapping[str, Any]]) -> Found:
    """Find what belongs to one optimizer in the variables of functions, innermost first."""
    found = Found()
    for scope in scopes:
        here = _search(scope, list(scope))
        for mine, theirs in (
            (found.models, here.models),
            (found.schedulers, here.schedulers),
            (found.scalers, here.scalers),
            (found.optimizers, here.optimizers),
        ):
            known = set(map(id, mine.values()))
            mine.update({k: v for k, v in theirs.items() if id(v) not in known and k not in mine})
    found.optimizers = {k: v for k, v in found.optimizers.items() if v is optimizer}
    if not found.optimizers:
        found.optimizers = {"optimizer": optimizer}
    return _related(found, None)


def _own_names(namespace: Mapping[str, Any]) -> list[str]:
    # IPython's In, Out, _, __, _1, _i...: old results, not what a cell trains.
    return [name for name in list(namespace) if not name.startswith("_") and name not in ("Out",)]


def _search(namespace: Mapping[str, Any], names: Iterable[str]) -> Found:
    found = Found()
    torch = sys.modules.get("torch")
    kinds = _kinds(torch)
    if kinds is None:
        return found
    seen: set[int] = set()
    for name in names:
        value = namespace.get(name)
        for path, each in _with_members(name, value, kinds):
            if id(each) in seen:
                continue
            for kind, keep in zip(kinds, _slots(found), strict=True):
                if isinstance(each, kind):
                    seen.add(id(each))
                    keep[path] = each
                    break
    return found


def _slots(found: Found) -> tuple[dict[str, Any], ...]:
    return found.optimizers, found.schedulers, found.models, found.scalers


def _kinds(torch: Any) -> tuple[Any, ...] | None:
    """Return the classes of optimizers, schedulers, models and scalers."""
    optim: Any = getattr(torch, "optim", None)
    schedulers = getattr(optim, "lr_scheduler", None)
    if schedulers is None or not hasattr(torch, "nn"):
        return None
    scaler = getattr(getattr(torch, "amp", None), "GradScaler", ())
    return optim.Optimizer, schedulers.LRScheduler, torch.nn.Module, scaler


def _with_members(name: str, value: Any, kinds: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    """Yield a variable, or the members of a list, dict or object of the user's."""
    if isinstance(value, kinds):
        yield name, value
        return
    if isinstance(value, (list, tuple)):
        members = ((f"{name}[{index}]", each) for index, each in enumerate(value[:MAX_MEMBERS]))
    elif isinstance(value, dict):
        listed = list(value.items())[:MAX_MEMBERS]
        members = ((f"{name}[{key!r}]", each) for key, each in listed)
    elif type(value).__module__ == "__main__" and hasattr(value, "__dict__"):
        listed = list(vars(value).items())[:MAX_MEMBERS]
        members = ((f"{name}.{key}", each) for key, each in listed)
    else:
        return
    for path, each in members:
        if isinstance(each, kinds):
            yield path, each


def _related(found: Found, everywhere: Found | None) -> Found:
    """Keep the models whose parameters are trained, and the schedulers of these optimizers."""
    source = everywhere or found
    optimizers = set(map(id, found.optimizers.values()))
    schedulers = {
        k: v
        for k, v in source.schedulers.items()
        if id(getattr(v, "optimizer", None)) in optimizers
    }
    trained = {
        id(parameter)
        for optimizer in found.optimizers.values()
        for group in optimizer.param_groups
        for parameter in group["params"]
    }
    models = {
        name: model
        for name, model in source.models.items()
        if not trained or any(id(each) in trained for each in model.parameters())
    }
    return Found(
        _roots(models),
        found.optimizers,
        _outermost(schedulers),
        found.scalers or source.scalers,
    )


def _roots(models: dict[str, Any]) -> dict[str, Any]:
    """Leave out modules that are parts of others."""
    parts = {id(part) for model in models.values() for part in model.modules() if part is not model}
    return {name: model for name, model in models.items() if id(model) not in parts}


def _outermost(schedulers: dict[str, Any]) -> dict[str, Any]:
    """Leave out schedulers that a SequentialLR or ChainedScheduler drives."""
    parts = {id(part) for each in schedulers.values() for part in getattr(each, "_schedulers", ())}
    return {name: each for name, each in schedulers.items() if id(each) not in parts}


# ------------------------------------------------------------------- variables as knobs


def is_there(spec: KnobSpec, namespace: Mapping[str, Any]) -> bool:
    """Whether the variable of a ``--knob`` exists by now."""
    try:
        _getter(spec.name, namespace)()
    except (NameError, KeyError, AttributeError, IndexError, TypeError):
        return False
    return True


def variable_knob(spec: KnobSpec, namespace: MutableMapping[str, Any]) -> Knob:
    """Make a knob of a variable of the namespace. Its type is that of the present value.

    Raises
    ------
    KnobError
        If the variable is missing, or holds what no knob can hold.
    KnobRangeError
        If its value is outside of the bounds, or none of the choices.
    """
    get = _getter(spec.name, namespace)
    try:
        value = get()
    except (NameError, KeyError, AttributeError, IndexError, TypeError) as err:
        hint = near(root_of(spec.name), (n for n in namespace if not n.startswith("_")))
        raise KnobError(
            f"--knob {spec.name}: there is no such variable ({type(err).__name__}: {err}){hint}"
        ) from err
    dtype = "choice" if spec.choices is not None else _dtype(value)
    if dtype is None:
        raise KnobError(
            f"--knob {spec.name}: it holds a {type(value).__name__}; a knob holds a number, "
            f"a bool or text"
        )
    if dtype == "int" and any(isinstance(each, float) for each in (spec.min, spec.max)):
        dtype = "float"
    knob = Knob(
        spec.name,
        get,
        _setter(spec.name, namespace, type(value) if isinstance(value, np.generic) else None),
        dtype=dtype,
        min=spec.min,
        max=spec.max,
        scale=spec.scale,
        choices=spec.choices,
        group="variables",
        description=f"the variable {spec.name}",
    )
    wrong = knob.misfit()
    if wrong is not None:
        raise KnobRangeError(f"--knob {wrong}; widen them, or start inside")
    return knob


def root_of(target: str) -> str:
    """Return the variable behind ``cfg.train['clip']``: ``cfg``."""
    node: Any = ast.parse(target, mode="eval").body
    while not isinstance(node, ast.Name):
        node = getattr(node, "value", None) or getattr(node, "func", None)
        if node is None:
            return target
    return node.id


def _dtype(value: Any) -> DType | None:
    for kind, dtype in (
        ((bool, np.bool_), "bool"),
        ((int, np.integer), "int"),
        ((float, np.floating), "float"),
        (str, "str"),
    ):
        if isinstance(value, kind):
            return dtype  # type: ignore[return-value]
    return None


def _getter(target: str, namespace: Mapping[str, Any]) -> Callable[[], Any]:
    if target.isidentifier():

        def get_name() -> Any:
            if target not in namespace:
                raise NameError(f"name {target!r} is not defined")
            return namespace[target]

        return get_name
    code = compile(target, f"<--knob {target}>", "eval")
    return lambda: eval(code, {"__builtins__": {}}, namespace)


def _setter(
    target: str, namespace: MutableMapping[str, Any], kind: Callable[[Any], Any] | None
) -> Callable[[Any], None]:
    """Return what sets a variable; one of NumPy's numbers stays one of its `kind`."""
    if kind is not None:
        plain = _setter(target, namespace, None)
        return lambda value: plain(kind(value))
    if target.isidentifier():
        return lambda value: namespace.__setitem__(target, value)
    code = compile(f"{target} = __value__", f"<--knob {target}>", "exec")

    def put(value: Any) -> None:
        # The target is an attribute or an item, so nothing is bound in the scratch scope.
        exec(code, {"__builtins__": {}, **namespace, "__value__": value})

    return put
