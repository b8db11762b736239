"""Values of knobs that something else writes over soon after a request.

An optimizer's settings are watched where they stand (`it2nb.pytorch.drift`). A knob that the user
made has a getter alone: it is read again at a few of the steps after a change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from it2nb.core.drifted import VALUE_TYPES, told_values
from it2nb.core.faults import guard
from it2nb.core.readable import told

if TYPE_CHECKING:
    from it2nb.core.knobs import Knob
    from it2nb.core.session import Session

#: Steps after a change at which its knob is read: often at first, and no longer than drift is.
LOOKS = (1, 2, 4, 8, 16, 32, 50)
#: Rows among which a newer change of the knob is looked for.
ROWS = 200


@dataclass(slots=True)
class _Change:
    before: Any
    after: Any
    step: int
    branch_id: int
    looks: int = 0


class Overwritten:
    """Tells of each change once that it did not last. Training thread.

    A value that the loop works out from the one that was asked for (a decay of its own) is a
    ``knob_drifted`` row; the one from before the change, put back, is a warning too.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._changes: dict[str, _Change] = {}
        self._call = session.turns.add_on_call(self._look, "values that did not last")

    def note(self, knob: Knob, before: Any, after: Any) -> None:
        """A request changed a knob. One whose setter knows what else drives it is left to it."""
        if knob.driven is not None or before == after:
            self._changes.pop(knob.name, None)
            return
        session = self._session
        # By name: what a knob reads would live as long as the session.
        self._changes[knob.name] = _Change(before, after, session.step_count, session.branch_id)
        self._call_again()

    def _call_again(self) -> None:
        due = [each.step + LOOKS[each.looks] for each in self._changes.values()]
        if due:
            self._call(min(due))

    def _look(self, session: Session) -> None:
        step = session.step_count
        for name, change in list(self._changes.items()):
            if session.branch_id != change.branch_id:
                del self._changes[name]  # the run went back, and the knob with it
                continue
            if step < change.step + LOOKS[change.looks]:
                continue
            found: Any = None
            knob = session.knobs.find(name)
            with guard(f"get of {name}"):
                found = None if knob is None else knob.value
            change.looks += 1
            if found == change.after and change.looks < len(LOOKS):
                continue
            del self._changes[name]
            # NaN and a knob that can't be read tell nothing.
            if found is None or found != found or found == change.after:
                continue
            if found != self._last_told(name):
                self._tell(name, change, found)
        self._call_again()

    def _last_told(self, name: str) -> Any:
        """What the newest row about a knob says: a batch or a restored file may have set it."""
        value: Any = None
        for event in self._session.journal.tail(ROWS, VALUE_TYPES):
            value = told_values(event).get(name, value)
        return value

    def _tell(self, name: str, change: _Change, found: Any) -> None:
        session = self._session
        session.emit(
            "knob_drifted",
            {
                "name": name,
                "before": change.after,
                "expected": change.after,
                "found": found,
                "by": "the loop",
                "after_step": change.step,
            },
        )
        if found == change.before:
            session.warn(
                f"{name} was set to {told(change.after)} after step {change.step}, and what was "
                f"there before, {told(found)}, stands there again: the loop writes it; a change "
                f"lasts where the loop only reads it"
            )
