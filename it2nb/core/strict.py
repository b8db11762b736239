"""Strict JSON: any value as plain types, its non-finite numbers as ``null`` and told beside it."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel

from it2nb.core.faults import guard
from it2nb.core.utf8 import whole

NonFinite = Literal["nan", "inf", "-inf"]
JSON: TypeAlias = Any


def kind_of(number: float) -> NonFinite | None:
    """Tell the kind of a non-finite number; None for a finite one."""
    if math.isfinite(number):
        return None
    if math.isnan(number):
        return "nan"
    return "inf" if number > 0 else "-inf"


def strict(value: Any) -> tuple[JSON, dict[str, NonFinite]]:
    """Make `value` strict JSON: plain types, finite numbers, no cycle.

    Parameters
    ----------
    value : any
        Mappings, sequences, sets, dataclass-free plain values; arrays and tensors of up to 64
        elements become lists, anything else becomes its repr, shortened to 200 characters.

    Returns
    -------
    plain : JSON
        With null in the place of each non-finite number.
    nonfinite : dict of str to {"nan", "inf", "-inf"}
        Path of each of these, ``"data.loss"`` or ``"metrics.0"``; the path of `value` itself
        is ``""``.
    """
    found: dict[str, NonFinite] = {}
    return _plain(value, "", found, 0), found


def plain(value: Any) -> Any:
    """Make `value` plain Python: what `strict` does, with the non-finite numbers left in."""
    if value is None or type(value) in _SIMPLE:
        return value
    return restore(*strict(value))


_SIMPLE = frozenset({bool, int, float, str})


def _digits(value: int) -> str:
    """Write a number beyond 64 bits; Python refuses thousands of digits, and nobody reads them."""
    return str(value) if value.bit_length() < 4096 else hex(value)[:32] + "..."


def _plain(value: Any, path: str, found: dict[str, NonFinite], depth: int) -> JSON:
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    if kind is str:
        return whole(value)
    if kind is int:
        return value if -(2**63) <= value < 2**64 else _digits(value)
    if kind is float:
        odd = kind_of(value)
        if odd is None:
            return value
        found[path] = odd
        return None
    if depth > 12:
        return "..."
    if isinstance(value, Mapping):
        return {
            _key(key): _plain(each, _below(path, _key(key)), found, depth + 1)
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [
            _plain(each, _below(path, str(index)), found, depth + 1)
            for index, each in enumerate(value)
        ]
    if isinstance(value, BaseModel):
        return _plain(value.model_dump(), path, found, depth + 1)
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, (int, float, str)):  # subclasses: enums, numpy floats, live numbers
        return _plain(_bare(value), path, found, depth + 1)
    return _foreign(value, path, found, depth)


def _bare(value: float | int | str) -> float | int | str:
    if isinstance(value, str):
        return str.__str__(value)  # str(an enum) would be its name
    return float(value) if isinstance(value, float) else int(value)


def _key(key: Any) -> str:
    return whole(str(key))


def _below(path: str, key: str) -> str:
    # A dot inside a key is escaped, so that {"a.b": nan} and {"a": {"b": nan}} stay apart, and
    # so is a backslash; an empty key is a lone one.
    key = key.replace("\\", "\\\\").replace(".", "\\.") or "\\"
    return f"{path}.{key}" if path else key


def _foreign(value: Any, path: str, found: dict[str, NonFinite], depth: int) -> JSON:
    """Arrays and tensors become numbers, paths their text, all else a short repr."""
    if isinstance(value, os.PathLike):
        return _plain(os.fspath(value), path, found, depth + 1)
    text = f"<{type(value).__name__}>"
    with guard("repr of a value on its way to the journal"):
        if hasattr(value, "tolist"):
            count = value.numel() if hasattr(value, "numel") else value.size
            if int(count) <= 64:
                return _plain(value.tolist(), path, found, depth + 1)
        text = repr(value)
    text = whole(text)
    return text if len(text) <= 200 else text[:197] + "..."


def restore(value: JSON, nonfinite: Mapping[str, str] | None) -> JSON:
    """Undo `strict`: put the non-finite numbers back into a copy of `value`."""
    if not nonfinite:
        return value
    if "" in nonfinite:
        return float(nonfinite[""])
    return _put_back(value, "", nonfinite)


def _put_back(value: JSON, path: str, nonfinite: Mapping[str, str]) -> JSON:
    if value is None:
        return float(nonfinite[path]) if path in nonfinite else None
    if isinstance(value, dict):
        return {key: _put_back(each, _below(path, key), nonfinite) for key, each in value.items()}
    if isinstance(value, list):
        return [
            _put_back(each, _below(path, str(index)), nonfinite) for index, each in enumerate(value)
        ]
    return value
