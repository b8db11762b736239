"""How many steps a run will have made at its end, as far as its loops can tell."""

from __future__ import annotations

from collections.abc import Callable


class Total:
    """Estimated by the loops, or given by the user; going back makes either smaller.

    Training thread only.

    Parameters
    ----------
    on_change : callable
        Called with the number when it changes.
    given : int, optional
        The steps of a run that never goes back; no estimate takes its place.
    """

    def __init__(self, on_change: Callable[[int], None], given: int | None = None) -> None:
        self._on_change = on_change
        self._given = given
        self._value = given

    def estimate(self, total: int) -> None:
        """The loops expect so many."""
        if self._given is None:
            self._tell(total)

    def lose(self, steps: int, now: int) -> None:
        """The run went back to `now`, and its loop has no turns for these steps."""
        if self._value is not None and self._value - steps > now:
            self._tell(self._value - steps)

    def reach(self, now: int) -> None:
        """The run is at a step: a loop that goes beyond the end goes by the run's own count."""
        if self._given is not None and self._value is not None and now > self._value:
            self._tell(max(self._given, self._value))

    def _tell(self, total: int) -> None:
        if total != self._value:
            self._value = total
            self._on_change(total)
