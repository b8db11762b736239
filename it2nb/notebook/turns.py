"""Where a loop sets a watched name, told from its bytecode: after the step, and in each turn.

In ``loss = train_step(batch)`` the name still holds the value of the step before, at the control
point inside of that call. And ``reward = 1`` gives it the very object that it held, which can't
be told from a name that was left alone.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import NamedTuple

_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL", "STORE_FAST", "STORE_DEREF"})
#: One instruction that does two things, from Python 3.13 on; its argument names both.
_TWO = frozenset({"STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"})


class Setting(NamedTuple):
    """How code sets a name around one of its instructions.

    Attributes
    ----------
    is_later : bool
        Behind it alone. In a loop: all places of the outermost one that set the name come
        after it. A name that is set before as well, for each batch or for each epoch, may be
        reset there, and what is seen at the next step need not be what this one had. Outside
        of loops: the statement that is under way sets it.
    is_each_turn : bool
        In each turn of the innermost loop, whatever its conditions say.
    """

    is_later: bool
    is_each_turn: bool


class Settings:
    """Remembers the answers: a loop asks the same at each of its steps."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, str], tuple[CodeType, Setting]] = {}

    def is_later(self, frames: Iterable[FrameType], names: Iterable[str]) -> bool:
        """Whether one of the frames sets one of the names after what it does now."""
        names = tuple(names)
        return any(self._of(frame, name).is_later for frame in frames for name in names)

    def turn(self, frames: Iterable[FrameType], names: Iterable[str]) -> tuple[int, int] | None:
        """Name the place in a loop that sets one of the names in each turn; None without."""
        names = tuple(names)
        for frame in frames:
            if any(self._of(frame, name).is_each_turn for name in names):
                return id(frame.f_code), frame.f_lasti
        return None

    def _of(self, frame: FrameType, name: str) -> Setting:
        code, at = frame.f_code, frame.f_lasti
        key = id(code), at, name
        known = self._known.get(key)
        if known is None or known[0] is not code:
            known = self._known[key] = code, setting_of(code, at, name)
        return known[1]


def setting_of(code: CodeType, at: int, name: str) -> Setting:
    """Tell how code that is at the instruction `at` sets `name`."""
    stores: list[tuple[int, int | None]] = []
    loops: list[tuple[int, int]] = []
    jumps: list[tuple[int, int]] = []
    here: dis.Instruction | None = None
    for each in dis.get_instructions(code):
        if each.offset <= at:
            here = each  # `at` may point into its inline cache
        if name in _set_by(each):
            stores.append((each.offset, _line(each)))
        elif "JUMP_BACKWARD" in each.opname:
            if each.argval <= at < each.offset:
                loops.append((each.argval, each.offset))
        elif "JUMP" in each.opname:
            jumps.append((each.offset, each.argval))
    if here is None or not stores:
        return Setting(False, False)
    if not loops:
        line = _line(here)
        return Setting(any(offset > at and each == line for offset, each in stores), False)
    first, last = min(loop[0] for loop in loops), max(loop[1] for loop in loops)
    inside = [offset for offset, _ in stores if first <= offset < last]
    # Between two turns what a turn sets is set.
    is_later = here.opname != "FOR_ITER" and bool(inside) and min(inside) > at
    start, end = min(loops, key=lambda loop: loop[1] - loop[0])
    return Setting(
        is_later,
        any(
            start <= store < end
            and not any(start <= jump < store < target <= end for jump, target in jumps)
            for store in inside
        ),
    )


def _line(instruction: dis.Instruction) -> int | None:
    return None if instruction.positions is None else instruction.positions.lineno


def _set_by(instruction: dis.Instruction) -> Iterator[str]:
    if instruction.opname in _STORES:
        yield instruction.argval
    elif instruction.opname in _TWO:
        # The first is set for both; the second one of a STORE_FAST_LOAD_FAST is only read.
        yield from instruction.argval[: 2 if instruction.opname.endswith("STORE_FAST") else 1]
