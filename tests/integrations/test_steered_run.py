"""One training under a session: a second one inside of it, and what makes no sense."""

from __future__ import annotations

from typing import Any

import pytest

from it2nb.controllers.optuna import OptunaController
from it2nb.core.errors import It2nbError
from it2nb.core.policy import Policy
from it2nb.integrations.steered_run import SteeredRun
from it2nb.pytorch.curriculum import CurriculumSampler
from it2nb.pytorch.sources import SourceSampler
from it2nb.session import TrainingSession


def test_a_training_inside_of_another_one_is_refused_and_the_outer_one_goes_on() -> None:
    session = TrainingSession(directory=None)
    outer = SteeredRun(session, "Trainer", "")
    outer.prepare()
    outer.begin(2)
    with pytest.raises(It2nbError, match="count twice"):
        SteeredRun(session, "Trainer", "")
    assert not outer.updated({"loss": 1.0})
    outer.close()
    assert (session.status, session.step_count) == ("finished", 1)


def test_a_training_after_another_one_under_the_same_session_is_none_inside() -> None:
    session = TrainingSession(directory=None)
    with session.run():
        for _ in range(2):
            run = SteeredRun(session, "Trainer", "")
            run.prepare()
            run.close()


def test_a_fault_at_a_control_point_is_told_and_an_interrupt_ends_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session = TrainingSession(directory=None)
    run = SteeredRun(session, "Trainer", "")
    run.prepare()
    run.begin(3)
    errors: list[BaseException] = [ZeroDivisionError("odd"), KeyboardInterrupt()]

    def broken() -> Any:
        raise errors[0]

    session.call_attention()
    monkeypatch.setattr(session.gate, "pass_through", broken)
    assert not run.updated({"loss": 1.0})
    assert "control point: ZeroDivisionError: odd" in session.warnings[-1]
    del errors[0]
    with pytest.raises(KeyboardInterrupt):
        run.updated({"loss": 1.0})
    run.close()


BAD: dict[str, Any] = {
    "tracker": lambda: TrainingSession(directory=None).track(5),  # type: ignore[arg-type]
    "object": lambda: TrainingSession(directory=None).track(object()),  # type: ignore[arg-type]
    "weight": lambda: SourceSampler({"hard": [1]}, weights={"hard": "x"}),  # type: ignore[dict-item]
    "weights": lambda: SourceSampler({"hard": [1]}, weights=5),  # type: ignore[arg-type]
    "share": lambda: CurriculumSampler([1.0], share="x"),  # type: ignore[arg-type]
    "tokens": lambda: Policy().budget("agent", tokens="x"),  # type: ignore[arg-type]
    "knobs": lambda: OptunaController(knobs=5),  # type: ignore[arg-type]
    "seed": lambda: OptunaController(seed="x"),  # type: ignore[arg-type]
    "study": lambda: OptunaController(study=5),
}


@pytest.mark.parametrize("name", BAD)
def test_what_makes_no_sense_is_said_when_it_is_given(name: str) -> None:
    with pytest.raises(It2nbError, match=r"5|'x'|object"):
        BAD[name]()
