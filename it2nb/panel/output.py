"""What a run printed, on its way to a panel."""

from __future__ import annotations

from it2nb.core.wire_panel import Output, OutputLine
from it2nb.panel.terminal import Printed, Terminal

#: Characters of changed lines in one batch, at most: of the 20 kB of an update.
FRESH = 6_000


class OutputFeed:
    """Which lines the pages have, so that a batch carries those that changed. Sender only."""

    def __init__(self) -> None:
        self._stamp = -1
        self._told: dict[int, int] = {}
        self._first = 0

    def whole(self, terminal: Terminal | None) -> Output | None:
        """Return all lines; None where nothing was printed."""
        if terminal is None or terminal.stamp == 0:
            return None
        first, lines = terminal.lines()
        return Output(first=first, lines=[_line(each) for each in lines])

    def fresh(self, terminal: Terminal | None) -> Output | None:
        """Return the lines that changed since the last time, the newest where they are too many."""
        if terminal is None or terminal.stamp == max(0, self._stamp):
            return None
        stamp = terminal.stamp
        first, lines = terminal.lines()
        room = FRESH
        chosen: list[Printed] = []
        for each in reversed(lines):
            if self._told.get(each.number, -1) >= each.stamp:
                continue
            room -= len(each.text) + len(each.look) + 40
            if room < 0 and chosen:
                break
            chosen.append(each)
        else:
            self._stamp = stamp
        self._told.update((each.number, each.stamp) for each in chosen)
        for number in range(self._first, first):
            self._told.pop(number, None)
        if not chosen and first == self._first:
            return None
        self._first = first
        return Output(first=first, lines=[_line(each) for each in reversed(chosen)])


def _line(printed: Printed) -> OutputLine:
    look = printed.look if printed.look.strip("a") else ""
    return OutputLine(line=printed.number, text=printed.text, look=look)
