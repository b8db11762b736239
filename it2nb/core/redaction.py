"""Secrets in requests: they reach their handler, and nothing that is written or shown."""

from __future__ import annotations

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
    return isinstance(name, str) and _SECRET.search(name) is not None


def redacted(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Copy a payload with its secrets hidden, at any depth. Any thread.

    The payload itself when it holds none: requests come often, secrets hardly ever.
    """
    if not _holds_one(payload):
        return payload if isinstance(payload, dict) else dict(payload)
    return {key: _hide(key, value) for key, value in payload.items()}


def _holds_one(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(is_secret(key) or _holds_one(each) for key, each in value.items())
    return isinstance(value, (list, tuple)) and any(map(_holds_one, value))


def _hide(key: object, value: Any) -> Any:
    if is_secret(key):
        return None if value is None else HIDDEN
    if isinstance(value, Mapping):
        return {name: _hide(name, each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_hide(None, each) for each in value]
    return value
