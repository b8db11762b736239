"""What a session can do with the modules of its model: reset, freeze, settings, the tree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from it2nb.core.actions import ActionSpec
from it2nb.core.builtin import NameArgs
from it2nb.core.wire import Offer
from it2nb.pytorch.freezing import Freezer
from it2nb.pytorch.layer_settings import module_knobs
from it2nb.pytorch.module_tree import find_module, model_tree, module_offers
from it2nb.pytorch.reset import reset_module
from it2nb.pytorch.state import bare

if TYPE_CHECKING:
    from it2nb.core.session import Session


class ResetArgs(BaseModel):
    """Which module, and how its new weights are drawn."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(max_length=400, description="dotted name of the module")
    seed: int | None = Field(default=None, ge=0, lt=2**31, description="of the new weights")


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
                   dangerous=True, unavailable=no_model,
                   offers=_offering(session, allow, lambda node: True)),
        ActionSpec("freeze", freeze, "Stop training a module", NameArgs, unavailable=no_model,
                   offers=_offering(session, allow, lambda node: node["trainable"] > 0)),
        ActionSpec("unfreeze", unfreeze, "Train a frozen module again", NameArgs,
                   unavailable=no_model,
                   offers=_offering(session, allow, lambda n: n["trainable"] < n["params"])),
    ):  # fmt: skip
        session.actions.register(spec, replace=True)
    for model in session.bound.models if settings else ():
        for knob in module_knobs(model, settings):
            if knob.name not in session.knobs:
                session.add_knob(knob)
    show_tree(session)


def _offering(
    session: Session, allow: Sequence[str], fits: Callable[[Mapping[str, Any]], bool]
) -> Callable[[], dict[str, list[Offer]]]:
    """Offer modules by name. Asked for ten times a second: a tree is walked once."""
    held: tuple[Any, list[Offer]] = None, []

    def offers() -> dict[str, list[Offer]]:
        nonlocal held
        tree, found = held
        if session.model_tree is not tree:
            tree = session.model_tree
            found = [] if tree is None else module_offers(tree, allow, fits)
            held = tree, found
        return {"name": found}

    return offers


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
