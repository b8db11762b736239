"""How a name finds its knob: as it is, by an alias, or by an alias with a group behind it."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from typing import Any

from it2nb.core.errors import UnknownKnob, near
from it2nb.core.wire import KnobView

#: What every knob of that name is called too.
USUAL: Mapping[str, str] = {"learning_rate": "lr"}


def own_name(name: object, knobs: Container[object], aliases: Mapping[str, str]) -> str | None:
    """Return the name of the knob that is meant; None when none is.

    Parameters
    ----------
    name : str
        ``"lr"``, ``"learning_rate"``, ``"learning_rate[0]"``.
    knobs : container of str
        The names that there are; they win over aliases.
    aliases : mapping of str to str
        Further names, and what they stand for.
    """
    if not isinstance(name, str):
        return None
    if name in knobs:
        return name
    whole, bracket, group = name.partition("[")
    # An alias of the very name first: "lr[0]" may stand for "lr[decay]".
    for start, rest in ((name, ""), (whole, bracket + group)):
        for known in (aliases, USUAL):
            meant = known.get(start)
            if meant is None:
                continue
            found = meant + rest
            if found in knobs:
                return found
            if rest and aliases.get(found) in knobs:
                return aliases[found]
    return None


def usual(name: str) -> str:
    """Return what a name usually stands for: ``"lr"`` for ``"learning_rate"``, else itself."""
    whole, bracket, group = name.partition("[")
    return USUAL.get(whole, whole) + bracket + group


def further_names(knobs: Container[object], aliases: Iterable[str]) -> list[str]:
    """List the aliases by which one of these knobs is found, those of every knob too."""
    return [*aliases, *(alias for alias, meant in USUAL.items() if meant in knobs)]


def without_owner(name: str) -> str:
    """Return a name without the variable before it: ``"lr[0]"`` for ``"opt_g.lr[0]"``."""
    whole, bracket, group = name.partition("[")
    return whole.rpartition(".")[2] + bracket + group


class KnobViews(Mapping[str, KnobView]):
    """Views of knobs by name. Aliases find them too, and are not listed.

    Parameters
    ----------
    views : iterable of KnobView
    """

    def __init__(self, views: Iterable[KnobView]) -> None:
        self._views = {view.name: view for view in views}
        self._aliases = {
            alias: view.name for view in self._views.values() for alias in view.aliases
        }

    def own_name(self, name: str) -> str:
        """Return the name of the knob that is meant, or `name` itself where none is."""
        return own_name(name, self._views, self._aliases) or name

    def __getitem__(self, name: str) -> KnobView:
        found = own_name(name, self._views, self._aliases)
        if found is None:
            also = further_names(self._views, self._aliases)
            raise UnknownKnob(f"no knob is named {name!r:.60}{near(str(name), self._views, also)}")
        return self._views[found]

    def __contains__(self, name: object) -> bool:
        return own_name(name, self._views, self._aliases) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


class KnobValues(dict[str, Any]):
    """The values of knobs by name. Aliases find them too, and are not listed.

    Parameters
    ----------
    named : callable
        Returns the own name of what it is given, or the same where no knob is meant.
    """

    def __init__(self, named: Callable[[str], str]) -> None:
        super().__init__()
        self._named = named

    def __missing__(self, name: str) -> Any:
        own = self._named(name)
        if own == name:
            raise KeyError(name)
        return self[own]

    def get(self, name: str, default: Any = None) -> Any:
        """See `dict.get`."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (
            isinstance(name, str) and super().__contains__(self._named(name))
        )
