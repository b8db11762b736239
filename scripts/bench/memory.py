"""Memory of a run: what 100,000 steps with four metrics leave in the process."""

from __future__ import annotations

import gc
import tempfile

import psutil

from it2nb.core.session import Session
from scripts.bench.control_points import ROW
from scripts.bench.measured import Measured

STEPS = 500_000
MIB = 1 << 20


def measure(quick: bool) -> list[Measured]:
    """Resident memory before and after, and the same in a list of dicts."""
    session = Session(directory=tempfile.mkdtemp(), title="bench")
    for _ in range(10_000):  # the first chunk, the sealing thread, the encoder's buffers
        session.step(ROW)
    session.journal.seal()
    before = _resident()
    for _ in range(STEPS):
        session.step(ROW)
    session.journal.seal()
    ours = (_resident() - before) / MIB * 100_000 / STEPS
    session.finish()
    before = _resident()
    kept = [{name: value + step for name, value in ROW.items()} for step in range(100_000)]
    dicts = (_resident() - before) / MIB
    assert len(kept) == 100_000
    return [Measured("memory of 100,000 steps with four metrics", ours, "MiB", 5.0,
                     beside={"list of dicts": dicts})]  # fmt: skip


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)
