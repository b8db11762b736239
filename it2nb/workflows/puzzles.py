"""Countdown puzzles in six levels: make a target from some numbers, each used exactly once."""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from it2nb.workflows.expressions import BadExpression, work_out

#: (how many numbers, with which operations) of each level, easy ones first.
LEVELS: tuple[tuple[int, str], ...] = (
    (2, "+"),
    (2, "+-"),
    (3, "+-"),
    (3, "+-*"),
    (4, "+-*"),
    (4, "+-*/"),
)
LARGEST_TARGET = 99


@dataclass(frozen=True, slots=True)
class Puzzle:
    """Numbers, the target, and one way to get there.

    Attributes
    ----------
    level : int
        From 1 to 6.
    numbers : tuple of int
        From 1 to 9.
    target : int
        From 1 to 99.
    solution : str
    """

    level: int
    numbers: tuple[int, ...]
    target: int
    solution: str

    @property
    def prompt(self) -> str:
        """As it is asked: ``"3 5 2=10:"``, the target in two digits."""
        return f"{' '.join(map(str, self.numbers))}={self.target:02d}:"

    @property
    def is_held_out(self) -> bool:
        """Whether it is one of the tenth that nothing is trained on; by a hash of the prompt."""
        return hashlib.sha256(self.prompt.encode()).digest()[0] % 10 == 0


@dataclass(frozen=True, slots=True)
class Checked:
    """What a verifier says to an answer.

    Attributes
    ----------
    verdict : {"right", "wrong", "numbers", "text"}
        Right; another value than the target; not the puzzle's numbers; no expression.
    reward : float
        1 for a right one, 0.1 for the right numbers alone, else 0.
    """

    verdict: Literal["right", "wrong", "numbers", "text"]
    reward: float


def verify(puzzle: Puzzle, answer: str) -> Checked:
    """Check an answer by working it out."""
    try:
        worked = work_out(answer)
    except BadExpression:
        return Checked("text", 0.0)
    if sorted(worked.numbers) != sorted(puzzle.numbers):
        return Checked("numbers", 0.0)
    if worked.value != puzzle.target:
        return Checked("wrong", 0.1)
    return Checked("right", 1.0)


def make(level: int, draw: random.Random) -> Puzzle:
    """Make a puzzle that has a solution."""
    count, operations = LEVELS[level - 1]
    while True:
        numbers = [draw.randint(1, 9) for _ in range(count)]
        value, text, _ = _combine([(Fraction(n), str(n), 3) for n in numbers], operations, draw)
        if value.denominator == 1 and 1 <= value <= LARGEST_TARGET:
            shown = tuple(draw.sample(numbers, count))
            return Puzzle(level, shown, int(value), text)


def several(level: int, count: int, draw: random.Random, *, held_out: bool = False) -> list[Puzzle]:
    """Make puzzles of a level, all of them held out or none."""
    found: list[Puzzle] = []
    while len(found) < count:
        puzzle = make(level, draw)
        if puzzle.is_held_out == held_out:
            found.append(puzzle)
    return found


#: A value, its text, and how tightly the text binds: 1 for a sum, 2 for a product, 3 alone.
_Part = tuple[Fraction, str, int]


def _combine(parts: list[_Part], operations: str, draw: random.Random) -> _Part:
    """Join two parts at random until one is left."""
    while len(parts) > 1:
        place = draw.randrange(len(parts) - 1)
        sign = draw.choice(operations)
        joined = _join(parts[place], sign, parts[place + 1])
        if joined is None:
            sign = "+"
            joined = _join(parts[place], sign, parts[place + 1])
            assert joined is not None
        parts = [*parts[:place], joined, *parts[place + 2 :]]
    return parts[0]


def _join(one: _Part, sign: str, other: _Part) -> _Part | None:
    if sign == "/":
        if other[0] == 0 or (one[0] / other[0]).denominator != 1:
            return None
        return one[0] / other[0], f"{_bound(one, 2)}/{_bound(other, 3)}", 2
    if sign == "*":
        return one[0] * other[0], f"{_bound(one, 2)}*{_bound(other, 2)}", 2
    if sign == "-":
        return one[0] - other[0], f"{_bound(one, 1)}-{_bound(other, 2)}", 1
    return one[0] + other[0], f"{_bound(one, 1)}+{_bound(other, 1)}", 1


def _bound(part: _Part, least: int) -> str:
    return part[1] if part[2] >= least else f"({part[1]})"
