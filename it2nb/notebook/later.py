"""Whether a watched name gets its value only after a step: ``loss = train_step(batch)``.

At the control point inside of that call the name still holds the value of the step before. Where
the cell or the function sets it, told from its bytecode, says so: behind the call that is under
way, and nowhere before it in the loop.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType

_STORES = frozenset({"STORE_NAME", "STORE_GLOBAL", "STORE_FAST", "STORE_DEREF"})
#: One instruction that does two things, from Python 3.13 on; its argument names both.
_TWO = frozenset({"STORE_FAST_STORE_FAST", "STORE_FAST_LOAD_FAST"})


class Later:
    """Remembers the answers: a loop asks the same at each of its steps."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int, str], tuple[CodeType, bool]] = {}

    def __call__(self, frames: Iterable[FrameType], names: Iterable[str]) -> bool:
        """Whether one of the frames sets one of the names after what it does now."""
        names = tuple(names)
        return any(self._sets(frame, name) for frame in frames for name in names)

    def _sets(self, frame: FrameType, name: str) -> bool:
        code, at = frame.f_code, frame.f_lasti
        key = id(code), at, name
        known = self._known.get(key)
        if known is None or known[0] is not code:
            known = self._known[key] = code, sets_later(code, at, name)
        return known[1]


def sets_later(code: CodeType, at: int, name: str) -> bool:
    """Whether code that is at the instruction `at` sets `name` behind it alone.

    In a loop: all places of the outermost one that set it come after `at`. A name that is set
    before the call as well, for each batch or for each epoch, may be reset there, and what is
    seen at the next step need not be what this one had. Outside of loops: the statement that
    is under way sets it.
    """
    stores: list[tuple[int, int | None]] = []
    loops: list[tuple[int, int]] = []
    here: dis.Instruction | None = None
    for each in dis.get_instructions(code):
        if each.offset <= at:
            here = each  # `at` may point into its inline cache
        if name in _set_by(each):
            stores.append((each.offset, _line(each)))
        elif "JUMP_BACKWARD" in each.opname and each.argval <= at < each.offset:
            loops.append((each.argval, each.offset))
    if here is None or here.opname == "FOR_ITER":
        return False  # between two turns: what a turn sets is set
    if not loops:
        return any(offset > at and line == _line(here) for offset, line in stores)
    first, last = min(loop[0] for loop in loops), max(loop[1] for loop in loops)
    inside = [offset for offset, _ in stores if first <= offset < last]
    return bool(inside) and min(inside) > at


def _line(instruction: dis.Instruction) -> int | None:
    return None if instruction.positions is None else instruction.positions.lineno


def _set_by(instruction: dis.Instruction) -> Iterator[str]:
    if instruction.opname in _STORES:
        yield instruction.argval
    elif instruction.opname in _TWO:
        # The first is set for both; the second one of a STORE_FAST_LOAD_FAST is only read.
        yield from instruction.argval[: 2 if instruction.opname.endswith("STORE_FAST") else 1]
