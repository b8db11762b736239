"""Tab completion behind ``%it2``: verbs, knobs, actions."""

from __future__ import annotations

from typing import Any

from it2nb.core import lifetime
from it2nb.core.errors import SessionEnded
from it2nb.notebook.options import VERBS


def complete(completer: Any, event: Any) -> list[str]:
    """Return what may stand next; a hook of IPython's completer."""
    words = event.line.split()
    before = words[1:] if event.line.endswith(" ") else words[1:-1]
    return candidates(before)


def candidates(before: list[str]) -> list[str]:
    """Return what may follow the words behind ``%it2``."""
    if not before:
        return list(VERBS)
    if before[0] == "help":
        return list(VERBS)
    try:
        session = lifetime.current()
    except SessionEnded:
        return []
    if before[0] in ("set", "knobs") and len(before) == 1:
        return list(session.knobs)
    if before[0] == "do" and len(before) == 1:
        return list(session.actions)
    if before[0] == "plot":
        return list(session.metrics.names())
    return [f"--{each.name}" for each in VERBS[before[0]].options] if before[0] in VERBS else []
