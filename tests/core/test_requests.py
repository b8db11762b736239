"""What requests carry, and what is said of those that can't be done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from it2nb.core.control import StopTraining
from it2nb.core.session import Session


def session_with_lr() -> tuple[Session, dict[str, float]]:
    cell = {"lr": 0.1}
    session = Session(directory=None)
    session.register_knob("lr", lambda: cell["lr"], lambda value: cell.update(lr=value))
    return session, cell


def test_C05_what_is_carried_out_is_what_was_asked_and_recorded() -> None:
    session, cell = session_with_lr()
    seen: list[Any] = []

    @session.action("tune", "takes lists")
    def tune(payload: dict[str, Any], session: Session) -> None:
        seen.append(payload)

    shares, deep, array = [1, 2], {"a": [1]}, np.ones(2)
    values = {"lr": 0.5}
    with session.run():
        session.step({"loss": 1.0})
        session.submit(
            {"type": "tune", "payload": {"shares": shares, "deep": deep, "array": array}}
        )
        session.submit({"type": "batch", "payload": {"set": values}})
        shares.append(3)
        deep["a"].append(2)
        array[:] = 9
        values["lr"] = 0.9
        session.step({"loss": 1.0})
    assert seen[0]["shares"] == [1, 2] and seen[0]["deep"] == {"a": [1]}
    assert np.asarray(seen[0]["array"]).tolist() == [1.0, 1.0]
    assert cell["lr"] == 0.5


@pytest.mark.parametrize(
    ("action", "said"),
    [
        ({"type": "set_knob", "payload": {"name": "lr"}}, "lr: set_knob needs one of value,"),
        ({"type": "set_knob", "payload": {"name": "lr", "mode": "hold"}}, "set_mode picks a mode"),
        (
            {"type": "set_knob", "payload": {"name": "lr", "value": 1.0, "vlaue": 2}},
            "it has no argument 'vlaue'",
        ),
        ({"type": "note"}, "text is missing"),
        ({"type": "resume", "payload": {"x": 1}}, "x is no argument of it"),
        ({"payload": {}}, "type is missing"),
        ({"type": "undo"}, "session.bind(model, optimizers=[optimizer])"),
        ({"type": "PAUSE"}, "did you mean 'pause'"),
    ],
)
def test_C05_a_refusal_says_what_was_wrong_and_what_to_do(
    action: dict[str, Any], said: str
) -> None:
    session, cell = session_with_lr()
    with session.run():
        session.step({"loss": 1.0})
        handle = session.submit(action)
        session.step({"loss": 1.0})
    result = handle.result(0)
    assert result.status == "rejected" and said in result.reason
    assert cell["lr"] == 0.1


def test_a_step_after_the_stop_says_why_it_is_refused() -> None:
    session, _ = session_with_lr()
    with session.run():
        session.step({"loss": 1.0})
        session.stop()
        session.step({"loss": 1.0})
    with pytest.raises(StopTraining, match="the run was stopped, and no step may follow"):
        session.step({"loss": 1.0})
