"""Secrets in requests: they reach their handler, and nothing that is written or shown."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from it2nb.core.depth import MAX_DEPTH, too_deep

#: What stands in the place of a secret.
HIDDEN = "***"
#: Characters; a shorter value would hide words that are none.
SHORTEST_SECRET = 8
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

    The payload itself when it holds none: requests come often, secrets hardly ever. Nothing of
    one that is nested too deep to look through.
    """
    if too_deep(payload):
        return {"left_out": f"it is nested more than {MAX_DEPTH} deep"}
    if not _holds_one(payload):
        return payload if isinstance(payload, dict) else dict(payload)
    return {key: _hide(key, value) for key, value in payload.items()}


#: Values of these types hold nothing further.
_LEAVES = frozenset({str, float, int, bool, type(None)})


def _holds_one(value: Any) -> bool:
    # An exact type first: to ask whether something is a Mapping costs ten times as much.
    if type(value) is dict or isinstance(value, Mapping):
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


def _forms(secret: str) -> set[str]:
    """A secret as it is, and as it stands in JSON, in JSON inside of JSON, and in a repr."""
    written = json.dumps(secret)[1:-1]
    return {secret, written, json.dumps(written)[1:-1], repr(secret)[1:-1], quote(secret, safe="")}


class Secrets:
    """Secret values, hidden wherever they turn up in text that is written or sent. Any thread.

    Parameters
    ----------
    *values : str or None
        The secrets. Shorter ones than eight characters are words, and left alone.
    """

    def __init__(self, *values: str | None) -> None:
        plain = {each for each in values if each is not None and len(each) >= SHORTEST_SECRET}
        kept = {form for each in plain for form in _forms(each)}
        # The longest first: one secret may be the beginning of another.
        self._values = sorted(kept, key=len, reverse=True)

    @classmethod
    def of_environment(cls, *values: str | None) -> Secrets:
        """The values of all variables that are named like secrets, and `values`."""
        named = [value for name, value in os.environ.items() if is_secret(name)]
        return cls(*values, *named)

    def hide(self, value: Any) -> Any:
        """Copy plain data with the secrets in its texts hidden, at any depth."""
        if isinstance(value, str):
            for each in self._values:
                value = value.replace(each, HIDDEN)
            return value
        if isinstance(value, Mapping):
            return {self.hide(name): _hide(name, self.hide(each)) for name, each in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.hide(each) for each in value]
        return value

    def __repr__(self) -> str:
        return f"<{len(self._values)} secrets>"
