"""Submit to applied in one thread: both rows written, then the next control point serves it."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from pathlib import Path

from it2nb.core.session import Session
from it2nb.core.wire import Action
from scripts.bench.measured import Measured, middle


def measure(quick: bool) -> list[Measured]:
    """Time one `set_knob` from its making to its result, its rows on disk."""
    count = 2_000 if quick else 20_000
    values = {"lr": 0.1}
    session = Session(directory=tempfile.mkdtemp(), title="bench")
    session.register_knob("lr", lambda: values["lr"], lambda v: values.update(lr=v), min=0, max=1)
    times = []
    with session.run():
        session.step()
        for index in range(count):
            began = time.perf_counter()
            payload = {"name": "lr", "value": index / count}
            handle = session.submit(Action(type="set_knob", payload=payload))
            session.pump()
            times.append((time.perf_counter() - began) * 1e6)
            assert handle.result(0).status == "applied"
    value, low, high = middle(times)
    lines = Path(str(session.path)).read_bytes().splitlines(keepends=True)[-4:-1]
    floor = _floor(lines, count)
    note = f"three rows in two writes; hashing and writing these alone takes {floor:.1f} us"
    return [Measured("submit to applied in one thread, all rows written", value, "us", 15.0,
                     low, high, {"hashing and writing alone": floor}, note)]  # fmt: skip


def _floor(lines: list[bytes], count: int) -> float:
    """The same bytes, hashed and written by hand."""
    first, rest = lines[0], b"".join(lines[1:])
    fd = os.open(Path(tempfile.mkdtemp()) / "floor", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    times = []
    for _ in range(count):
        began = time.perf_counter()
        for line in lines:
            hashlib.sha256(line).hexdigest()
        os.write(fd, first)
        os.write(fd, rest)
        times.append((time.perf_counter() - began) * 1e6)
    os.close(fd)
    return middle(times)[0]
