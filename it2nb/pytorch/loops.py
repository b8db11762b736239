"""``session.loop(loader)``: a loop whose turns are the steps of the run. Needs no PyTorch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from it2nb.core.faults import guard

if TYPE_CHECKING:
    from it2nb.core.session import Session

T = TypeVar("T")


class Loop(Generic[T]):
    """An iterable that ends each turn at a control point; see `loop`."""

    def __init__(
        self,
        session: Session,
        items: Iterable[T],
        metrics_fn: Callable[[], Mapping[str, Any] | None] | None,
        epochs: int = 1,
    ) -> None:
        self.session = session
        self._items = items
        self._metrics_fn = metrics_fn
        self._epochs = epochs
        self._left_over: Callable[[], int | None] = lambda: None

    def __len__(self) -> int:
        return len(self._items) * self._epochs  # type: ignore[arg-type]

    def it2_turns_left(self) -> int | None:
        """How many turns are to come, going back reckoned in; None where that can't be told."""
        return self._left_over()

    def __iter__(self) -> Iterator[T]:
        session = self.session
        for item in self._run():
            if session.must_leave:
                return
            try:
                yield item
            except GeneratorExit:
                self._left()
                raise
            if self._step():
                return

    def _run(self) -> Iterator[T]:
        if "torch" in sys.modules:
            # Only what PyTorch trains can go back, and then its batches have to.
            from it2nb.pytorch.batches import batches_of

            batches = batches_of(self.session, self._items)
            self._left_over = partial(batches.left, batches.epoch, self._epochs)
            yield from batches.run(self._epochs)
        else:
            for _ in range(self._epochs):
                yield from self._items

    def _step(self) -> bool:
        """The body is through: its control point. Returns whether the run was stopped."""
        session = self.session
        values = dict(session.with_noted())
        if self._metrics_fn is not None:
            with guard("metrics of a turn", session.report):
                values.update(self._metrics_fn() or {})
        if _hooks_count(session):
            if values:
                session.record(values)
            return session.must_leave
        return session.step(values or None).stop

    def _left(self) -> None:
        """The loop was left by ``break``: what was logged in its last turn is a step too."""
        session = self.session
        values = dict(session.with_noted())
        if values and not session.is_ended and session.on_training_thread:
            session.step(values, act=False)


def loop(
    session: Session,
    items: Iterable[T],
    metrics_fn: Callable[[], Mapping[str, Any] | None] | None = None,
    *,
    epochs: int = 1,
) -> Loop[T]:
    """Wrap an iterable: each turn of the loop is one step of the run.

    Going back (undo, goto, load_checkpoint, fork) takes the batches back too.

    ::

        for x, y in loop(session, loader):
            ...
            session.log(loss=loss)

    A stop ends the loop as if the iterable were at its end.

    Parameters
    ----------
    session : Session
    items : iterable
    metrics_fn : callable, optional
        Called at the end of each turn; what it returns is recorded with what was logged.
    epochs : int
        Go through the items so many times. In a loop of your own around this one, going back
        to an earlier epoch takes that epoch's batches, and your loop counts on.

    Returns
    -------
    Loop
        Can be iterated as often as `items` can; has a length if they have one.
    """
    return Loop(session, items, metrics_fn, epochs)


def _hooks_count(session: Session) -> bool:
    """Whether optimizer steps on this thread are counted already: a turn is none then."""
    hooks = sys.modules.get("it2nb.pytorch.hooks")
    if hooks is None:
        return False
    attachment = hooks.switchboard().attachments.get(get_ident())
    return attachment is not None and attachment.session is session
