"""Whose turn it is: functions that are called at control points every so many steps."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import get_ident
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import ActionError
from it2nb.core.faults import Fault, guard

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

NEVER = sys.maxsize


@dataclass(slots=True, eq=False)
class Turn:
    """One function and when it is due next; `every` is 0 for one that comes only when called."""

    every: int
    function: Callable[[Any], Any]
    name: str
    due: int
    #: The thread that added it.
    thread: int = field(default_factory=get_ident)

    def next_after(self, step: int) -> int:
        """Tell the step at which it is due after `step`."""
        return step - step % self.every + self.every if self.every else NEVER


class Turns:
    """Kept in the order in which they were added, so that a replay meets the same order.

    Attributes
    ----------
    due : int
        The step at which the next one is due; a control point compares one number.
    """

    def __init__(self) -> None:
        self.due = NEVER
        #: Whether one of them has its turn just now.
        self.is_running = False
        #: The one that has its turn just now.
        self.under_way: Turn | None = None
        self._alone: Callable[[Session], Any] | None = None
        self._turns: list[Turn] = []
        self._before: list[Callable[[ActionHandle], Any]] = []
        self._replaced: dict[str, Callable[[Any], Any] | None] = {}

    def add(self, every: int, function: Callable[[Any], Any], name: str) -> Callable[[], None]:
        """Add a function that is due every `every` steps; returns its removal. Any thread."""
        if type(every) is not int or every < 1:
            raise ActionError(f"every={every!r} has to be a whole number of steps, at least 1")
        turn = self._add(every, function, name, 0)

        def remove() -> None:
            self._turns = [each for each in self._turns if each is not turn]

        return remove

    def add_on_call(self, function: Callable[[Any], Any], name: str) -> Callable[[int], None]:
        """Add a function that has its turn only where it is called to it; returns what calls it.

        For what a caller can tell by itself is needed at few steps: between them it costs
        nothing. What is returned takes the step, on the training thread, before its control
        point.
        """
        turn = self._add(0, function, name, NEVER)

        def call(step: int) -> None:
            turn.due = step
            self.due = min(self.due, step)

        return call

    def _add(self, every: int, function: Callable[[Any], Any], name: str, due: int) -> Turn:
        for start, other in self._replaced.items():
            if name.startswith(start):
                function = other or _nothing
        turn = Turn(every, function, name, due)
        self._turns = [*self._turns, turn]
        self.due = min(self.due, due)
        return turn

    def replace(self, start: str, function: Callable[[Any], Any] | None) -> None:
        """Let turns whose name begins so call `function` instead, or nothing. Before they come.

        Of several ranks one decides: what is its turn is none of the others'.
        """
        self._replaced[start] = function

    def retime(self, function: Callable[[Any], Any], every: int) -> None:
        """Give a function its turn every so many steps from now on; its place stays. Any thread."""
        for turn in self._turns:
            if turn.function == function:
                turn.every, turn.due = every, 0
        self.due = 0

    def add_before(self, function: Callable[[ActionHandle], Any]) -> Callable[[], None]:
        """Add a function that sees each request before it is carried out."""
        self._before = [*self._before, function]

        def remove() -> None:
            self._before = [each for each in self._before if each is not function]

        return remove

    def kept(self) -> tuple[list[Turn], list[Callable[[ActionHandle], Any]]]:
        """Return what there is, for `put_back`."""
        return self._turns, self._before

    def put_back(self, kept: tuple[list[Turn], list[Callable[[ActionHandle], Any]]]) -> None:
        """Take away what this thread has added since `kept`. Training thread."""
        turns, self._before = kept
        here = get_ident()
        self._turns = [each for each in self._turns if each in turns or each.thread != here]
        self.due = 0

    def leave_alone(self, function: Callable[[Session], Any] | None) -> None:
        """Give `function` alone its turn, at every step; None gives it back to all.

        For steps of a trial that is taken back afterwards: nobody else should act on what
        happens in it. Training thread.
        """
        self._alone = function
        self.due = 0

    def run_due(self, session: Session) -> None:
        """Call what is due at this step. Training thread."""
        step = session.step_count
        if self._alone is not None:
            with guard("trial", session.report):
                self._alone(session)
            return
        turns = self._turns
        self.is_running = True
        try:
            for turn in turns:
                # Before the first update nothing has happened that was worth waiting for.
                every = turn.every
                if turn.due == 0 and every and (step % every != 0 or (step == 0 and every > 1)):
                    turn.due = turn.next_after(step)
                if step >= turn.due:
                    turn.due = turn.next_after(step)
                    self.under_way = turn
                    with guard(turn.name, session.report):
                        turn.function(session)
        finally:
            self.is_running = False
            self.under_way = None
        if turns is self._turns:
            self.due = _earliest(turns)

    def run_before(self, handle: ActionHandle, report: Callable[[Fault], object]) -> None:
        """Call what wants to see a request first. Training thread."""
        for function in self._before:
            with guard(f"before {handle.action.type}", report):
                function(handle)

    def rewind(self, step: int) -> None:
        """The step count went back to `step`: what was due later is due again."""
        for turn in self._turns:
            turn.due = turn.next_after(step)
        self.due = 0 if self._alone is not None else _earliest(self._turns)


def _nothing(session: Any) -> None:
    """Another rank's turn."""


def _earliest(turns: list[Turn]) -> int:
    return min((turn.due for turn in turns), default=NEVER)
