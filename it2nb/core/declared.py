"""Declared: what stands before a round, so that what its training declares lasts for the round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard
from it2nb.core.knobs import Coerced

if TYPE_CHECKING:
    from it2nb.core.session import Session


class Declared:
    """Knobs and their values, actions, turns, evaluator, controllers and what is bound.

    Parameters
    ----------
    session : Session
        Before its first round. Training thread.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._knobs = session.knobs.kept()
        self._values: dict[str, Any] = {}
        for name in session.knobs:
            with guard(f"get of {name}", session.report):
                self._values[name] = session.knobs[name].value
        self._actions = session.actions.kept()
        self._turns = session.turns.kept()
        self._bound = session.bound.copy()
        self._evaluator = session.evaluator
        self._honoured = session.honours_control
        self._controllers = list(session.controllers)

    def put_back(self) -> None:
        """Make it stand as it did: nothing of the training before, each knob at its first value."""
        session = self._session
        for each in session.controllers:
            # What a person attached from another thread stays.
            if each not in self._controllers and each.is_of_training:
                each.detach()
        session.knobs.put_back(self._knobs)
        session.actions.put_back(self._actions)
        session.turns.put_back(self._turns)
        session.bound.put_back(self._bound)
        session.evaluator = self._evaluator
        session.honours_control = self._honoured
        for name, value in self._values.items():
            with guard(f"first value of {name}", session.report):
                self._first_value(name, value)

    def _first_value(self, name: str, value: Any) -> None:
        session = self._session
        knob = session.knobs[name]
        if knob.value == value:
            return
        outcome = knob.apply(Coerced(value))
        if outcome.status != "applied":
            session.warn(f"{name} could not be put back to {value!r}: {outcome.reason}")
            return
        session.emit("knob_changed", {"name": name, "value": outcome.after,
                                      "before": outcome.before})  # fmt: skip
