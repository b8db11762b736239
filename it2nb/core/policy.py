"""Who may do what: one place that every request passes at its control point."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from it2nb.core.actions import ActionSpec
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session
    from it2nb.core.wire import ActionResult, KnobView


@dataclass(frozen=True, slots=True)
class Verdict:
    """May this request be carried out?"""

    kind: Literal["allow", "reject", "wait"]
    reason: str | None = None


ALLOW = Verdict("allow")


class Policy:
    """Permissions, limits, budgets and approvals of one session."""

    approval_timeout_s: float | None = 300.0

    def judge(
        self, handle: ActionHandle, spec: ActionSpec, payload: dict[str, Any], session: Session
    ) -> Verdict:
        """Decide about one request. Training thread, or any thread in a preview."""
        return ALLOW

    def settled(self, handle: ActionHandle, result: ActionResult, session: Session) -> None:
        """Account for a result. Training thread."""

    def describe(self) -> dict[str, Any]:
        """Say the rules in force, for the panel and ``%it2 policy``."""
        return {}

    def shown(self, views: list[KnobView]) -> list[KnobView]:
        """Mark locked and confirm-first knobs, leave hidden ones out. Any thread."""
        return views

    def approve(self, handle: ActionHandle, by: str) -> None:
        """A human approved this request: it passes the next time. Training thread."""
