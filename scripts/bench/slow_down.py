"""How much longer a real training takes with the journal alone; the panel is in `browser`."""

from __future__ import annotations

import tempfile

from it2nb.core.session import Session
from scripts.bench.measured import Measured, of_the_median
from scripts.bench.training import Training


def measure(quick: bool) -> list[Measured]:
    """Trainings of one and five milliseconds a step, blocks with and without a session."""
    found = []
    for step_ms in (1.0, 5.0):
        training = Training(step_ms)
        session = Session(directory=tempfile.mkdtemp(), title="bench")
        with session.run():
            values = training.slow_downs(session, 5 if quick else 25, 1.0 if quick else 2.0)
        value, low, high = of_the_median(values)
        found.append(
            Measured(f"training at {step_ms:g} ms a step, journal alone: slow-down", value, "%",
                     1.0, low, high, note="interval of the median")
        )  # fmt: skip
    return found
