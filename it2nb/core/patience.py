"""Patience: what has its turn on the training thread and does not come back is told of."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from it2nb.core.session import Session
    from it2nb.core.turns import Turn

#: Seconds after which a function that holds the training is told of.
PATIENCE_S = 60.0


class Patience:
    """Looks four times a second, on the journal's own thread, whether a turn takes too long.

    A rule, a guard or a function of ``session.every`` runs on the training thread, and no thread
    can be taken away from what hangs: people are told which one it is. A controller that the run
    waits for on purpose tells of itself.

    Parameters
    ----------
    session : Session
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: tuple[Turn, int] | None = None
        self._since = 0.0
        self._told = False

    def look(self) -> None:
        """See how long the turn under way takes. The journal's thread."""
        session = self._session
        turn = session.turns.under_way
        now = session.clock.monotonic()
        if turn is None or (turn, session.step_count) != self._seen:
            self._seen = None if turn is None else (turn, session.step_count)
            self._since, self._told = now, False
            return
        waited = now - self._since
        owner = getattr(turn.function, "__self__", None)
        if self._told or waited < PATIENCE_S or getattr(owner, "is_thinking", False):
            return
        self._told = True
        text = (
            f"{turn.name} is not back after {waited:.0f} s at step {session.step_count}: it runs "
            f"on the training thread, and the training, a stop too, waits for it; what never "
            f"comes back ends with the process alone"
        )
        session.alert(text)
        session.emit("note", {"text": text, "level": "warning"})
