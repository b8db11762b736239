"""The journal's lines: one JSON object each, and the hashes that chain them.

A row::

    {"v":2,"seq":7,"type":"note","ts":…,"t":…,"step":…,"branch_id":0,"round":0,"source":null,
     "action_id":null,"payload":{…},"prev":"<64 hex>","hash":"<64 hex>"}

A pack holds consecutive metrics events of the same names, branch and round in columns; its
`seq` is the first and the last of them, `epoch` the Unix time at t = 0::

    {"v":2,"seq":[8,10],"type":"metrics","epoch":…,"branch_id":0,"round":0,"step":[1,2,3],
     "t":[…],"columns":{"loss":[…]},"nonfinite":{"loss":{"2":"nan"}},"prev":…,"hash":…}

`hash` is the SHA-256 of the line's bytes before ``,"hash":``, which hold `prev`, the hash of the
line before. So no byte can change, and no line can come, go or move, without breaking the chain;
only the end can be cut off, and that is found against an anchor, the hash of the last line.

A line's *stem* is what stands before ``,"prev":``: the event as it travels, without its brace.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from it2nb.core.strict import kind_of, restore, strict

#: What the first line has as `prev`.
GENESIS = b"0" * 64
#: Steps of one pack, at most.
PACK = 1024

# Whatever is not plain JSON goes through `strict`, so that all paths write the same.
_PLAIN = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_PLAIN |= orjson.OPT_PASSTHROUGH_SUBCLASS

_BRACE = ord("{")
_NEVER_ODD = frozenset({str, type(None), bool, int})
# A copy costs a third less than a new one, and a request is three lines.
_new_hash = sha256().copy

_PREV = b',"prev":"'
_HASH = b',"hash":"'
_END = b'"}'
#: Bytes of ``,"hash":"…"}``, and of ``,"prev":"…"``.
HASH_SIZE = len(_HASH) + 64 + len(_END)
PREV_SIZE = len(_PREV) + 64 + 1


def row_stem(
    seq: int,
    type: str,
    payload: Mapping[str, Any],
    ts: float,
    t: float,
    step: int,
    branch_id: int,
    round: int,
    source: str | None,
    action_id: str | None,
) -> bytes:
    """Write one event as strict JSON, in the form in which it travels, but for its last brace."""
    shared = shared_fields(ts, t, step, branch_id, round, source, action_id)
    return stem_of(seq, type, payload, shared)


def shared_fields(
    ts: float,
    t: float,
    step: int,
    branch_id: int,
    round: int,
    source: str | None,
    action_id: str | None,
) -> bytes:
    """Write what rows that are made together have in common, without its braces."""
    fields = {
        "ts": ts, "t": t, "step": step, "branch_id": branch_id, "round": round,
        "source": source, "action_id": action_id,
    }  # fmt: skip
    try:
        return orjson.dumps(fields, option=_PLAIN)[1:-1]
    except TypeError:  # an enum, a number of NumPy, text that is no Unicode
        return orjson.dumps(strict(fields)[0])[1:-1]


def stem_of(seq: int, type: str, payload: Mapping[str, Any], shared: bytes) -> bytes:
    """Write a row from its own fields and those that it shares."""
    try:
        body = orjson.dumps(payload, option=_PLAIN)
    except TypeError:  # arrays, tensors, enums, keys that are no text, numbers beyond 64 bits
        body = _strict_body(payload)
    else:
        # orjson writes null for NaN and infinities, as for None: as many nulls as there are None
        # are none of them.
        is_object = body[0] == _BRACE
        nulls = [*payload.values()].count(None) if is_object else 0
        if not is_object or (body.count(b"null") != nulls and _is_odd(payload)):
            body = _strict_body(payload)
    # Formatting makes bytes of the right size; orjson's own buffers are larger, and keeping
    # them costs four times as long as writing them.
    return b'{"v":2,"seq":%d,"type":%b,%b,"payload":%b' % (seq, _name(type), shared, body)


def _strict_body(payload: Any) -> bytes:
    """The payload and, where there are any, the non-finite numbers that it holds."""
    found, nonfinite = strict(payload)
    body = orjson.dumps(found if isinstance(found, dict) else {"value": found})
    return body + b',"nonfinite":' + orjson.dumps(nonfinite) if nonfinite else body


@functools.lru_cache(maxsize=1_000)
def _name(type: str) -> bytes:
    return orjson.dumps(strict(type)[0])


def _is_odd(value: Any) -> bool:
    """Whether a NaN or an infinity is somewhere inside a dict, list or tuple."""
    # Exact types: orjson took nothing else. Spelled out, since every request passes here.
    for each in value.values() if type(value) is dict else value:
        kind = type(each)
        if kind in _NEVER_ODD:
            continue
        if kind is float:
            if each - each != 0.0:
                return True
        elif (kind is dict or kind is list or kind is tuple) and _is_odd(each):
            return True
    return False


def event_json(
    seq: int, epoch: float, names: tuple[str, ...], round: int, branch_id: int, row: list[float]
) -> bytes:
    """Write one metrics event by itself, as it travels; in the file it lies in a pack."""
    payload = dict(zip(names, row[2:], strict=True))
    stem = row_stem(
        seq, "metrics", payload, epoch + row[1], row[1], int(row[0]), branch_id, round, None, None
    )
    return whole(stem)


def pack_stem(
    seq: int,
    epoch: float,
    names: tuple[str, ...],
    round: int,
    branch_id: int,
    rows: NDArray[np.float64],
) -> bytes:
    """Write consecutive metrics events as one stem. Rows: step, t, values; at most `PACK`."""
    # Lists, never arrays: of an array with numbers of 24 characters, such as
    # -0.000012345678901234567, orjson 3.12 and 3.13 write beyond their buffer.
    t, *columns = rows.T[1:].tolist()
    pack: dict[str, Any] = {
        "v": 2, "seq": [seq, seq + len(rows) - 1], "type": "metrics", "epoch": epoch,
        "branch_id": branch_id, "round": round,
        "step": rows[:, 0].astype(np.int64).tolist(), "t": t,
        "columns": dict(zip(names, columns, strict=True)),
    }  # fmt: skip
    is_odd = ~np.isfinite(rows[:, 2:])
    if is_odd.any():
        pack["nonfinite"] = {
            name: {str(at): kind_of(column[at]) for at in np.flatnonzero(odd)}
            for name, column, odd in zip(names, columns, is_odd.T, strict=True)
            if odd.any()
        }
    return orjson.dumps(pack)[:-1]


def link(stem: bytes, prev: bytes) -> tuple[bytes, bytes]:
    """Make a line of the file from a stem; return it with its hash."""
    head = b'%b,"prev":"%b"' % (stem, prev)
    hasher = _new_hash()
    hasher.update(head)
    digest = hasher.hexdigest().encode()
    return b'%b,"hash":"%b"}\n' % (head, digest), digest


def unlink(line: bytes, prev: bytes) -> tuple[bytes, bytes]:
    """Check a line, without its newline, against the hash before it; return stem and hash.

    Raises
    ------
    ValueError
        With what is wrong.
    """
    if len(line) < HASH_SIZE + PREV_SIZE + 2:
        raise ValueError("it is no journal line")
    head, tail = line[:-HASH_SIZE], line[-HASH_SIZE:]
    found = tail[len(_HASH) : -len(_END)]
    if tail[: len(_HASH)] != _HASH or tail[-len(_END) :] != _END:
        raise ValueError("it does not end with its hash")
    if sha256(head).hexdigest().encode() != found:
        raise ValueError("its bytes are not what was written")
    if head[-PREV_SIZE:] != b"".join((_PREV, prev, b'"')):
        raise ValueError("it does not follow the line before it")
    return head[:-PREV_SIZE], found


def whole(stem: bytes) -> bytes:
    """Return the JSON object that a stem begins."""
    return stem + b"}"


def payload_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a parsed row, its non-finite numbers put back."""
    payload: dict[str, Any] = restore(row["payload"], row.get("nonfinite"))
    return payload


def pack_rows(pack: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the rows of a parsed pack: step, t, values.

    Raises
    ------
    ValueError
        If its columns are not equally long.
    """
    first, last = pack["seq"]
    columns = [pack["step"], pack["t"], *pack["columns"].values()]
    rows = np.empty((last - first + 1, len(columns)))
    for index, column in enumerate(columns):
        if len(column) != len(rows):
            raise ValueError(f"a column has {len(column)} values for {len(rows)} events")
        # None becomes NaN; infinities are put in below.
        rows[:, index] = np.array(column, np.float64)
    for name, places in pack.get("nonfinite", {}).items():
        index = 2 + list(pack["columns"]).index(name)
        for at, kind in places.items():
            rows[int(at), index] = float(kind)
    return rows
