"""The drift watch: for some steps after an edit, a value that something else changed is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

#: Optimizer steps after an edit during which its value is watched.
WATCHED_STEPS = 50


class Tell(Protocol):
    """Where a setting reports to."""

    def warn(self, text: str) -> None:
        """Tell people something, once."""

    def drift(
        self, name: str, at: int, expected: Any, found: Any, by: str, kept: bool, mode: str
    ) -> None:
        """Something else changed the value of group `at` after an edit.

        Parameters
        ----------
        name : str
            Of the hyper-parameter, ``"lr"``.
        at : int
            Index of the parameter group.
        expected, found : float, int, bool or str
            What should have stood there, and what did.
        by : str
            Class of a scheduler, ``"load_state_dict"`` or ``"the loop"``.
        kept : bool
            Whether the value asked is in force all the same.
        mode : str
            Of the setting.
        """


@dataclass(slots=True)
class Watch:
    """What the value of one group should be, and until when that is looked at.

    Attributes
    ----------
    expected : any
    until : int
        Steps of the optimizer; 0 while nothing is watched.
    scheduled : bool
        A known scheduler was driving the value at the edit, so that it may change it.
    loaded : bool
        The optimizer's state was loaded since.
    """

    expected: Any = None
    until: int = 0
    scheduled: bool = False
    loaded: bool = False

    def start(self, expected: Any, steps: int, *, scheduled: bool = False) -> None:
        """Watch from now on, `steps` being the steps taken so far."""
        self.expected = expected
        self.until = steps + WATCHED_STEPS
        self.scheduled = scheduled
        self.loaded = False

    def stop(self) -> None:
        """Watch no longer."""
        self.until = 0
