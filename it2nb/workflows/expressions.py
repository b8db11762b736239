"""Arithmetic as text: parsed and worked out exactly, and nothing of it is ever run as code.

::

    sum     = product (("+" | "-") product)*
    product = atom (("*" | "/") atom)*
    atom    = number | "(" sum ")"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

#: Longer texts are refused before they are read.
MAX_LENGTH = 200


class BadExpression(ValueError):
    """A text is no expression; says where and why."""


@dataclass(frozen=True, slots=True)
class Worked:
    """What an expression comes to.

    Attributes
    ----------
    value : Fraction
    numbers : tuple of int
        That stand in it, in their order.
    """

    value: Fraction
    numbers: tuple[int, ...]


def work_out(text: str) -> Worked:
    """Parse an expression and work it out.

    Raises
    ------
    BadExpression
        If it is none, divides by zero, or is longer than `MAX_LENGTH`.
    """
    if len(text) > MAX_LENGTH:
        raise BadExpression(f"{len(text)} characters are more than {MAX_LENGTH}")
    reader = _Reader(text)
    value = reader.sum()
    if reader.place != len(text):
        raise BadExpression(f"{text[reader.place]!r} at {reader.place} is out of place")
    return Worked(value, tuple(reader.numbers))


@dataclass
class _Reader:
    text: str
    place: int = 0
    numbers: list[int] = field(default_factory=list)

    def sum(self) -> Fraction:
        value = self.product()
        while (sign := self._next("+-")) is not None:
            other = self.product()
            value = value + other if sign == "+" else value - other
        return value

    def product(self) -> Fraction:
        value = self.atom()
        while (sign := self._next("*/")) is not None:
            other = self.atom()
            if sign == "/" and other == 0:
                raise BadExpression(f"a division by zero before {self.place}")
            value = value * other if sign == "*" else value / other
        return value

    def atom(self) -> Fraction:
        if self._next("(") is not None:
            value = self.sum()
            if self._next(")") is None:
                raise BadExpression(f"a ')' is missing at {self.place}")
            return value
        start = self.place
        # Not str.isdigit: that takes digits of other scripts too.
        while self.place < len(self.text) and self.text[self.place] in "0123456789":
            self.place += 1
        if start == self.place:
            raise BadExpression(f"a number is missing at {start}")
        self.numbers.append(int(self.text[start : self.place]))
        return Fraction(self.numbers[-1])

    def _next(self, wanted: str) -> str | None:
        if self.place < len(self.text) and self.text[self.place] in wanted:
            self.place += 1
            return self.text[self.place - 1]
        return None
