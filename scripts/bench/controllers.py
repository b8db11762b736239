"""What controllers cost: an agent's look at step 10^3, 10^5 and 10^6, a rule, a slow agent."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import numpy as np

from it2nb.controllers.observation import observe
from it2nb.core.metrics import MetricStore
from it2nb.session import TrainingSession
from scripts.bench.measured import Measured, middle, of_the_median, side_by_side
from scripts.bench.training import Training

NAMES = ("loss", "val_loss", "acc", "norm")


def measure(quick: bool) -> list[Measured]:
    """Time them; the slow agent answers after five seconds."""
    rounds = 5 if quick else 25
    found = []
    for steps in (1_000, 100_000, 1_000_000):
        session = _at(steps)
        seconds = side_by_side({"look": partial(_look, session)}, 200, rounds)
        value, low, high = middle([each * 1e6 for each in seconds["look"]])
        what = f"agent's look at step {steps:,}, 12 knobs, 4 metrics"
        found.append(Measured(what, value, "us", 300.0, low, high))
        session.finish()
    session = _at(1_000)
    session.attach("loss > 5 for 20 steps: pause")
    turn = session.controllers[0]._turn
    seconds = side_by_side({"rule": lambda i: turn(session)}, 1_000, rounds)
    value, low, high = middle([each * 1e6 for each in seconds["rule"]])
    found.append(Measured("one rule at a control point", value, "us", 50.0, low, high))
    session.finish()
    return [*found, _beside_a_slow_agent(quick)]


def _look(session: TrainingSession, index: int) -> None:
    observe(session, "agent")


def _at(steps: int) -> TrainingSession:
    """A run at that step, of which only the metrics are real."""
    session = TrainingSession(directory=None, title="bench", resources_every_s=3600)
    for number in range(12):
        session.register_knob(f"knob{number}", lambda: 0.5, lambda value: None)
    session.pump()
    rows = np.random.default_rng(0).random((steps, 2 + len(NAMES)))
    rows[:, 0] = rows[:, 1] = np.arange(1, steps + 1)
    session.metrics = MetricStore()
    session.metrics.extend(NAMES, rows, branch_id=0, round=0)
    session._step = steps
    return session


def _beside_a_slow_agent(quick: bool) -> Measured:
    over = threading.Event()

    def slow(seen: Any) -> None:
        seen.describe()
        over.wait(5.0)

    training = Training(5.0)
    session = TrainingSession(directory=None, title="bench", resources_every_s=3600)
    session.attach(slow, every=50)
    with session.run():
        values = training.slow_downs(session, 5 if quick else 25, 1.0 if quick else 2.0)
    over.set()
    value, low, high = of_the_median(values)
    return Measured(
        "training at 5 ms a step beside an agent that answers after 5 s: slow-down", value, "%",
        1.0, low, high, note="interval of the median",
    )  # fmt: skip
