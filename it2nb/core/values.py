"""The values of knobs: read as plain Python, checked, compared, written into messages."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from it2nb.core.errors import Rejected
from it2nb.core.faults import guard
from it2nb.core.readable import told
from it2nb.core.wire import DType


def shown(value: Any) -> str:
    """Write a value into a message as `told`, at most 60 characters."""
    text = "<unprintable>"
    with guard("repr of a value"):
        text = told(value)
    return text if len(text) <= 60 else text[:57] + "..."


def bare(value: Any) -> Any:
    """Take a value out of what holds exactly one: NumPy's numbers, arrays and tensors without
    dimensions, members of an enum that is text. All else is returned as it is.
    """
    if type(value) in _PLAIN:
        return value
    if isinstance(value, str):
        return str.__str__(value)  # str() of such a member would be its name
    if isinstance(value, np.generic):
        # A span of time is an integer to NumPy; one of long doubles has no plain number.
        return value.item() if value.dtype.kind in "biufU" else value
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        with guard("item of a value"):
            return bare(value.item())
    return value


_PLAIN = frozenset({float, int, bool, str, type(None)})


def plain_value(value: Any, dtype: DType) -> Any:
    """Turn what a getter returned (a tensor, a numpy scalar) into the plain type of the knob."""
    if value is None or dtype == "choice":
        return value
    if dtype == "float":
        return float(value)
    if dtype == "int":
        return int(value)
    if dtype == "bool":
        return bool(value)
    return str.__str__(value) if isinstance(value, str) else str(value)


def number(value: Any, dtype: DType) -> float | int:
    """Read a value as a finite number of the type.

    Raises
    ------
    Rejected
        If it is none.
    """
    if type(value) is float and dtype == "float" and value - value == 0.0:
        return value
    real: Any = value  # numbers.Real is an ABC that type checkers can't relate to float
    is_number = isinstance(value, numbers.Real) and not isinstance(value, (bool, np.timedelta64))
    if not is_number:
        raise Rejected(f"{shown(value)} is not a number{_meant(value)}")
    try:
        found = float(real)
    except (OverflowError, ValueError) as err:
        raise Rejected(f"{shown(value)} is too large a number") from err
    if math.isnan(found):
        raise Rejected("nan is not a number")
    if math.isinf(found):
        raise Rejected(f"{found!r} is not finite")
    if dtype == "float":
        return found
    if found != math.floor(found):
        raise Rejected(f"{value!r} is not a whole number")
    return int(real)  # not int(found): a large int keeps all its digits


def _meant(text: Any) -> str:
    """Say what to ask for where a text looks like a number."""
    if not isinstance(text, str) or len(text) > 40:
        return ""
    pointed = text.strip().replace(",", ".", 1)
    found = math.nan
    with guard("number in a text"):
        found = float(pointed)
    if not math.isfinite(found):
        return ""
    if "," in text:
        return f"; decimals have a point: {pointed}"
    return f" but a text; ask for {pointed} without quotes"


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same, NaN and NaN too."""
    if type(one) is float and type(other) is float:
        return one == other or (one != one and other != other)
    equal = False
    with guard("comparison of two values"):
        equal = bool(one == other) or bool(one != one and other != other)
    return equal


def close(one: Any, other: Any) -> bool:
    """Equal, or as equal as a float32 tensor can hold it."""
    if equal(one, other):
        return True
    if isinstance(one, float) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-6)
    return False
