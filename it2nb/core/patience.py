"""Patience: what holds the training thread and does not come back is told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Seconds after which a rule, a guard or another controller that should be quick is told of.
QUICK_S = 10.0
#: The same for any other function that holds the training: an evaluation may take its time.
PATIENCE_S = 60.0
#: Seconds after which whoever waits for the training is told what holds it.
HELD_S = 1.0


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
        self._seen: tuple[Any, int] | None = None
        self._since = 0.0
        self._told = False

    def look(self) -> None:
        """See how long what is under way takes. The journal's thread."""
        session = self._session
        held = self._holder()
        now = session.clock.monotonic()
        if held is None or (held, session.step_count) != self._seen:
            self._seen = None if held is None else (held, session.step_count)
            self._since, self._told = now, False
            return
        waited = now - self._since
        # A request has its own row, and the panel shows it as pending.
        if self._told or self._is_request(held) or waited < self._limit(held):
            return
        self._told = True
        text = f"{self._said(held, waited)}; {self._remedy(held)}"
        session.alert(text)
        session.emit("note", {"text": text, "level": "warning"})

    def held(self) -> str | None:
        """Say what the training thread waits for inside of a control point. Any thread.

        Returns
        -------
        str or None
            A sentence with a way out; None while nothing has held it for a second.
        """
        held, seen = self._holder(), self._seen
        if held is None or seen is None or seen[0] is not held:
            return None
        waited = self._session.clock.monotonic() - self._since
        if waited < HELD_S:
            return None
        return f"{self._said(held, waited)}; {self._remedy(held)}"

    def _holder(self) -> Any:
        """What has the training thread just now: a turn, or a request that is carried out."""
        turn = self._session.turns.under_way
        if turn is None:
            return self._session.serving
        thinks = getattr(getattr(turn.function, "__self__", None), "is_thinking", False)
        return None if thinks else turn

    def _limit(self, held: Any) -> float:
        return QUICK_S if self._place(held) is not None else PATIENCE_S

    def _said(self, held: Any, waited: float) -> str:
        step = self._session.step_count
        name = f"the request {held.action.type!r}" if self._is_request(held) else held.name
        return (
            f"{name} is not back after {waited:.0f} s at step {step}: it runs on the training "
            f"thread, and the training, a stop too, waits for it"
        )

    def _remedy(self, held: Any) -> str:
        never = "what never comes back ends with the process alone"
        place = self._place(held)
        if place is None:
            return never
        gone = f"it2nb.current().controllers[{place}].detach()"
        return f"{gone} keeps it from being asked again once it is back; {never}"

    def _is_request(self, held: Any) -> bool:
        return hasattr(held, "action")

    def _place(self, held: Any) -> int | None:
        """Where a controller stands among the session's; None for anything else."""
        owner = None if self._is_request(held) else getattr(held.function, "__self__", None)
        for place, each in enumerate(self._session.controllers):
            if each is owner:
                return place
        return None
