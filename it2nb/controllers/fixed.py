"""What no request may change of a controller: where its answers come from, and who pays."""

from __future__ import annotations

#: Whole names, and parts of names, that decide where answers come from or who pays for them.
_FIXED = frozenset(
    {"endpoint", "url", "uri", "host", "port", "proxy", "key", "keys", "headers", "auth",
     "credentials", "token", "secret", "password", "provider", "client", "transport"}
)  # fmt: skip


def is_fixed(name: object) -> bool:
    """Whether an option says where a controller gets its answers from: no request changes it."""
    parts = str(name).lower().replace("-", "_").replace(".", "_").split("_")
    return bool(_FIXED & {*parts, "".join(parts)}) or "".join(parts).endswith(("url", "apikey"))
