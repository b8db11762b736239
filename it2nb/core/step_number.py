"""Step numbers as loops give them: an int nearly always, and whatever else a variable holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard
from it2nb.core.values import shown

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Largest size of a step number. Metrics keep it as a float64, which tells whole numbers apart up
#: to 2**53; the other half is room to count on in.
MOST = 2**52
#: Steps in a row that may go down. A loop that begins again goes down once; one that counts
#: downwards would open a branch at every step.
DOWN_IN_A_ROW = 3


class StepNumbers:
    """Reads the numbers that one session's loop gives. Training thread only.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told: set[str] = set()
        self._down = 0
        #: The last number that went down: one that goes down from it is the next in a row.
        self._lowest: int | None = None

    def read(self, given: Any, otherwise: int) -> int:
        """Return the number of the step; `otherwise` where what was given can be none.

        Opens a branch for one that is smaller than the last. Tells of each fault once.
        """
        session = self._session
        step = whole_number(given)
        if step is None:
            self._tell("no number", _fault(given), otherwise)
            return otherwise
        last = session.step_count
        if step >= last:
            return step
        self._down = self._down + 1 if self._lowest == last else 1
        if self._down > DOWN_IN_A_ROW:
            self._lowest = otherwise
            self._tell("down", f"step {step} is the {self._down}th in a row to go down", otherwise)
            return otherwise
        self._lowest = step
        session.fork_branch(max(step - 1, 0), f"the loop gave step {step} again")
        return step

    def beside(self, given: Any) -> int:
        """Return the number of a step that something is recorded for, without going there."""
        step = None if given is None else whole_number(given)
        if step is None:
            step = self._session.step_count
            if given is not None:
                self._tell("no number", _fault(given), step, "recorded at")
        return step

    def _tell(self, what: str, said: str, step: int, done: str = "counted on from") -> None:
        if what not in self._told:
            self._told.add(what)
            self._session.warn(f"{said}; {done} {step}")


def _fault(given: Any) -> str:
    if isinstance(given, (int, float)) and abs(given) > MOST:
        return f"step {shown(given)} is too large"
    return f"step {shown(given)} is not a whole number"


def whole_number(value: Any) -> int | None:
    """Read a number (also of NumPy, or in a tensor) that is whole and not above `MOST`.

    Returns
    -------
    int or None
        None for all else, without an error.
    """
    found: int | None = None
    with guard("step number"):
        # NumPy and PyTorch: a counter that is raised in place must not change what was counted.
        plain = value.item() if hasattr(value, "item") else value
        number = int(plain)
        if number == plain and -MOST <= number <= MOST:
            found = number
    return found
