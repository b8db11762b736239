"""Whether somebody writes a value again and again, as a schedule in a loop does.

One write is an event: another cell tried something, and a request after it is simply in force.
Writes at equal distances are a schedule: a request changes its height and it goes on from there.
"""

from __future__ import annotations


class Rhythm:
    """At which steps somebody else wrote. Training thread."""

    __slots__ = ("_at", "_every", "_is_even", "_is_heard")

    def __init__(self) -> None:
        # Where the run begins counts as a write: the value that stands there is the first one.
        self._at = 0
        self._every = 0
        self._is_even = False
        self._is_heard = False

    def listen(self) -> None:
        """From now on every write is noted: silence means that there was none."""
        self._is_heard = True

    def note(self, steps: int) -> None:
        """Somebody wrote, `steps` being the steps taken so far."""
        gap = steps - self._at
        if gap:
            self._is_even = gap == self._every
            self._at, self._every = steps, gap

    def goes_on(self, steps: int) -> bool:
        """Whether the last two distances were equal, and the next write is not overdue."""
        return self._is_even and steps - self._at <= self._every

    def may_begin(self, steps: int) -> bool:
        """Whether a write over a request may be a schedule's.

        So it may where nothing is known, and where every step so far had its write: a loop that
        writes from the second step on has no history yet.
        """
        return not self._is_heard or self.goes_on(steps) or self._every == 1
