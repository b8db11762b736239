"""What a run printed, as a terminal would show it: its last lines, and no control characters."""

from __future__ import annotations

import re
import threading
from collections import deque
from typing import NamedTuple

#: Lines that are kept.
LINES = 300
#: Characters that are kept of a line.
COLUMNS = 1_000
#: Characters that are kept in all.
CHARACTERS = 64_000
TAB = 8

_CONTROL = re.compile(
    r"\x1b\[(?P<numbers>[0-?]*)[ -/]*(?P<command>[@-~])"  # CSI: cursor, erase, colour
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # OSC: window titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"
    r"|\x1b(?P<escape>[ -/]*[0-~])"
    r"|(?P<control>[\x00-\x1f\x7f-\x9f])"
)
#: The beginning of a control sequence whose rest comes with the next write.
_TORN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,200}\x1b?|[ -/]*)?\Z")
#: One letter for each character's look: `a` is plain, `b` to `h` the colours red to white, `i`
#: grey; a capital is bold.
PLAIN = "a"
_GREY = "i"


class Printed(NamedTuple):
    """A line. `look` has a letter for each character; it is empty where all are plain."""

    number: int
    stamp: int
    text: str
    look: str


class _Line:
    __slots__ = ("look", "owner", "stamp", "text")

    def __init__(self, stamp: int, owner: str) -> None:
        self.owner = owner
        self.text = ""
        self.look = ""
        self.stamp = stamp


class _Cursor:
    """Where one stream writes, and how."""

    __slots__ = ("column", "look", "row", "torn")

    def __init__(self) -> None:
        self.row = 0
        self.column = 0
        self.look = PLAIN
        #: The beginning of a control sequence.
        self.torn = ""


class Terminal:
    """A screen without a height, on which the last lines stay. Any thread may write and read.

    Lines count from 0 and keep their number when older ones are dropped. Widths are counted in
    characters; a line never wraps, what stands beyond `COLUMNS` is lost. Each stream has a
    cursor of its own: a bar on one stays one line, whatever is printed on the other.

    Attributes
    ----------
    stamp : int
        Grows with each write that may have changed something.
    """

    def __init__(self) -> None:
        self.stamp = 0
        self._lock = threading.Lock()
        self._lines: deque[_Line] = deque([_Line(0, "")])
        self._first = 0
        self._size = 0
        self._stream = ""
        self._cursors: dict[str, _Cursor] = {}
        self._at = _Cursor()

    def write(self, text: str, stream: str = "stdout") -> None:
        """Print a text on a stream; costs some microseconds."""
        if not text:
            return
        with self._lock:
            self._stream = stream
            cursor = self._at = self._cursors.setdefault(stream, _Cursor())
            text = cursor.torn + text[-4 * CHARACTERS :]
            self.stamp += 1
            torn = _TORN.search(text, max(0, len(text) - 256))
            cursor.torn = "" if torn is None else torn.group()
            text = text[: len(text) - len(cursor.torn)]
            if cursor.row < self._first or self._line.owner != stream:
                self._begin_line()
            at = 0
            for found in _CONTROL.finditer(text):
                if found.start() > at:
                    self._put(text[at : found.start()])
                at = found.end()
                self._obey(found)
            if at < len(text):
                self._put(text[at:])

    def lines(self) -> tuple[int, list[Printed]]:
        """Return the number of the oldest line kept, and every line without its last blanks."""
        with self._lock:
            found = []
            for number, line in enumerate(self._lines, self._first):
                text = line.text.rstrip(" ")
                found.append(Printed(number, line.stamp, text, line.look[: len(text)]))
            return self._first, found

    # ------------------------------------------------------------------- under the lock

    @property
    def _line(self) -> _Line:
        return self._lines[self._at.row - self._first]

    def _begin_line(self) -> None:
        """Go to a line of one's own at the end."""
        if self._lines[-1].text or self._lines[-1].owner == self._stream:
            self._lines.append(_Line(self.stamp, self._stream))
        self._lines[-1].owner = self._stream
        self._at.row, self._at.column = self._first + len(self._lines) - 1, 0
        self._bound()

    def _put(self, text: str) -> None:
        at = self._at.column
        text = text[: max(0, COLUMNS - at)]
        if not text:
            return
        line = self._line
        old = line.text
        if at > len(old):
            old += " " * (at - len(old))
        end = at + len(text)
        if line.look or self._at.look != PLAIN:
            look = line.look.ljust(len(old), PLAIN)
            line.look = look[:at] + self._at.look * len(text) + look[end:]
        self._size += max(len(old), end) - len(line.text)
        line.text = old[:at] + text + old[end:]
        line.stamp = self.stamp
        self._at.column = end
        self._bound()

    def _obey(self, found: re.Match[str]) -> None:
        control = found["control"]
        if control == "\n":
            self._next_line()
        elif control == "\r":
            self._at.column = 0
        elif control == "\b":
            self._at.column = max(0, self._at.column - 1)
        elif control == "\t":
            self._put(" " * (TAB - self._at.column % TAB))
        elif found["command"]:
            numbers = [int(each) if each.isdigit() else 0 for each in found["numbers"].split(";")]
            self._command(found["command"], numbers)
        elif found["escape"] == "c":
            self._clear()

    def _command(self, command: str, numbers: list[int]) -> None:
        first = numbers[0]
        count = max(1, first)
        match command:
            case "m":
                self._style(numbers)
            case "A" | "F":
                self._go_to(self._at.row - count)
            case "B" | "E":
                self._go_to(min(self._at.row + count, self._first + len(self._lines) - 1))
            case "C":
                self._at.column = min(COLUMNS, self._at.column + count)
            case "D":
                self._at.column = max(0, self._at.column - count)
            case "G":
                self._at.column = min(COLUMNS, count - 1)
            case "K":
                self._erase(self._line, first)
            case "J" if first in (2, 3):
                self._clear()
            case "J" if first == 0:
                self._erase(self._line, 0)
                for number in range(self._at.row + 1, self._first + len(self._lines)):
                    self._erase(self._lines[number - self._first], 2)
        if command in ("E", "F"):
            self._at.column = 0

    def _next_line(self) -> None:
        self._at.row, self._at.column = self._at.row + 1, 0
        below = self._at.row < self._first + len(self._lines)
        if not below or self._line.owner != self._stream:
            self._begin_line()

    def _go_to(self, row: int) -> None:
        self._at.row = max(self._first, row)

    def _erase(self, line: _Line, which: int) -> None:
        before = len(line.text)
        if which == 0:
            line.text, line.look = line.text[: self._at.column], line.look[: self._at.column]
        elif which == 1:
            blank = min(self._at.column + 1, before)
            line.text = " " * blank + line.text[blank:]
        else:
            line.text = line.look = ""
        self._size += len(line.text) - before
        line.stamp = self.stamp

    def _clear(self) -> None:
        self._first += len(self._lines)
        self._at.row, self._at.column, self._size = self._first, 0, 0
        self._lines = deque([_Line(self.stamp, self._stream)])

    def _bound(self) -> None:
        while len(self._lines) > LINES or (self._size > CHARACTERS and len(self._lines) > 1):
            self._size -= len(self._lines.popleft().text)
            self._first += 1
        self._at.row = max(self._at.row, self._first)

    def _style(self, numbers: list[int]) -> None:
        bold = self._at.look.isupper()
        look = self._at.look.lower()
        rest = iter(numbers)
        for number in rest:
            if number == 0:
                bold, look = False, PLAIN
            elif number == 1:
                bold = True
            elif number == 22:
                bold, look = False, PLAIN if look == _GREY else look
            elif number in (2, 90):
                look = _GREY
            elif 31 <= number <= 37 or 91 <= number <= 97:
                look = chr(ord(PLAIN) + number % 10)
            elif number in (30, 39):
                look = PLAIN
            elif number in (38, 48):
                # A colour of 256, or red, green and blue: not shown.
                for _ in range(1 if next(rest, 0) == 5 else 3):
                    next(rest, 0)
        self._at.look = look.upper() if bold else look
