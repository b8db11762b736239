"""Frames to files that other programs read: CSV and Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from it2nb.core.errors import require
from it2nb.core.strict import restore, strict

if TYPE_CHECKING:
    import pandas as pd


def write_csv(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame as CSV; values that are no plain text or number stand as JSON."""
    target = Path(path)
    plain(frame, keep_scalars=True).to_csv(target, index=False)
    return target


def write_parquet(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a frame as Parquet; columns of mixed values stand as JSON text.

    Raises
    ------
    MissingDependency
        Without pyarrow.
    """
    require("pyarrow", extra="parquet", feature="writing Parquet")
    target = Path(path)
    plain(frame, keep_scalars=False).to_parquet(target, index=False)
    return target


def plain(frame: pd.DataFrame, *, keep_scalars: bool) -> pd.DataFrame:
    """Copy a frame with JSON text in the place of mixed values, of all or of nested ones only."""
    flat = frame.copy()
    for name in [name for name in frame.columns if str(frame.dtypes[name]) == "object"]:
        flat[name] = [_cell(value, keep_scalars) for value in frame[name]]
    return flat


def _cell(value: Any, keep_scalars: bool) -> Any:
    if keep_scalars and not isinstance(value, (dict, list)):
        return value
    if value is None:
        return None
    made, odd = strict(value)
    if odd:
        # JSON has no NaN; a reader of this cell is a person or a script, and text says it.
        made = _told(restore(made, odd))
    return orjson.dumps(made).decode()


def _told(value: Any) -> Any:
    if isinstance(value, float) and value - value != 0.0:
        return repr(value)
    if isinstance(value, dict):
        return {key: _told(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_told(each) for each in value]
    return value
