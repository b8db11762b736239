"""Tell when another cell rebinds a name that the running loop uses: that changes the run.

The loop lives in the user's namespace, so ``model = Net()`` or ``for i in range(3)`` in another
cell reaches into it. The warning stands in that cell, and a row in the journal.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from it2nb.core.faults import guard
from it2nb.core.readable import told
from it2nb.core.session import Session
from it2nb.notebook.names import Names, names_of

#: Longest text that a row tells, characters.
MAX_TEXT = 80
_MISSING = object()


class RebindingWatch:
    """Looks at each cell that runs beside the loop. Main thread.

    Parameters
    ----------
    shell : InteractiveShell
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._session: Session | None = None
        self._names: Callable[[], Names] = Names
        self._before: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._watched: Names | None = None

    def follow(self, session: Session, names: Callable[[], Names]) -> None:
        """Look after the names of a run until it has ended."""
        self._session = session
        self._names = names

    def before_cell(self) -> None:
        """Remember what the names are bound to. ``pre_run_cell``."""
        self._watched = None
        session = self._session
        if session is None:
            return
        if session.is_ended:
            self._session = None
            return
        with guard("looking for rebound names", session.report):
            self._watched = self._names()
            space: Mapping[str, Any] = self._shell.user_ns
            # Names that the loop binds itself change all the time.
            stable = self._watched.reads - self._watched.binds
            self._before = {name: space[name] for name in stable if name in space}
            self._values = _plain_values(self._watched.all, space)

    def after_cell(self, source: str) -> None:
        """Compare, and warn in the cell. ``post_run_cell``."""
        before, self._before = self._before, {}
        values, self._values = self._values, {}
        watched, self._watched = self._watched, None
        session = self._session
        if session is None or watched is None or session.is_ended:
            return
        with guard("looking for rebound names", session.report):
            space = self._shell.user_ns
            changed = {name for name, was in before.items() if space.get(name, _MISSING) is not was}
            changed |= (self._bound_by(source) & watched.binds) - {"_"}
            if changed:
                names = sorted(changed)
                was = {name: values[name] for name in names if name in values}
                self._tell(session, names, was, _plain_values(names, space))

    def _bound_by(self, source: str) -> frozenset[str]:
        try:
            code = compile(
                self._shell.transform_cell(source), "<cell>", "exec", self._shell.compile.flags
            )
        except (SyntaxError, ValueError):
            return frozenset()
        return names_of(code).binds

    def _tell(
        self, session: Session, names: list[str], before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        listed = ", ".join(names)
        both = [name for name in names if name in before and name in after]
        moved = ", ".join(f"{name} {told(before[name])} → {told(after[name])}" for name in both)
        few = "it" if len(names) == 1 else "them"
        print(
            f"it2nb: this cell rebound {listed}, and the running loop of {session.run_id} uses "
            f"{few}: from step {session.step_count} on it sees the new "
            f"value{moved and f' ({moved})'}. Use other names while it runs, or %it2 set for a "
            f"change that is recorded.",
            file=sys.stderr,
        )
        session.emit(
            "namespace_changed",
            {
                "names": names,
                "cell": self._shell.execution_count,
                "before": before,
                "after": after,
            },
            source="magic",
        )


def _plain_values(names: Iterable[str], space: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of those names that a row can hold: numbers, bools, None, short text."""
    return {name: space[name] for name in names if name in space and _is_plain(space[name])}


def _is_plain(value: Any) -> bool:
    if type(value) is str:
        return len(value) <= MAX_TEXT
    # Beyond 64 bits a number is no number of JSON.
    return (
        value is None or type(value) in (bool, float) or (type(value) is int and abs(value) < 2**63)
    )
