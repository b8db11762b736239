"""A training loop of a few weights under a session, on the test's own thread."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim import Optimizer

from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.pytorch.hooks import Attachment, attach


def parameters(count: int = 1, shape: tuple[int, ...] = (2, 2)) -> list[torch.nn.Parameter]:
    """Make weights of 1."""
    return [torch.nn.Parameter(torch.ones(shape)) for _ in range(count)]


def gradients(optimizer: Optimizer, value: float = 1.0) -> None:
    """Give every weight the same gradient, where it has none yet."""
    for group in optimizer.param_groups:
        for each in group["params"]:
            if each.grad is None:
                each.grad = torch.full_like(each, value)


def record(optimizer: Optimizer, key: str = "lr", at: int | None = 0) -> list[Any]:
    """Collect what each step uses, in a pre-hook of the optimizer itself."""
    used: list[Any] = []

    def look(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        values = [group[key] for group in optimizer.param_groups]
        plain = [v.item() if isinstance(v, torch.Tensor) else v for v in values]
        used.append(plain if at is None else plain[at])

    optimizer.register_step_pre_hook(look)
    return used


@contextmanager
def run(
    schedulers: Sequence[Any] = (), metrics_fn: Any = None, **options: Any
) -> Iterator[tuple[Session, Attachment]]:
    """Give a session whose control points are the optimizer steps of this thread."""
    session = Session(directory=None, **options)
    session.bind(schedulers=list(schedulers))
    with session.run():
        attachment = attach(session, metrics_fn=metrics_fn)
        yield session, attachment


Edit = Mapping[str, Any] | Callable[[Session], Any]


def train(
    optimizer: Optimizer,
    steps: int,
    scheduler: Any = None,
    edits: Mapping[int, Edit | Sequence[Edit]] | None = None,
    *,
    session: Session,
    before: Callable[[int], Any] = lambda step: None,
    after: Callable[[int], Any] = lambda step: None,
) -> None:
    """Do some steps; `edits[n]` is asked for after step n, before the scheduler moves.

    The request is enqueued just before the step whose control point serves it.
    """
    edits = edits or {}
    ask(session, edits.get(0, ()))
    for step in range(1, steps + 1):
        before(step)
        gradients(optimizer)
        if step == 1 and 1 in edits:
            # The first step serves what came before it, too: ask when it is under way.
            _ask_during(optimizer, session, edits[1])
        else:
            ask(session, edits.get(step, ()))
        optimizer.step()
        if scheduler is not None:
            advance(scheduler)
        after(step)


def advance(scheduler: Any) -> None:
    """Move a scheduler; those that want a metric see one that never gets better."""
    wants_metric = "metrics" in inspect.signature(scheduler.step).parameters
    scheduler.step(*([1.0] if wants_metric else []))


def ask(session: Session, edits: Edit | Sequence[Edit]) -> None:
    """Submit requests; a mapping is the payload of set_knob, or of set_mode without a value."""
    for edit in [edits] if callable(edits) or isinstance(edits, Mapping) else edits:
        if callable(edit):
            edit(session)
            continue
        kind = "set_knob" if "value" in edit else "set_mode"
        session.submit(Action(type=kind, payload=dict(edit)))


def _ask_during(optimizer: Optimizer, session: Session, edits: Edit | Sequence[Edit]) -> None:
    def hook(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        handle.remove()
        ask(session, edits)

    handle = optimizer.register_step_pre_hook(hook)


def rows(session: Session, kind: str) -> list[dict[str, Any]]:
    """Return the payloads of all events of one type."""
    return [event.payload for event in session.journal.since(0) if event.type == kind]


def statuses(session: Session) -> list[str]:
    """Return the status of every result, in order."""
    return [each["status"] for each in rows(session, "action_result")]
