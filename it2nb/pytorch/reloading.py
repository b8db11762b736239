"""``reload_dataset``: an interactive data set made anew in place, and only where it works."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch.utils.data import Dataset, IterableDataset

from it2nb.core.errors import KnobError, Rejected
from it2nb.core.faults import guard
from it2nb.core.knobs import Coerced, Knob
from it2nb.core.values import shown
from it2nb.pytorch import rng
from it2nb.pytorch.pipeline import Pipeline

if TYPE_CHECKING:
    from it2nb.core.session import Session
    from it2nb.pytorch.datasets import Steered


def base_of(dataset: Any) -> Any:
    """Return the user's class."""
    from it2nb.pytorch.datasets import InteractiveDataset

    mro = type(dataset).__mro__
    return next(each for each in mro if not issubclass(each, InteractiveDataset))


def asked_of(dataset: Any, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs that a reload with these arguments would set, and the values. Any thread."""
    asked: dict[str, Any] = {}
    for name in dataset._it2nb.names:
        if name not in payload:
            continue
        value = payload[name]
        elements = _elements(value)
        if elements is None:
            asked[name] = value
        else:
            asked |= {f"{name}[{key}]": each for key, each in elements.items()}
    return asked


def _elements(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    return None


def reload(dataset: Any, changes: Mapping[str, Any], session: Session) -> dict[str, Any]:
    """Make a data set anew in place. Training thread, at a control point.

    Returns
    -------
    dict
        ``length``, the knobs' values, and what is to be known about workers.

    Raises
    ------
    Rejected
        If its arguments are unknown or no knob would take them, if the new one has no length or
        gives no item, or if it would be shorter while a pass is under way. Nothing was touched
        then.
    """
    own: Steered = dataset._it2nb
    if own.arguments is None:  # made by somebody else
        raise Rejected(
            "the arguments that this data set was made with are unknown; make it with "
            "make_interactive_dataset(TheClass)(...)"
        )
    changes = {name: _fitted(dataset, session, name, value) for name, value in changes.items()}
    base = base_of(dataset)
    base = base_of(dataset)
    streams = rng.capture()
    try:
        with guard(f"making {base.__name__} anew") as fault:
            args, kwargs = _arguments(base, *own.arguments, changes)
            fresh = base(*args, **kwargs)
        if fault:
            raise Rejected(f"{base.__name__} was not made with these arguments: {fault.error}")
        for name in own.names:
            if name not in changes:
                setattr(fresh, name, getattr(dataset, name))
            _check_attribute(dataset, fresh, session, name)
        after = _probed(dataset, fresh)
    except Rejected:
        rng.restore(streams)  # as if nobody had asked
        raise
    asked = _known(asked_of(dataset, changes), session)
    before = {knob.name: _read(knob) for knob in asked}
    _replace(dataset, fresh, (args, kwargs))
    _write_rows(session, asked, before)
    return {"length": after, "notes": _notes(own.pipeline)}


def _known(asked: Mapping[str, Any], session: Session) -> list[Knob]:
    return [session.knobs[label] for label in asked if label in session.knobs]


def _read(knob: Knob) -> Any:
    value: Any = None
    with guard(f"get of {knob.name}"):
        value = knob.value
    return value


def _write_rows(session: Session, knobs: list[Knob], before: Mapping[str, Any]) -> None:
    serving = session.serving
    rows = [
        ("knob_changed", {"name": each.name, "value": _read(each), "before": before[each.name]})
        for each in knobs
    ]
    if rows:
        session.write_rows(
            rows,
            source=serving.source if serving else None,
            action_id=serving.id if serving else None,
        )


def _replace(dataset: Any, fresh: Any, arguments: Any) -> None:
    own: Steered = dataset._it2nb
    if own.names:
        # The first to raise, where a value has no room among those of the workers.
        own.board.write({name: getattr(fresh, name) for name in own.names})
    own.arguments = arguments
    vars(dataset).clear()
    vars(dataset).update(vars(fresh))
    dataset._it2nb = own


def _arguments(
    base: Any, args: tuple[Any, ...], kwargs: dict[str, Any], changes: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Put changed arguments in the place of those that were given, by position or by name."""
    bound = inspect.signature(base).bind(*args, **kwargs)
    named = [
        each.name
        for each in bound.signature.parameters.values()
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    ]
    inside = {name: value for name, value in changes.items() if name in named}
    bound.arguments.update(inside)
    further = {name: value for name, value in changes.items() if name not in named}
    return bound.args, {**bound.kwargs, **further}


# --- checks --------------------------------------------------------------------------------


def _fitted(dataset: Any, session: Session, name: str, value: Any) -> Any:
    """Return an argument as its knobs take it; one that is no knob as it is."""
    if name not in dataset._it2nb.names:
        return value
    old, new = _elements(getattr(dataset, name)), _elements(value)
    if old is None or new is None:
        if old is not None or new is not None:
            raise Rejected(
                f"{name}={shown(value)} has to be {'one value' if old is None else 'a list'}, as "
                f"{name} is now"
            )
        return _coerced(session, name, value)
    if set(map(str, old)) != set(map(str, new)):
        raise Rejected(
            f"{name}={shown(value)} needs the elements that are knobs: {', '.join(map(str, old))}"
        )
    fitted = {key: _coerced(session, f"{name}[{key}]", each) for key, each in new.items()}
    if isinstance(value, Mapping):
        return fitted
    return type(value)(fitted.values())


def _coerced(session: Session, label: str, value: Any) -> Any:
    """Fit a value to the knob as ``set_knob`` would."""
    knob: Knob | None = None
    try:
        knob = session.knobs[label]
    except KnobError:
        return value  # its run took the knob away
    reason: str | None = None
    fitted: Coerced | None = None
    with guard(f"check of {label}") as fault:
        reason = knob.reason_unavailable()
        fitted = knob.coerce(value)
    if fault:
        raise Rejected(f"{label}: {fault.error.removeprefix('Rejected: ')}")
    if reason is not None:
        raise Rejected(f"{label}: {reason}")
    return value if fitted is None else fitted.value


def _check_attribute(dataset: Any, fresh: Any, session: Session, name: str) -> None:
    """What the constructor made of its arguments has to be readable as the knobs are."""
    value: Any = None
    with guard(f"{name} of the new data set") as fault:
        value = getattr(fresh, name)
    if fault:
        raise Rejected(f"{name} could not be read of the new data set: {fault.error}")
    _fitted(dataset, session, name, value)


def _probed(dataset: Any, fresh: Any) -> int | None:
    """Return the new length; an item has to be there where the old data set had one."""
    name = base_of(dataset).__name__
    before, after = _length(dataset), None
    if before is not None:
        with guard(f"length of {name}") as fault:
            after = len(fresh)
        if fault:
            raise Rejected(f"the new {name} tells no length: {fault.error}")
        assert after is not None
        if after < before and dataset._it2nb.pipeline.is_known:
            raise Rejected(
                f"the new one has {after} items and the pass under way may still ask for any of "
                f"{before}; reload it with at least as many, or between two passes"
            )
        pipeline = dataset._it2nb.pipeline
        if after > before and pipeline.is_known and pipeline.keeps_workers:
            raise Rejected(
                f"the new one has {after} items, and the loader keeps its workers, which have the "
                f"old one of {before}: make the loader anew first"
            )
        if after == 0 < before:
            raise Rejected(f"the new {name} has no items")
    error = _unreadable(fresh, type(fresh))
    if error and not _unreadable(dataset, base_of(dataset)):
        raise Rejected(f"the new {name} gives no item: {error}")
    return after


def _unreadable(dataset: Any, base: Any) -> str:
    """Say why the first item can't be read; empty where it can. Draws nothing."""
    streams = rng.capture()
    with guard("first item of a data set") as fault:
        if isinstance(dataset, IterableDataset):
            next(iter(base.__iter__(dataset)))
        else:
            base.__getitem__(dataset, 0)
    rng.restore(streams)
    # An iterable that is empty raises StopIteration: it has no item either.
    return fault.error


def _length(dataset: Dataset[Any]) -> int | None:
    length: int | None = None
    with guard("length of a data set"):
        length = len(dataset)  # type: ignore[arg-type]
    return length


def _notes(pipeline: Pipeline) -> list[str]:
    if not pipeline.is_known:
        return ["in force from the next item on"]
    if pipeline.keeps_workers:
        return ["the loader keeps its workers, and they keep the old data: make the loader anew"]
    if pipeline.workers:
        return ["in force from the next pass on: the workers of this one have the old data"]
    waiting = pipeline.prefetched
    return ["in force from the next batch on" + (f"; {waiting} were prefetched" if waiting else "")]
