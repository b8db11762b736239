"""Sessions for tests: one knob in a cell, and the rows of the journal."""

from __future__ import annotations

from typing import Any

from it2nb.core.session import Session


def made(**options: Any) -> tuple[dict[str, Any], Session]:
    cell: dict[str, Any] = {"lr": 0.1}
    session = Session(directory="it2runs", **options)
    session.register_knob(
        "lr", lambda: cell["lr"], lambda v: cell.__setitem__("lr", v), min=0.0, max=1.0
    )
    return cell, session


def rows(session: Session, kind: str) -> list[dict[str, Any]]:
    return [event.payload for event in session.journal.since(0) if event.type == kind]
