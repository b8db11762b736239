"""Secrets in requests: they reach their handler, and nothing that is written or shown."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

#: What stands in the place of a secret.
HIDDEN = "***"
_SECRET = re.compile(
    r"(^|[_\-.])(api[_-]?key|access[_-]?key|auth[_-]?token|token|password|passwd|secret|credentials?)$"
    r"|^authorization$",
    re.IGNORECASE,
)


def is_secret(name: object) -> bool:
    """Whether an argument of this name holds a secret: ``api_key``, ``hf_token``, ``password``."""
    return isinstance(name, str) and _sounds_secret(name)


# The same few names come with every request.
@functools.lru_cache(maxsize=1_000)
def _sounds_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def redacted(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a payload with its secrets hidden, at any depth. Any thread.

    The payload itself when it holds none: requests come often, secrets hardly ever.
    """
    if not _holds_one(payload):
        return payload if isinstance(payload, dict) else dict(payload)
    return {key: _hide(key, value) for key, value in payload.items()}


#: Values of these types hold nothing further.
_LEAVES = frozenset({str, float, int, bool, type(None)})


def _holds_one(value: Any) -> bool:
    if isinstance(value, Mapping):
        for key, each in value.items():
            if (type(key) is str and _sounds_secret(key)) or (
                type(each) not in _LEAVES and _holds_one(each)
            ):
                return True
        return False
    return isinstance(value, (list, tuple)) and any(map(_holds_one, value))


def _hide(key: object, value: Any) -> Any:
    if is_secret(key):
        return None if value is None else HIDDEN
    if isinstance(value, Mapping):
        return {name: _hide(name, each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hide(None, each) for each in value]
    return value
