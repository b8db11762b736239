"""The one broad catch: a fault in steering never ends the training.

Used at each boundary where foreign code runs on our behalf (setters, action handlers, metric
values, controllers, trackers, subscribers, panel, disk, sockets) and nowhere else.
"""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


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


@contextmanager
def guard(where: str, report: Callable[[Fault], object] | None = None) -> Iterator[Fault]:
    """Keep an exception from passing the boundary `where`.

    Catches Exception only: StopTraining, KeyboardInterrupt and SystemExit pass.

    Parameters
    ----------
    where : str
        Named in the report.
    report : callable, optional
        Called with the Fault after it was caught. What it raises is dropped: a report that
        fails must not do what the fault itself may not.

    Yields
    ------
    Fault
        Falsy while nothing was caught; look at it after the block.
    """
    fault = Fault(where)
    try:
        yield fault
    except Exception as error:  # the boundary itself: DESIGN section 3, rule 6
        fault.catch(error)
    if fault and report is not None:
        try:
            report(fault)
        except Exception as error:
            fault.error += f" (and its report failed: {type(error).__name__}: {error})"


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
