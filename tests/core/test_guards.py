"""Guards: what trips them, what they ask for, and that they cite the values."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from it2nb.core.errors import It2nbError
from it2nb.core.guards import Divergence, NonFinite, NonFiniteWeights, Plateau, Spike
from it2nb.core.session import Session
from tests.core.driving import Loop, until


def made() -> Session:
    cell = {"lr": 0.1}
    session = Session(directory=None)
    session.register_knob("lr", lambda: cell["lr"], lambda v: cell.__setitem__("lr", v))
    return session


def tripped(session: Session) -> list[dict[str, Any]]:
    return [e.payload for e in session.journal.since(0) if e.type == "guard_tripped"]


def feed(session: Session, losses: list[float]) -> None:
    with session.run():
        for loss in losses:
            if session.step({"loss": loss}).stop:
                break


def test_c44_a_nan_loss_is_told_and_stops_before_the_next_update_when_asked_to() -> None:
    session = made()
    session.guard(NonFinite(["loss"]), do="stop")
    feed(session, [1.0, 0.9, math.nan, 0.7, 0.6])
    assert (session.status, session.step_count) == ("stopped", 3)
    (trip,) = tripped(session)
    assert trip["reason"] == "non-finite loss at step 3: nan"
    assert "non-finite loss at step 3: nan" in session.state().warnings
    row = session.journal.requests().iloc[0]
    assert (row["source"], row["type"], row["status"]) == ("guard", "stop", "applied")


def test_a_guard_may_pause_before_the_next_update() -> None:
    session = made()
    session.guard(NonFinite(), do="pause")
    loop = Loop(session, loss=lambda step: math.inf if step == 4 else 1.0)
    loop.advance(3)
    loop.advance(wait=False)
    until(lambda: session.status == "paused")
    assert (session.step_count, len(loop.used)) == (4, 4)
    assert session.resume().ok
    loop.came_back()
    loop.finish()


def test_a_spike_halves_the_learning_rate_once_in_its_cooldown() -> None:
    session = made()
    session.guard(Spike("loss", window=20), do="lower_lr", cooldown=10)
    feed(session, [1.0 + 0.01 * (k % 3) for k in range(30)] + [50.0, 60.0] + [1.0] * 5)
    assert session.knobs["lr"].value == 0.05
    (trip,) = tripped(session)
    assert trip["values"]["loss"] == 50.0
    assert trip["values"]["median"] < 1.1


def test_a_plateau_is_a_relative_improvement_that_stayed_away() -> None:
    session = made()
    session.guard(Plateau("loss", steps=50, min_delta=0.01), cooldown=1)
    feed(session, [1.0 / (k + 1) for k in range(30)] + [0.034] * 120)
    assert len(tripped(session)) == 2
    better = made()
    better.guard(Plateau("loss", steps=50, min_delta=0.01), cooldown=1)
    feed(better, [0.98**k for k in range(150)])
    assert tripped(better) == []


def test_divergence_compares_the_smoothed_metric_with_its_best() -> None:
    session = made()
    session.guard(Divergence("loss", factor=2.0, half_life=5.0))
    feed(session, [1.0] * 40 + [1.2] * 10)
    assert tripped(session) == []
    other = made()
    other.guard(Divergence("loss", factor=2.0, half_life=5.0))
    feed(other, [1.0] * 40 + [4.0] * 10)
    assert len(tripped(other)) == 1


def test_non_finite_weights_are_found_in_bound_models() -> None:
    import torch

    model = torch.nn.Linear(2, 2)
    session = made()
    session.bind_model(model)
    session.guard(NonFiniteWeights(every=2))
    with session.run():
        session.step()
        with torch.no_grad():
            model.bias[0] = math.nan
        session.step()
    assert tripped(session)[0]["values"] == {"parameter": "bias"}


def test_a_remedy_of_ones_own_sees_the_trip_and_a_wrong_one_is_refused() -> None:
    seen: list[str] = []
    session = made()
    session.guard(NonFinite(), do=lambda session, trip: seen.append(trip.reason))
    feed(session, [math.nan])
    assert seen == ["non-finite loss at step 1: nan"]
    with pytest.raises(It2nbError, match="none of note"):
        session.guard(NonFinite(), do="explode")


def test_a_condition_that_raises_is_a_row_and_the_run_goes_on() -> None:
    class Broken:
        def check(self, session: Session) -> None:
            raise RuntimeError("broken guard")

    session = made()
    session.guard(Broken())
    feed(session, [1.0, 0.5])
    assert session.status == "finished"
    assert any("broken guard" in text for text in session.warnings)


def test_a_turn_on_call_comes_at_the_steps_that_it_is_called_to_and_at_no_other() -> None:
    session = made()
    seen: list[int] = []
    call = session.turns.add_on_call(lambda run: seen.append(run.step_count), "guard mine")
    with session.run():
        for step in range(1, 7):
            if step in (2, 5):
                call(step)
            session.step()
        session.step(step=3)  # the loop goes back, and counts on
        session.step()
        call(5)
        session.step()
        session.step()
    assert seen == [2, 5, 5]


@pytest.mark.parametrize("condition", ["loss > 5", None, len, NonFinite, lambda session: True])
def test_what_can_not_be_watched_is_refused_at_once(condition: Any) -> None:
    # It would raise at each control point, and watch nothing.
    with pytest.raises(It2nbError, match="is no condition"):
        made().guard(condition, do="stop")


def test_one_metric_needs_no_list() -> None:
    session = made()
    session.guard(NonFinite("loss"), do="stop")
    feed(session, [1.0, math.nan, 1.0])
    assert (session.status, session.step_count) == ("stopped", 2)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Plateau("loss", steps=0), "steps=0 has to be a whole number, at least 1"),
        (lambda: Plateau("loss", steps="5"), "steps='5' has to be a whole number"),  # type: ignore[arg-type]
        (lambda: Plateau("loss", min_delta=-1), "min_delta=-1 has to be a finite number"),
        (lambda: Plateau("loss", direction="up"), "direction='up' has to be 'min' or 'max'"),
        (lambda: Spike("loss", factor=math.nan), "factor=nan has to be a finite number above 0"),
        (lambda: Spike("loss", window=0), "window=0 has to be a whole number, at least 5"),
        (lambda: Divergence("loss", factor=1), "factor=1 has to be a finite number above 1"),
        (lambda: Divergence("loss", half_life=0), "half_life=0 has to be"),
        (lambda: NonFiniteWeights(every=0), "every=0 has to be a whole number, at least 1"),
        (lambda: made().guard(NonFinite(), do=5), "do=5 is none of note"),
        (lambda: made().guard(NonFinite(), cooldown=-1), "cooldown=-1 has to be"),
    ],
)
def test_numbers_that_make_no_sense_are_refused(make: Any, said: str) -> None:
    with pytest.raises(It2nbError, match=re.escape(said)):
        make()
