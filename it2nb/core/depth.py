"""How deep plain data may be nested: what is read, copied or written goes through all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Containers within containers that a request, and what a controller says, may have.
MAX_DEPTH = 64
_LEAVES = frozenset({str, float, int, bool, type(None)})


def too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether containers are nested deeper than `limit`; one that holds itself is. Any thread."""
    # Nearly all that is asked is a flat dict, and every request comes by here.
    if type(value) is dict and _LEAVES.issuperset(map(type, value.values())):
        return limit < 1
    level = [] if type(value) in _LEAVES else [value]
    for _ in range(limit):
        below: dict[int, Any] = {}
        for each in level:
            if isinstance(each, Mapping):
                inner: Any = each.values()
            elif isinstance(each, (list, tuple, set, frozenset)):
                inner = each
            else:
                continue
            # By identity: what is held twice is looked at once, or a cycle would double.
            below |= {id(item): item for item in inner if type(item) not in _LEAVES}
        if not below:
            return False
        level = list(below.values())
    return any(isinstance(each, (Mapping, list, tuple, set, frozenset)) for each in level)
