"""The values of knobs: read as plain Python, checked, compared, written into messages."""

from __future__ import annotations

import math
import numbers
from typing import Any

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
    return str(value)


def number(value: Any, dtype: DType) -> float | int:
    """Read a value as a finite number of the type.

    Raises
    ------
    Rejected
        If it is none.
    """
    if type(value) is float and dtype == "float" and value - value == 0.0:
        return value
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        raise Rejected(f"{value!r} is not a number")
    real: Any = value  # numbers.Real is an ABC that type checkers can't relate to float
    if not isinstance(value, numbers.Real):
        raise Rejected(f"{shown(value)} is not a number")
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
