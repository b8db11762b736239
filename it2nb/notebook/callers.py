"""The user's frames above a control point, and their variables, without keeping any alive."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

_OURS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
#: Where code lives that is not the user's: the standard library and installed packages.
_FOREIGN = tuple(
    os.path.join(folder, "")
    for folder in {
        sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")
    }
)
_known: dict[str, bool] = {}


def user_frames(frame: FrameType | None, namespace: Mapping[str, Any]) -> list[FrameType]:
    """List the user's frames from `frame` outwards, up to the cell.

    Clear the list when done: frames refer to all that their functions hold.
    """
    found = []
    while frame is not None:
        if frame.f_globals is namespace:
            found.append(frame)
            if not is_function(frame.f_code):
                break  # the cell itself
        elif _is_users(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


@contextmanager
def locals_of(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """Read a frame's variables inside the block."""
    local = frame.f_locals
    try:
        yield local
    finally:
        # Up to Python 3.12 this is a copy that the frame keeps, and with it every tensor that
        # the function has let go since. It is emptied, unless somebody else holds it too (the
        # user's own locals(); the frame, this generator, the block and this very call are four)
        # or a debugger is about to write it back.
        if (
            sys.version_info < (3, 13)
            and is_function(frame.f_code)
            and sys.gettrace() is None
            and sys.getrefcount(local) <= 4
        ):
            local.clear()


def is_function(code: CodeType) -> bool:
    """Whether code has variables of its own, as a function has and a cell has not."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def has_local(code: CodeType, name: str) -> bool:
    """Whether a function's code has this variable."""
    return name in code.co_varnames or name in code.co_cellvars or name in code.co_freevars


def is_ours(filename: str) -> bool:
    """Whether a file is part of this package."""
    return os.path.abspath(filename).startswith(_OURS)


def _is_users(filename: str) -> bool:
    known = _known.get(filename)
    if known is None:
        path = os.path.abspath(filename)
        foreign = filename.startswith("<") or path.startswith((_OURS, *_FOREIGN))
        known = _known[filename] = not foreign
    return known
