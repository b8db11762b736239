"""All events in columns: metrics by the block, other rows from their lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from it2nb.core.chain import payload_of
from it2nb.frames import payloads

if TYPE_CHECKING:
    from it2nb.core.metrics import MetricStore

_NUMBERS: tuple[tuple[str, Any], ...] = (
    ("ts", np.float64), ("t", np.float64), ("step", np.int64), ("branch_id", np.int64),
    ("round", np.int64),
)  # fmt: skip


def event_columns(
    seqs: NDArray[np.int64],
    rows: Sequence[dict[str, Any]],
    metrics: dict[str, Any],
    first: int,
    head: int,
) -> dict[str, Any]:
    """Put rows and metrics events into one table, in the order of seq.

    Parameters
    ----------
    seqs : array of int, shape (rows,)
        Of the rows that are no metrics; every other seq in ``[first, head)`` is one.
    rows : sequence of dict
        These rows, parsed.
    metrics : dict of str to column
        From `metric_columns`.
    """
    is_row = np.zeros(head - first, bool)
    is_row[seqs - first] = True
    made: dict[str, Any] = {"seq": np.arange(first, head)}
    for name, dtype in _NUMBERS:
        made[name] = _mixed(is_row, [row[name] for row in rows], metrics[name], dtype)
    made["payload"] = _mixed(is_row, [payload_of(row) for row in rows], metrics["payload"], object)
    for name, told in _TEXTS.items():
        # Each row's own text, and one shared "metrics": choices and codes, not a million strings.
        texts = [told(row) for row in rows]
        codes = np.full(len(is_row), len(texts) if name == "type" else -1)
        codes[is_row] = [-1 if text is None else at for at, text in enumerate(texts)]
        made[name] = [*texts, "metrics"], codes
    return made


def metric_columns(
    store: MetricStore, start: int, stop: int, epochs: Sequence[tuple[int, float]]
) -> dict[str, Any]:
    """Return the columns of the metrics events that lie in the store's rows ``[start, stop)``.

    `epochs` gives the rows from which on t counts from which Unix time, in order.
    """
    count = stop - start
    made: dict[str, Any] = {
        "ts": np.empty(count), "t": np.empty(count), "step": np.empty(count, np.int64),
        "branch_id": np.empty(count, np.int64), "round": np.empty(count, np.int64),
        "payload": [],
    }  # fmt: skip
    for block in store.blocks(start, stop):
        part = slice(block.first - start, block.first - start + len(block))
        made["step"][part], made["t"][part] = block.rows[:, 0], block.rows[:, 1]
        made["branch_id"][part], made["round"][part] = block.branch_id, block.round
        made["payload"] += payloads(block.names, block.rows[:, 2:])
    for first, epoch in epochs:  # the later ones write over the earlier
        part = slice(max(0, first - start), None)
        made["ts"][part] = made["t"][part] + epoch
    return made


def _name_of(row: dict[str, Any]) -> str | None:
    """Tell which knob, module or file a row is about, if it says so."""
    payload = row["payload"]
    name = payload.get("name")
    if name is None and isinstance(payload.get("payload"), dict):
        name = payload["payload"].get("name")
    return name if isinstance(name, str) else None


_TEXTS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "type": lambda row: row["type"],
    "source": lambda row: row["source"],
    "action_id": lambda row: row["action_id"],
    "name": _name_of,
}


def _mixed(is_row: NDArray[np.bool_], rows: list[Any], metrics: Any, dtype: Any) -> NDArray[Any]:
    """Put the values of rows and of metrics events in the order of seq."""
    column = np.empty(len(is_row), dtype)
    if dtype is not object:
        column[is_row], column[~is_row] = rows, metrics
    elif not rows:
        column[:] = metrics
    else:
        # Through arrays of objects: numpy would take lists of dicts apart.
        for mask, values in ((is_row, rows), (~is_row, metrics)):
            part = np.empty(len(values), object)
            part[:] = values
            column[mask] = part
    return column
