"""The one broad catch: a fault in steering never ends the training.

Used at each boundary where foreign code runs on our behalf (setters, action handlers, metric
values, controllers, trackers, subscribers, panel, disk, sockets) and nowhere else.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType


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
        detail = str(error)
        self.error = f"{self.kind}: {detail}" if detail else self.kind
        self.traceback = "".join(traceback.format_exception(error))


class guard(Fault):
    """Keep an exception from passing the boundary `where`.

    Catches Exception only: StopTraining, KeyboardInterrupt and SystemExit pass.

    Parameters
    ----------
    where : str
        Named in the report.
    report : callable, optional
        Called with the Fault after it was caught. What it raises is dropped: a report that
        fails must not do what the fault itself may not.

    Returns
    -------
    Fault
        From ``with guard(...) as fault``; falsy while nothing was caught.
    """

    # One object, the fault itself, and no generator: a request passes several of these.
    __slots__ = ("_report",)

    def __init__(self, where: str, report: Callable[[Fault], object] | None = None) -> None:
        self.where = where
        self.error = self.traceback = self.kind = ""
        self._report = report

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
        if not isinstance(error, Exception):
            return False
        self.catch(error)
        if self._report is not None:
            try:
                self._report(self)
            except Exception as second:  # the boundary itself: DESIGN section 3, rule 6
                self.error += f" (and its report failed: {type(second).__name__}: {second})"
        return True


def frameless(error: BaseException, text: str) -> BaseException:
    """Copy an exception without its frames, which would keep models and batches in memory.

    Parameters
    ----------
    error : BaseException
    text : str
        Its formatted traceback, added as a note.

    Returns
    -------
    BaseException
        Of the same type where it can be copied, else a RuntimeError that says what it was.
    """
    twin: BaseException | None = None
    with guard("copy of an exception"):
        twin = copy.copy(error)
    if type(twin) is not type(error):
        twin = RuntimeError(f"{type(error).__name__}: {error}")
    assert twin is not None
    twin.__traceback__ = twin.__cause__ = twin.__context__ = None
    twin.add_note(text)
    return twin
