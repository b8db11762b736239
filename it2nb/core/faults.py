"""The one broad catch: a fault in steering never ends the training.

Used at each boundary where foreign code runs on our behalf (setters, action handlers, metric
values, controllers, trackers, subscribers, panel, disk, sockets) and nowhere else.
"""

from __future__ import annotations

import dis
import signal
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, TracebackType

from it2nb.core.control import StopTraining
from it2nb.core.utf8 import whole

#: What ends a training on purpose; all else that is raised in steering stays behind a boundary.
ENDING: tuple[type[BaseException], ...] = (
    StopTraining, KeyboardInterrupt, SystemExit, GeneratorExit,
)  # fmt: skip


@dataclass(slots=True)
class Fault:
    """What went wrong behind a boundary, as text: it keeps no frame and so no tensor alive.

    Attributes
    ----------
    where : str
        The boundary, for example ``"setter of lr"``.
    error : str
        ``"ValueError: ..."``; empty while nothing was caught.
    traceback : str
        The formatted traceback.
    """

    where: str
    error: str = ""
    traceback: str = ""
    kind: str = field(default="", repr=False)

    def __bool__(self) -> bool:
        return bool(self.error)

    def catch(self, error: BaseException) -> None:
        """Take the text of `error`."""
        self.kind = type(error).__name__
        detail = text_of(error)
        self.error = f"{self.kind}: {detail}" if detail else self.kind
        try:
            self.traceback = whole("".join(traceback.format_exception(error)))
        except BaseException as second:  # foreign code writes a part of it
            self.traceback = f"{self.error} (no traceback: {type(second).__name__})"


def text_of(error: BaseException) -> str:
    """What an exception says; where it can't say that itself, so much is said."""
    try:
        return whole(str(error))
    except BaseException as second:  # the boundary itself: DESIGN section 3, rule 6
        return f"(its text can't be read: {type(second).__name__})"


class guard(Fault):
    """Keep an exception from passing the boundary `where`.

    StopTraining, KeyboardInterrupt, SystemExit and GeneratorExit pass; whatever else is raised
    is caught, also what is no Exception.

    Parameters
    ----------
    where : str
        Named in the report.
    report : callable, optional
        Called with the Fault after it was caught. What it raises is dropped: a report that
        fails must not do what the fault itself may not.
    passes : tuple of exception types
        What is not caught. None on a thread of our own: it would end that thread without a word.

    Returns
    -------
    Fault
        From ``with guard(...) as fault``; falsy while nothing was caught.
    """

    # One object, the fault itself, and no generator: a request passes several of these.
    __slots__ = ("_passes", "_report")

    def __init__(
        self,
        where: str,
        report: Callable[[Fault], object] | None = None,
        *,
        passes: tuple[type[BaseException], ...] = ENDING,
    ) -> None:
        self.where = where
        self.error = self.traceback = self.kind = ""
        self._report = report
        self._passes = passes

    def __enter__(self) -> Fault:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        frames: TracebackType | None,
    ) -> bool:
        if error is None:
            return False
        if isinstance(error, self._passes):
            return False
        self.catch(error)
        if self._report is not None:
            try:
                self._report(self)
            except BaseException as second:  # the boundary itself: DESIGN section 3, rule 6
                if isinstance(second, self._passes):
                    raise
                said = f"{type(second).__name__}: {text_of(second)}"
                self.error += f" (and its report failed: {said})"
        return True


def is_pressed(error: BaseException) -> bool:
    """Whether a KeyboardInterrupt comes from outside: Ctrl-C, or a kernel that is interrupted.

    False where foreign code says ``raise KeyboardInterrupt`` itself. What comes from outside
    meets the code between two of its instructions, and never at one that raises; a handler of
    SIGINT that raises is known by its code.
    """
    found: BaseException | None = error
    for _ in range(100):
        if found is None:
            return False
        if isinstance(found, KeyboardInterrupt) and not _was_raised(found):
            return True
        found = found.__cause__ or found.__context__
    return True


def _was_raised(error: BaseException) -> bool:
    frames = error.__traceback__
    handler = signal.getsignal(signal.SIGINT)
    ours: CodeType | None = getattr(handler, "__code__", None)
    while frames is not None:
        code = frames.tb_frame.f_code
        if code is ours:
            return False
        if frames.tb_next is None:
            return dis.opname[code.co_code[frames.tb_lasti]] == "RAISE_VARARGS"
        frames = frames.tb_next
    return False
