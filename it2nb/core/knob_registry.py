"""The knobs of one session, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from it2nb.core.errors import KnobError, UnknownKnob, near
from it2nb.core.knob_names import further_names, own_name
from it2nb.core.knobs import Knob
from it2nb.core.values import shown
from it2nb.core.wire import KnobView

#: Names whose meaning is remembered.
MAX_MEANT = 4_000


class KnobRegistry(Mapping[str, Knob]):
    """The knobs of a session by name, in the order in which they were registered.

    Reading is safe on any thread. Registering while training runs is too; a request that was
    asked before meets the knob that is there when it is served.
    """

    def __init__(self) -> None:
        self._knobs: dict[str, Knob] = {}
        self._aliases: dict[str, str] = {}
        #: What names were found to mean; begun anew whenever the knobs change.
        self._meant: dict[str, str] = {}

    def register(self, knob: Knob, *, replace: bool = False) -> Knob:
        """Add a knob.

        Raises
        ------
        KnobError
            If the name is taken and `replace` is false.
        """
        if not replace and knob.name in self._knobs:
            raise KnobError(
                f"there is a knob {knob.name!r} already; pick another name, "
                f"or pass replace=True to put this one in its place"
            )
        # New dicts, so that a reader on another thread never meets one that changes under it.
        self._knobs = {**self._knobs, knob.name: knob}
        self._aliases = {**self._aliases, **dict.fromkeys(knob.aliases, knob.name)}
        self._meant = {}
        return knob

    def kept(self) -> tuple[dict[str, Knob], dict[str, str]]:
        """Return what there is, for `put_back`. Any thread."""
        return self._knobs, self._aliases

    def put_back(self, kept: tuple[dict[str, Knob], dict[str, str]]) -> None:
        """Have what there was. Any thread."""
        self._knobs, self._aliases = kept
        self._meant = {}

    def unregister(self, name: str) -> None:
        """Take a knob away; an unknown name is left alone."""
        self._knobs = {key: knob for key, knob in self._knobs.items() if key != name}
        self._aliases = {alias: own for alias, own in self._aliases.items() if own != name}
        self._meant = {}

    def find(self, name: str) -> Knob | None:
        """Return the knob of this name or alias; None when there is none. Any thread."""
        knobs = self._knobs
        knob = knobs.get(name)
        if knob is None:
            knob = knobs.get(own_name(name, knobs, self._aliases) or "")
        return knob

    def __getitem__(self, name: str) -> Knob:
        knob = self.find(name)
        if knob is None:
            hint = near(str(name), self._knobs, further_names(self._knobs, self._aliases))
            raise UnknownKnob(f"no knob is named {shown(name)}{hint}")
        return knob

    def __contains__(self, name: object) -> bool:
        knobs = self._knobs
        return own_name(name, knobs, self._aliases) is not None

    def own_name(self, name: str) -> str:
        """Return the name of the knob that is meant, or `name` itself where none is. Any thread."""
        # Taken before the knobs are: what is found with older ones is stored where nobody looks.
        meant = self._meant
        found = meant.get(name)
        if found is None:
            found = own_name(name, self._knobs, self._aliases) or name
            if len(meant) < MAX_MEANT:
                meant[name] = found
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._knobs)

    def __len__(self) -> int:
        return len(self._knobs)

    def views(self) -> list[KnobView]:
        """Describe all knobs. Any thread."""
        return [knob.view() for knob in self._knobs.values()]
