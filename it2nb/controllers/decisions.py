"""What an agent decided lately: for its next prompt, and for the panel."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from it2nb.controllers.prompts import cut
from it2nb.core.strict import strict
from it2nb.core.wire import Action, ActionResult

#: Decisions that are kept.
KEPT = 8
#: Requests of one decision that are kept.
REQUESTS = 8
#: Characters of what was said with it.
SAID = 400
#: Characters of a reason.
WHY = 160


class Decisions:
    """The last decisions of one agent, and what became of them. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: deque[dict[str, Any]] = deque(maxlen=KEPT)

    def add(
        self, step: int, said: str, requests: Sequence[tuple[Action, str | None]], round: int = 0
    ) -> None:
        """Keep what is wanted.

        Parameters
        ----------
        step, round : int
            Of the observation.
        said : str
            In the agent's words.
        requests : sequence of (Action, str or None)
            Each with why it is rejected, where that is known already.
        """
        told = [_shown(action, wrong) for action, wrong in requests[:REQUESTS]]
        decision: dict[str, Any] = {"step": step, "said": cut(said, SAID), "requests": told}
        if round:
            decision["round"] = round
        if len(requests) > REQUESTS:
            decision["more"] = len(requests) - REQUESTS
        with self._lock:
            self._kept.append(decision)

    def tell(self, result: ActionResult) -> None:
        """Note what became of a request."""
        with self._lock:
            for each in (one for kept in self._kept for one in kept["requests"]):
                if each["id"] != result.id:
                    continue
                each["status"] = result.status
                why = result.reason or result.error
                if why:
                    each["why"] = cut(why, WHY)
                if result.after is not None:
                    each["after"] = strict(result.after)[0]

    def listed(self, *, ids: bool) -> list[dict[str, Any]]:
        """Return them, oldest first, with or without the requests' ids."""
        with self._lock:
            return [{**each, "requests": _copied(each["requests"], ids)} for each in self._kept]


def _copied(requests: Sequence[Mapping[str, Any]], ids: bool) -> list[dict[str, Any]]:
    return [{key: each[key] for key in each if ids or key != "id"} for each in requests]


def _shown(action: Action, wrong: str | None) -> dict[str, Any]:
    """A request, short."""
    payload = action.payload
    shown: dict[str, Any] = {"id": action.id, "type": action.type, "status": "pending"}
    if action.type == "set_knob":
        shown["name"] = short(payload.get("name"))
        shown["requested"] = short(payload.get("value"))
    elif payload:
        shown["payload"] = short(payload)
    if action.reason:
        shown["reason"] = cut(action.reason, WHY)
    if wrong is not None:
        shown |= {"status": "rejected", "why": cut(wrong, WHY)}
    return shown


def short(value: Any, chars: int = 200) -> Any:
    """A value as it is when small, else the beginning of its text."""
    text = value if isinstance(value, str) else repr(value)
    return value if len(text) <= chars else cut(text, chars)
