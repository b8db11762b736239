"""What a failed run leaves behind: text and an exception that keeps no tensor alive."""

from __future__ import annotations

import copy
import itertools
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from it2nb.core.ballast import lighten
from it2nb.core.faults import guard
from it2nb.notebook.callers import is_function, is_ours


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that left a cell.

    Attributes
    ----------
    error : BaseException
        With the user's frames alone, and these emptied: it may be raised again and again.
    line : int or None
        The last line of the cell on the way to it, as the user counts.
    name, text : str
    shown : list of str
        The traceback as IPython shows it.
    """

    error: BaseException
    line: int | None
    name: str
    text: str
    shown: list[str]


def failure_of(error: BaseException, filename: str, shell: Any) -> Failure:
    """Take what is needed of an exception, then let its frames go (pytorch#37726)."""
    with guard("text of an exception") as fault:
        str(error)
    if fault:
        trace = error.__traceback__
        error = RuntimeError(f"{type(error).__name__}, whose text can't be made ({fault.error})")
        error.__traceback__ = trace
    for each in chain_of(error):
        each.__traceback__ = users_part(each.__traceback__)
    line = last_line(error.__traceback__, filename)
    text = str(error) if not isinstance(error, SystemExit) else f"exit({error.code!r})"
    shown = render(error, shell)
    for each in chain_of(error):
        _empty(each.__traceback__)
        lighten(each)
    return Failure(error, line, type(error).__name__, text, shown)


def _empty(trace: TracebackType | None) -> None:
    """Let go of what the frames of a traceback hold; lines and code stay."""
    if trace is None:
        return
    traceback.clear_frames(trace)
    while trace is not None:
        frame = trace.tb_frame
        # Up to Python 3.12 whoever looked at the variables left a copy in the frame.
        if sys.version_info < (3, 13) and is_function(frame.f_code):
            frame.f_locals.clear()
        trace = trace.tb_next


def chain_of(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception with its causes, contexts and, for a group, its members."""
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [each.__cause__, each.__context__]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """Leave our own frames out of a traceback."""
    kept = []
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            kept.append(trace)
        trace = trace.tb_next
    for first, second in itertools.pairwise(kept):
        first.tb_next = second
    if kept:
        kept[-1].tb_next = None
    return kept[0] if kept else None


def last_line(trace: TracebackType | None, filename: str) -> int | None:
    """Return the innermost line of a file on the way through a traceback."""
    line = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


def render(error: BaseException, shell: Any) -> list[str]:
    """Format an exception as IPython does, or as Python does where that fails."""
    lines = traceback.format_exception(error)
    with guard("IPython's traceback"):
        own = getattr(error, "_render_traceback_", None)
        if own is not None:
            return list(own())
        # A copy: IPython's formatter keeps the traceback that it formatted last.
        formatter = copy.copy(shell.InteractiveTB)
        lines = formatter.structured_traceback(type(error), error, error.__traceback__)
    return [str(each) for each in lines]
