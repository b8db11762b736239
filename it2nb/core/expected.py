"""Metrics and knobs that a rule, a guard, the goal or the policy names, and that never come."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from it2nb.core.errors import near

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Optimizer steps between two looks. A rule's slip is told of at the second look at which there
#: are metrics: at the latest 50 steps after the first ones.
EVERY = 25
#: Rows of metrics after which a name is missed that is nearly one of those that came.
ROWS = 50
#: Rows after which any other name is missed: an evaluation may come seldom.
MANY_ROWS = 500
#: How near a name has to be to one that came, to be taken for a slip.
_SLIP = 0.8
#: What the names of metrics begin with that only an evaluation records, now and then.
_SELDOM = re.compile(r"(val|valid|validation|eval|test|dev|heldout)([_/.\- ]|$)", re.IGNORECASE)

Kind = Literal["metric", "knob"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A name that somebody waits for."""

    kind: Kind
    name: str
    who: str
    is_rule: bool = False


class Expected:
    """Warns once of each name that is watched and never there. Costs nothing at most steps.

    A guard and the goal are told of a name that is nearly one of the recorded ones after 50 rows,
    of any other after 500. A rule is told at the latest 50 steps after there are metrics, but for
    names such as ``val_loss`` that an evaluation records. What has not come by the end of the run
    is told of then.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._wanted: dict[Wanted, None] = {}
        self._told: set[Wanted] = set()
        #: What rules wait for, told or not.
        self._of_rules: dict[Wanted, None] = {}
        #: Names in the policy that were told of.
        self._idle: set[str] = set()
        self._since: int | None = None
        self._remove: Callable[[], None] = lambda: None

    def add(self, name: str, who: str, *, kind: Kind = "metric", is_rule: bool = False) -> None:
        """Note that `who` watches a metric, or would set a knob. Any thread."""
        wanted = Wanted(kind, name, who, is_rule)
        if is_rule:
            self._of_rules[wanted] = None
        if wanted in self._told:
            return
        self._wanted[wanted] = None
        self.look_out()

    def look_out(self) -> None:
        """Look from now on; rounds take such turns away with their trainings. Any thread."""
        self._remove()
        self._remove = self._session.turns.add(EVERY, self._look, "metrics that are waited for")

    def close(self) -> None:
        """The run ends: tell of what never came."""
        if len(self._session.metrics):
            self._tell(is_over=True)

    def doubts(self) -> list[tuple[str, str]]:
        """Return which rules wait in vain so far, and in words for what. Any thread."""
        found = (
            (each.who, missed(self._session, each.kind, each.name)) for each in list(self._of_rules)
        )
        return [(who, said) for who, said in found if said]

    def _look(self, session: Session) -> None:
        if len(session.metrics) and (self._since is None or self._since > session.step_count):
            self._since = session.step_count
        idle = self._tell_idle_rules()
        if len(session.metrics) and self._tell(is_over=False) and not idle:
            self._remove()

    def _tell_idle_rules(self) -> bool:
        """Tell of rules of the policy for what nobody knows; whether to look again."""
        session = self._session
        if session.step_count < EVERY:
            return True
        known = [*session.knobs, *session.actions]
        for name in set(session.policy.idle(known)) - self._idle:
            self._idle.add(name)
            session.warn(
                f"no knob or action is named {name!r}: the rule of the policy for it holds for "
                f"nothing so far{near(name, known)}"
            )
        return False

    def _tell(self, *, is_over: bool) -> bool:
        """Tell of names that are missed; whether nothing is waited for any more."""
        session = self._session
        names, rows = session.metrics.names(), len(session.metrics)
        wanted = dict(self._wanted)
        if session.goal is not None:
            goal = Wanted("metric", session.goal.metric, "the goal of the run")
            if goal not in self._told:
                wanted.setdefault(goal)
        waiting = False
        for each in wanted:
            known: Collection[str] = names if each.kind == "metric" else session.knobs
            if each.name in known:
                self._wanted.pop(each, None)
                continue
            if not (is_over or self._is_due(each, names, rows)):
                waiting = True
                continue
            self._told.add(each)
            self._wanted.pop(each, None)
            hint = _hint(session, each.kind, each.name, known)
            if each.kind == "knob":
                session.warn(f"no knob is named {each.name!r}: {each.who} would set it{hint}")
                continue
            since = "was recorded in this run" if is_over else f"was recorded in {rows} rows"
            session.warn(f"no metric {each.name!r} {since}: {each.who} waits for it{hint}")
        return not waiting

    def _is_due(self, wanted: Wanted, names: Collection[str], rows: int) -> bool:
        if wanted.is_rule and not (wanted.kind == "metric" and _SELDOM.match(wanted.name)):
            since = self._since
            return since is not None and self._session.step_count - since >= EVERY
        slip = difflib.get_close_matches(wanted.name, names, n=1, cutoff=_SLIP)
        return rows >= MANY_ROWS or (rows >= ROWS and bool(slip))


def missed(session: Session, kind: Kind, name: str) -> str:
    """Say that there is no such metric or knob so far, and what was probably meant. Any thread.

    Empty while there is none at all: then it may well come.
    """
    known: Collection[str] = session.metrics.names() if kind == "metric" else session.knobs
    if not known or name in known:
        return ""
    return f"no {kind} {name!r} so far" + _hint(session, kind, name, known).replace("; ", ", ", 1)


def _hint(session: Session, kind: Kind, name: str, known: Collection[str]) -> str:
    if kind == "metric" and name in session.knobs:
        return f"; it is a knob, and watched where it is recorded: session.step({{{name!r}: ...}})"
    if kind == "metric" and session.evaluator is not None and not session.was_evaluated:
        return "; the evaluator has not run yet, and may record it"
    return near(name, known)
