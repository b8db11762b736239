"""Modules of the model: reset, freeze, their settings as knobs, and the tree that people see."""

from __future__ import annotations

import hashlib
import random
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from it2nb.core.actions import ActionSpec
from it2nb.core.builtin import NameArgs
from it2nb.core.errors import Rejected, near
from it2nb.core.knobs import Knob
from it2nb.pytorch.state import bare

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Nodes of a model tree; what is below is left out and counted.
MAX_NODES = 2_000

#: Settings that PyTorch reads anew in every forward: attribute -> (bounds, scale, words).
SETTINGS: dict[str, tuple[float, float, str, str]] = {
    "p": (0.0, 1.0, "linear", "Share of values that dropout sets to 0"),
    "dropout": (0.0, 1.0, "linear", "Share of values that dropout sets to 0"),
    "eps": (1e-16, 1.0, "log", "Added to the variance, against division by 0"),
    "momentum": (0.0, 1.0, "linear", "Share of a batch in the running statistics"),
    "negative_slope": (0.0, 1.0, "linear", "Slope below 0"),
    "label_smoothing": (0.0, 1.0, "linear", "Probability that is spread over all classes"),
}
_DROPOUTS = (nn.modules.dropout._DropoutNd,)
_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.LocalResponseNorm,
)


class ResetArgs(BaseModel):
    """Which module, and how its new weights are drawn."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(max_length=400, description="dotted name of the module")
    seed: int | None = Field(default=None, ge=0, lt=2**31, description="of the new weights")


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


# --- reset -----------------------------------------------------------------------------------


def reset_module(
    module: nn.Module, optimizers: Iterable[Any] = (), *, seed: int | None = None,
    root: nn.Module | None = None,
) -> dict[str, Any]:
    """Initialise a module anew, in place, and let its optimizer moments go. Training thread.

    The global random streams are where they were afterwards.

    Parameters
    ----------
    module : torch.nn.Module
    optimizers : iterable of torch.optim.Optimizer
        In which its parameters may be.
    seed : int, optional
        Of the new weights; drawn from the operating system by default.
    root : torch.nn.Module, optional
        The whole model, for those that initialise their parts (transformers).

    Returns
    -------
    dict
        ``{"seed", "params", "moments"}``: the seed, how many parameter tensors were initialised,
        how many lost their optimizer state.

    Raises
    ------
    Rejected
        When some part does not know how to initialise itself; nothing was touched then.
    """
    ways = list(_ways(module, root))
    seed = secrets.randbelow(2**31) if seed is None else seed
    with _own_randomness(module, seed), torch.no_grad():
        for way in ways:
            way()
    parameters = list(module.parameters())
    dropped = sum(_drop_state(optimizer, parameters) for optimizer in optimizers)
    return {"seed": seed, "params": len(parameters), "moments": dropped}


def _ways(module: nn.Module, root: nn.Module | None) -> Iterator[Callable[[], Any]]:
    """Yield how to initialise each part, inner ones first, as constructors do."""
    for child in module.children():
        yield from _ways(child, root)
    for name in ("reset_parameters", "_reset_parameters"):
        way = getattr(module, name, None)
        if callable(way):
            yield way
            return
    if next(module.parameters(recurse=False), None) is None:
        return
    ours = getattr(root, "_init_weights", None)
    if not callable(ours):
        raise Rejected(
            f"nothing was reset: {type(module).__name__} has parameters of its own and no "
            f"reset_parameters(); give it that method"
        )
    yield lambda: ours(module)


@contextmanager
def _own_randomness(module: nn.Module, seed: int) -> Iterator[None]:
    """Seed the streams that initialisers draw from, and put them back."""
    indices = sorted({p.get_device() for p in module.parameters() if p.is_cuda})
    generators = [torch.default_generator, *(torch.cuda.default_generators[i] for i in indices)]
    kept = [each.get_state() for each in generators]
    python, numpy = random.getstate(), np.random.get_state()
    try:
        for each in generators:
            each.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        yield
    finally:
        for each, state in zip(generators, kept, strict=True):
            each.set_state(state)
        random.setstate(python)
        np.random.set_state(numpy)


def _drop_state(optimizer: Any, parameters: Iterable[nn.Parameter]) -> int:
    state = optimizer.state
    if isinstance(optimizer, torch.optim.LBFGS):
        # It remembers one flat vector of all parameters, under the first of them.
        ours = {id(each) for each in parameters}
        if any(id(each) in ours for group in optimizer.param_groups for each in group["params"]):
            dropped = len(state)
            state.clear()
            return dropped
        return 0
    return sum(1 for each in parameters if state.pop(each, None))


# --- freeze ----------------------------------------------------------------------------------


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


# --- knobs and actions -----------------------------------------------------------------------


def module_knobs(model: nn.Module, patterns: Sequence[str] = ("*",)) -> list[Knob]:
    """Make knobs of the settings of a model's layers: ``drop.p``, ``norm1.eps``.

    Parameters
    ----------
    model : torch.nn.Module
    patterns : sequence of str
        Of module names, ``"encoder.*"``.
    """
    knobs = []
    for name, module in bare(model).named_modules():
        if not any(fnmatchcase(name, pattern) for pattern in patterns):
            continue
        for setting in _settings_of(module):
            knobs.append(_knob(name, module, setting))
    return knobs


def _settings_of(module: nn.Module) -> list[str]:
    if isinstance(module, _DROPOUTS):
        return ["p"]
    found = []
    if isinstance(module, _NORMS):
        found = [n for n in ("eps", "momentum") if type(getattr(module, n, None)) is float]
    elif isinstance(module, nn.MultiheadAttention):
        found = ["dropout"]
    elif isinstance(module, nn.LeakyReLU):
        found = ["negative_slope"]
    elif isinstance(module, nn.CrossEntropyLoss):
        found = ["label_smoothing"]
    return found


def _knob(name: str, module: nn.Module, setting: str) -> Knob:
    low, high, scale, words = SETTINGS[setting]
    now = float(getattr(module, setting))
    return Knob(
        f"{name}.{setting}" if name else setting,
        lambda: float(getattr(module, setting)),
        lambda value: setattr(module, setting, value),
        min=min(low, now),
        max=max(high, now),
        scale=scale,  # type: ignore[arg-type]
        description=words,
        group=f"{type(module).__name__} {name}".strip(),
        out_of_bounds="reject",
    )


def reset_bound(
    session: Session, name: str, *, seed: int | None = None, allow: Sequence[str] = ("*",)
) -> dict[str, Any]:
    """Reset a module of the session's models, with its optimizers. Training thread.

    Without a `seed` it follows from the request's id, so that every rank of a distributed run
    draws the same weights.
    """
    models = session.bound.models
    module = find_module(models, name, allow)
    if seed is None and session.serving is not None:
        seed = int.from_bytes(hashlib.sha256(session.serving.id.encode()).digest()[:4]) >> 1
    root = next((bare(m) for m in models if any(each is module for each in m.modules())), None)
    told = {"name": name, **reset_module(module, _optimizers(session), seed=seed, root=root)}
    serving = session.serving
    session.emit(
        "module_reset",
        told,
        source=None if serving is None else serving.source,
        action_id=None if serving is None else serving.id,
    )
    return told


def install(
    session: Session, *, allow: Sequence[str] = ("*",), settings: Sequence[str] = ()
) -> None:
    """Give a session the actions on modules, and the model tree. Any thread.

    Parameters
    ----------
    session : Session
        With its models bound, or bound later.
    allow : sequence of str
        Patterns of the module names that may be reset and frozen.
    settings : sequence of str
        Patterns of the modules whose settings become knobs.
    """
    freezer = Freezer()

    def no_model() -> str | None:
        return None if session.bound.models else "no model was found; session.bind_model(model)"

    def reset(payload: dict[str, Any], session: Session) -> Any:
        return reset_bound(session, payload["name"], seed=payload["seed"], allow=allow)

    def freeze(payload: dict[str, Any], session: Session) -> Any:
        name = payload["name"]
        module = find_module(session.bound.models, name, allow)
        told = freezer.freeze(session.bound.models, name, module)
        show_tree(session)
        return told

    def unfreeze(payload: dict[str, Any], session: Session) -> Any:
        name = payload["name"]
        module = find_module(session.bound.models, name, allow)
        told = freezer.unfreeze(name, module, _optimizers(session))
        show_tree(session)
        return told

    for spec in (
        ActionSpec("reset_module", reset, "Initialise a module anew", ResetArgs,
                   dangerous=True, unavailable=no_model),
        ActionSpec("freeze", freeze, "Stop training a module", NameArgs, unavailable=no_model),
        ActionSpec("unfreeze", unfreeze, "Train a frozen module again", NameArgs,
                   unavailable=no_model),
    ):  # fmt: skip
        session.actions.register(spec, replace=True)
    for model in session.bound.models if settings else ():
        for knob in module_knobs(model, settings):
            if knob.name not in session.knobs:
                session.add_knob(knob)
    show_tree(session)


def show_tree(session: Session) -> None:
    """Put the tree of the session's model into its state and its journal."""
    models = session.bound.models
    if not models:
        return
    tree = model_tree(models[0])
    if session.model_tree != tree:
        session.model_tree = tree
        session.emit("model_tree", tree)


def _optimizers(session: Session) -> list[Any]:
    from it2nb.pytorch.optimizers import steering_of

    found = {id(each): each for each in session.bound.optimizers}
    for steered in steering_of(session).optimizers:
        optimizer = steered.optimizer()
        if optimizer is not None:
            found.setdefault(id(optimizer), optimizer)
    return list(found.values())
