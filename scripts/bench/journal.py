"""A journal of a million events: as a DataFrame while the run lives, and opened from its file."""

from __future__ import annotations

import tempfile
import time

from it2nb.core.session import Session
from it2nb.recorded import open as open_run
from scripts.bench.control_points import ROW
from scripts.bench.measured import Measured

EVENTS = 1_000_000


def measure(quick: bool) -> list[Measured]:
    """Record them with a change of a knob each thousand steps, then ask."""
    values = {"lr": 0.1}
    session = Session(directory=tempfile.mkdtemp(), title="bench")
    session.register_knob("lr", lambda: values["lr"], lambda v: values.update(lr=v), min=0, max=1)
    with session.run():
        for step in range(EVENTS // 10 if quick else EVENTS):
            if step % 1_000 == 0:
                session.set("lr", step / EVENTS)
            session.step(ROW)
        frames = [_timed(session.journal.frame) for _ in range(3)]
    assert session.path is not None
    path = session.path
    opened = [_timed(lambda: open_run(path)) for _ in range(3)]
    size = "10^5" if quick else "10^6"
    goals = (None, None) if quick else (1.0, 3.0)
    return [
        Measured(f"journal of {size} events: `frame()`, live", min(frames), "s", goals[0]),
        Measured(
            f"journal of {size} events: `it2nb.open`, hashes checked", min(opened), "s", goals[1]
        ),
    ]


def _timed(call: object) -> float:
    assert callable(call)
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
