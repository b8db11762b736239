"""What an exception carries besides its words: tensors in its arguments, the model it was about.

``assert loss < 1, loss`` carries the loss and with it the graph of a whole batch, and
``model.typo`` names the model in ``AttributeError.obj``. A run that failed keeps its exception,
and with it all of these would stay in memory (pytorch#37726).
"""

from __future__ import annotations

import copy
import gc
import reprlib
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from it2nb.core.faults import guard, text_of

#: Objects that are looked at before a thing is taken for large.
MOST = 10_000
#: Bytes from which a single object is large.
LARGE = 2**16
#: Characters that are kept of what was let go.
LONG = 1000
#: Attributes of Python's own exceptions that are no part of their ``args``.
_OWN = ("obj", "value", "code", "object")

_words = reprlib.Repr()
_words.maxother = _words.maxstring = LONG


class Gone:
    """Stands in an exception for an object that was let go, and reads as it did."""

    def __init__(self, value: Any) -> None:
        self._repr = _text(value, _words.repr)
        self._str = _text(value, str)

    def __repr__(self) -> str:
        return self._repr

    def __str__(self) -> str:
        return self._str


def frameless(error: BaseException, text: str) -> BaseException:
    """Copy an exception without its frames, which would keep models and batches in memory.

    Nor does it keep the tensors that it carried itself.

    Parameters
    ----------
    error : BaseException
    text : str
        Its formatted traceback, added as a note; none where it is empty.

    Returns
    -------
    BaseException
        Of the same type where it can be copied, else a RuntimeError that says what it was.
    """
    twin: BaseException | None = None
    with guard("copy of an exception"):
        if isinstance(error, BaseExceptionGroup):
            members = [frameless(each, "") for each in error.exceptions]
            twin = type(error)(error.message, members)
        else:
            twin = copy.copy(error)
    if type(twin) is not type(error):
        # One whose __init__ takes other arguments than it hands on.
        with guard("copy of an exception past its __init__"):
            twin = type(error).__new__(type(error), *error.args)
            vars(twin).update(vars(error))
    if type(twin) is not type(error):
        twin = RuntimeError(f"{type(error).__name__}: {text_of(error)}")
    assert twin is not None
    twin.__traceback__ = twin.__cause__ = twin.__context__ = None
    lighten(twin)
    if text:
        twin.add_note(text)
    return twin


def lighten(error: BaseException) -> None:
    """Replace by its words what holds tensors, arrays or anything large, in the exception itself.

    Its type stays, and what else it carries. Not its frames, causes and members: see
    `frameless`. Never raises.
    """
    with guard("arguments of an exception"):
        kept = tuple(_kept(each) for each in error.args)
        if any(new is not old for new, old in zip(kept, error.args, strict=True)):
            error.args = kept
        for name, value in list(vars(error).items()):
            light = _kept(value)
            if light is not value:
                setattr(error, name, light)
    for name in _OWN:
        # A property of somebody's own may refuse.
        with guard("attribute of an exception"):
            value = getattr(error, name, None)
            light = _kept(value)
            if light is not value:
                setattr(error, name, light)


def _kept(value: Any) -> Any:
    return Gone(value) if is_large(value) else value


def _text(value: Any, say: Callable[[Any], str]) -> str:
    with guard("text of an argument of an exception") as fault:
        text = say(value)
        return text if len(text) <= LONG else f"{text[:LONG]}..."
    return f"<{type(value).__name__}, {fault.error}>"


def is_large(value: Any) -> bool:
    """Whether a tensor, an array or anything large is reached from an object."""
    torch: Any = sys.modules.get("torch")
    heavy: tuple[type, ...] = (np.ndarray, BaseException)
    if torch is not None and hasattr(torch, "Tensor"):
        heavy += (torch.Tensor,)
    waiting = [value]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, (type, ModuleType)):
            continue
        seen.add(id(each))
        if isinstance(each, heavy) or len(seen) > MOST or sys.getsizeof(each, 0) > LARGE:
            return True
        if isinstance(each, FunctionType):
            # Its globals are the whole module; what it closes over is its own.
            waiting += [each.__closure__, each.__defaults__]
        else:
            waiting += gc.get_referents(each)
    return False
