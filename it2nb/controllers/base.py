"""Controllers: what they have to offer, and how foreign objects are made to fit."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from it2nb.controllers.observation import Observation
from it2nb.core.errors import It2nbError
from it2nb.core.faults import guard
from it2nb.core.wire import Action, ActionResult

#: Entries that a controller may have.
ControllerSource = Literal["rule", "agent", "plan"]
SOURCES: tuple[str, ...] = get_args(ControllerSource)

#: What a controller may answer. Anything else becomes a `rejected` row.
Asked = Action | Mapping[str, Any] | Iterable[Action | Mapping[str, Any]] | None


class ControllerError(It2nbError):
    """An object can't be attached as a controller, or was attached wrongly."""


@runtime_checkable
class Controller(Protocol):
    """Anything that asks by itself.

    Attributes
    ----------
    name : str
        Becomes the actor of its requests.
    source : {"rule", "agent", "plan"}
        Whose permissions, limits and budget hold for it.
    every : int, optional
        Optimizer steps between two turns.

    Notes
    -----
    May also have ``plan(ctx)`` and ``reflect(ctx, record)`` for rounds, ``describe()`` (plain
    JSON for the panel and the journal), ``call_row()`` (what to write about the last call:
    prompt, answer, ``tokens``, ``cost``), ``configurable`` (names) with ``configure(**options)``,
    and ``on_attach(attached)``.
    """

    name: str
    source: ControllerSource

    def ask(self, observation: Observation) -> Asked:
        """Return what to ask for now: actions, or None.

        Called on a thread of its own, or on the training thread for rules; never on two at once.
        """

    def tell(self, result: ActionResult) -> None:
        """Hear what became of a request; on the same thread as `ask`."""


class Adapted:
    """A controller with everything that can be called filled in.

    Parameters
    ----------
    target : object
        With ``ask`` (a controller), or ``act``, ``plan`` or ``reflect`` (the paper's objects),
        or a function of an observation.
    name : str, optional
        By default its own, or its class's.

    Raises
    ------
    ControllerError
        If it offers none of these, or claims a source that no controller has.
    """

    def __init__(self, target: Any, name: str | None = None) -> None:
        self.target = target
        ask = getattr(target, "ask", None) or getattr(target, "act", None)
        self._ask: Callable[..., Any] | None = ask if callable(ask) else None
        plain = self._ask is None and not _has(target, "plan") and not _has(target, "reflect")
        if isinstance(target, type) or (plain and not callable(target)):
            hint = f"; give an instance, {target.__name__}()" if isinstance(target, type) else ""
            raise ControllerError(
                f"{target!r:.80} is no controller: it needs ask(observation), the paper's "
                f"act(observation), plan(ctx) or reflect(ctx, record), or has to be a function "
                f"of an observation, a rule, or a rule's text{hint}"
            )
        if plain:
            self._ask = target
        self.name = name or _name_of(target)
        self.source: ControllerSource = getattr(target, "source", "rule" if plain else "agent")
        if self.source not in SOURCES:
            raise ControllerError(
                f"{self.name}: source={self.source!r} has to be one of {', '.join(SOURCES)}"
            )
        self.every: int | None = getattr(target, "every", None)
        #: Whether it answers at once, in constant time, on the training thread.
        self.is_quick = bool(getattr(target, "is_quick", False))
        self.configurable = frozenset(getattr(target, "configurable", ()))
        #: Whether it plans rounds, and whether it looks back at them.
        self.plans = _has(target, "plan")
        self.reflects = _has(target, "reflect")
        self._takes = None if self._ask is None else _arity(self._ask)

    def __repr__(self) -> str:
        return f"<{self.source} {self.name}>"

    @property
    def acts(self) -> bool:
        """Whether it has anything to say between two steps."""
        return self._ask is not None

    def ask(self, observation: Observation, session: Any) -> Any:
        """Ask it. What it raises is the caller's."""
        assert self._ask is not None
        if self._takes == "nothing":
            return self._ask()
        if self._takes == "both":
            return self._ask(observation, session)
        return self._ask(session if self._takes == "session" else observation)

    def tell(self, result: ActionResult) -> None:
        """Tell it a result, if it wants to hear."""
        tell = getattr(self.target, "tell", None)
        if callable(tell):
            tell(result)

    def plan(self, context: Any) -> Any:
        """Let it plan a round."""
        return self.target.plan(context)

    def reflect(self, context: Any, record: Mapping[str, Any]) -> Any:
        """Let it look back at a round."""
        takes_one = _arity(self.target.reflect) == "observation"
        return self.target.reflect(record) if takes_one else self.target.reflect(context, record)

    def describe(self) -> dict[str, Any]:
        """What it says of itself; plain JSON is up to the caller."""
        describe = getattr(self.target, "describe", None)
        found = describe() if callable(describe) else {}
        return dict(found) if isinstance(found, Mapping) else {"text": str(found)}

    def call_row(self) -> dict[str, Any]:
        """What it wants to be written about its last call."""
        row = getattr(self.target, "call_row", None)
        found = row() if callable(row) else None
        return dict(found) if isinstance(found, Mapping) else {}

    def hook(self, name: str) -> Callable[..., Any] | None:
        """Return an optional method of it."""
        found: Any = None
        with guard(f"{name} of {self.name}"):
            found = getattr(self.target, name, None)
        return found if callable(found) else None


def _has(target: Any, name: str) -> bool:
    return callable(getattr(target, name, None))


def _name_of(target: Any) -> str:
    name = getattr(target, "name", None)
    if isinstance(name, str) and name:
        return name[:200]
    name = getattr(target, "__name__", None) or type(target).__name__
    return str(name)[:200]


def _arity(function: Callable[..., Any]) -> Literal["nothing", "observation", "session", "both"]:
    """Tell which arguments a foreign function wants."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return "observation"
    needed = [
        each.name
        for each in parameters
        if each.default is each.empty
        and each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(needed) >= 2:
        return "both"
    if needed == ["session"]:
        return "session"
    if needed or any(each.kind == each.VAR_POSITIONAL for each in parameters):
        return "observation"
    # What has a default takes an observation too: act(observation=None).
    positional = any(each.kind == each.POSITIONAL_OR_KEYWORD for each in parameters)
    return "observation" if positional else "nothing"
