"""Plain columns to DataFrames with fixed dtypes. Imports nothing of ours; pandas on first use.

========== ================================ =====================================
frame      column                           dtype
========== ================================ =====================================
events     seq, step, branch_id, round      int64
events     ts                               datetime64[ns, UTC]
events     t                                float64 (seconds since the session was made)
events     type, source, action_id, name    str (missing: NaN)
events     payload                          object (dict)
requests   action_id, type, name, source,   str (missing: NaN)
           actor, asked, status, reason
requests   requested, before, after         object (numbers, text, None)
requests   data                             object (dict, list, text, None)
requests   step, branch_id, round           int64
requests   submitted_at                     datetime64[ns, UTC]
requests   wait_s                           float64 (NaN while pending)
metrics    round, branch_id, step           int64
metrics    t, each metric                   float64
rounds     round, steps, seed               int64
rounds     value, best, took_s              float64 (NaN where there is none)
rounds     status, metric, planner, reason, str (missing: NaN)
           reflection, error
rounds     improved, plan, settings         object (True, False or None; dict or None)
========== ================================ =====================================

`DTYPES` holds the same for code. ``str`` is the text dtype of pandas 3; before it, ``object``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

UTC = "datetime64[ns, UTC]"

DTYPES: dict[str, dict[str, str]] = {
    "events": {
        "seq": "int64", "ts": UTC, "t": "float64", "step": "int64", "branch_id": "int64",
        "round": "int64", "type": "str", "source": "str", "action_id": "str", "name": "str",
        "payload": "object",
    },
    "requests": {
        "action_id": "str", "type": "str", "name": "str", "source": "str", "actor": "str",
        "requested": "object", "asked": "str", "before": "object", "after": "object",
        "status": "str", "reason": "str", "data": "object", "step": "int64",
        "branch_id": "int64", "round": "int64", "submitted_at": UTC, "wait_s": "float64",
    },
    "metrics": {"round": "int64", "branch_id": "int64", "step": "int64", "t": "float64"},
    "rounds": {
        "round": "int64", "status": "str", "metric": "str", "value": "float64",
        "best": "float64", "improved": "object", "steps": "int64", "took_s": "float64",
        "seed": "int64", "planner": "str", "plan": "object", "reason": "str",
        "settings": "object", "reflection": "str", "error": "str",
    },
    "effects": {
        "action_id": "str", "name": "str", "before": "object", "after": "object",
        "step": "int64", "branch_id": "int64", "round": "int64", "metric": "str",
        "n_before": "int64", "n_after": "int64",
        "level_before": "float64", "level_after": "float64",
        "level_change": "float64", "level_low": "float64", "level_high": "float64",
        "slope_before": "float64", "slope_after": "float64",
        "slope_change": "float64", "slope_low": "float64", "slope_high": "float64",
        "verdict": "str", "slope_verdict": "str", "remark": "str",
    },
}  # fmt: skip

#: One row of metrics: names, round, branch, rows of step, t and values.
MetricRows = tuple[tuple[str, ...], int, int, NDArray[np.float64]]


def frame_of(kind: str, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Make the frame `kind` of ``DTYPES`` from plain columns of equal length.

    A text column may be a sequence of str and None, or a pair ``(choices, codes)`` in which
    code -1 stands for None; times are Unix seconds.
    """
    import pandas as pd

    made = {name: _column(columns[name], dtype) for name, dtype in DTYPES[kind].items()}
    return pd.DataFrame(made, copy=False)


def events_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Make the frame of all rows of a journal, one event each."""
    return frame_of("events", columns)


def requests_frame(columns: Mapping[str, Any]) -> pd.DataFrame:
    """Make the frame of all requests, each with its result."""
    return frame_of("requests", columns)


def metrics_frame(blocks: Iterable[MetricRows]) -> pd.DataFrame:
    """Make the frame of all metrics: a row for each round, branch and step.

    Parameters
    ----------
    blocks : iterable of (names, round, branch_id, rows)
        In the order of recording; rows of shape (n, 2 + names) hold step, t and values.

    Returns
    -------
    DataFrame
        Sorted by round, branch and step. Several rows of one step become one: the last
        value of a name wins, t is the first.
    """
    import pandas as pd

    pieces = list(blocks)
    names = list(dict.fromkeys(name for piece in pieces for name in piece[0]))
    keys, t = _keys(pieces)
    slots, first = _slots(keys)
    columns: dict[str, Any] = {
        name: np.ascontiguousarray(keys[first, index]).astype(np.int64)
        for index, name in enumerate(("round", "branch_id", "step"))
    }
    columns["t"] = t[first]
    for name in names:
        column = np.full(len(first), np.nan)
        start = 0
        for piece_names, _, _, rows in pieces:
            stop = start + len(rows)
            if name in piece_names:
                # A slot that comes twice keeps the last value.
                column[slots[start:stop]] = rows[:, 2 + piece_names.index(name)]
            start = stop
        columns[f"metric.{name}" if name in DTYPES["metrics"] else name] = column
    return pd.DataFrame(columns, copy=False)


def _keys(pieces: Sequence[MetricRows]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return round, branch and step, and t, of all rows."""
    count = sum(len(rows) for _, _, _, rows in pieces)
    keys, t = np.empty((count, 3)), np.empty(count)
    start = 0
    for _, round, branch_id, rows in pieces:
        stop = start + len(rows)
        keys[start:stop, 0], keys[start:stop, 1] = round, branch_id
        keys[start:stop, 2], t[start:stop] = rows[:, 0], rows[:, 1]
        start = stop
    return keys, t


def _slots(keys: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Give each row the place of its key among the sorted ones, and each place its first row."""
    count = len(keys)
    change = np.diff(keys, axis=0)
    rising = (change[:, 0] > 0) | (
        (change[:, 0] == 0) & ((change[:, 1] > 0) | ((change[:, 1] == 0) & (change[:, 2] > 0)))
    )
    if rising.all():  # the usual run: one branch, each step once
        return np.arange(count), np.arange(count)
    order = np.lexsort((keys[:, 2], keys[:, 1], keys[:, 0]))
    fresh = np.ones(count, bool)
    fresh[1:] = (np.diff(keys[order], axis=0) != 0).any(axis=1)
    slots = np.empty(count, np.intp)
    slots[order] = np.cumsum(fresh) - 1
    return slots, order[fresh]


def payloads(names: Sequence[str], rows: NDArray[np.float64]) -> list[dict[str, float]]:
    """Return one dict of metric values for each row; rows have shape (n, names).

    Spelled out for up to four names: three times as fast as ``dict(zip(...))``, and a long
    run has millions of them.
    """
    columns = [rows[:, index].tolist() for index in range(len(names))]
    if len(columns) == 1:
        (n0,) = names
        return [{n0: a} for a in columns[0]]
    if len(columns) == 2:
        n0, n1 = names
        return [{n0: a, n1: b} for a, b in zip(*columns, strict=True)]
    if len(columns) == 3:
        n0, n1, n2 = names
        return [{n0: a, n1: b, n2: c} for a, b, c in zip(*columns, strict=True)]
    if len(columns) == 4:
        n0, n1, n2, n3 = names
        return [{n0: a, n1: b, n2: c, n3: d} for a, b, c, d in zip(*columns, strict=True)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def timestamps(ts: Any) -> NDArray[np.datetime64]:
    """Turn Unix seconds into times, rounded to the microsecond that a float holds; NaN is NaT."""
    seconds = np.asarray(ts, np.float64)
    known = np.isfinite(seconds)
    stamps = np.full(len(seconds), np.datetime64("NaT", "ns"))
    whole = np.round(seconds[known] * 1e6).astype(np.int64) * 1000
    stamps[known] = whole.view("datetime64[ns]")
    return stamps


def _column(values: Any, dtype: str) -> Any:
    import pandas as pd

    if dtype == UTC:
        return pd.Series(timestamps(values), copy=False).dt.tz_localize("UTC")
    if dtype == "object":
        column = np.empty(len(values), object)
        column[:] = values
        return pd.Series(column, dtype=object, copy=False)
    if dtype == "str":
        return _text(values)
    return np.asarray(values, dtype)


def _text(values: Any) -> Any:
    import pandas as pd

    choices, codes = values if isinstance(values, tuple) else (values, np.arange(len(values)))
    if int(pd.__version__.partition(".")[0]) < 3:
        table = np.empty(len(choices) + 1, object)
        table[:-1], table[-1] = choices, None
        return pd.Series(table[codes], dtype=object)
    if not len(choices):
        choices = [None]
    return pd.array(choices, dtype="str").take(codes, allow_fill=True)
