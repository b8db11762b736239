"""Half an hour at 200 steps a second, on a clock that does not run: what a page is sent."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import pytest

from it2nb.core.session import Session
from it2nb.panel import bridge as bridges
from it2nb.panel.sender import INTERVAL_S
from it2nb.panel.terminal import LINES, Terminal

STEPS_PER_S = 200
#: The whole of it with `make soak`.
SECONDS = 1_800 if os.environ.get("IT2NB_SOAK") else 300
NAMES = ["loss", "acc", "lr", "norm"]


class Clock:
    """Stands still until it is told."""

    now = 1_000.0

    def time(self) -> float:
        return self.now

    monotonic = time


class NoThread:
    """In the place of the sender's thread: the test takes its turns."""

    def __init__(self, *_: object) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self) -> None:
        pass


class Link:
    """Counts what a page is sent, minute by minute."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.now
        self.bytes = np.zeros(SECONDS // 60 + 1)
        self.messages = np.zeros(SECONDS + 60)
        self.largest = 0
        self.n = 0

    def send(self, content: dict[str, Any], buffers: list[bytes]) -> bool:
        if content["kind"] == "snapshot":
            return True
        size = len(json.dumps(content)) + sum(map(len, buffers))
        second = int(self._clock.now - self._began)
        self.bytes[second // 60] += size
        self.messages[second] += 1
        self.largest = max(self.largest, size)
        assert content["kind"] == "heartbeat" or content["n"] == self.n + 1
        self.n = content["n"]
        return True


@pytest.mark.timeout(300)
def test_messages_and_bytes_are_bounded_and_do_not_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    # C74, C76
    monkeypatch.setattr(bridges, "Sender", NoThread)
    clock = Clock()
    session = Session(directory=None, watch=NAMES, clock=clock, retain=1_000)
    value = [0.5]
    session.register_knob("x", lambda: value[0], lambda new: value.__setitem__(0, new), max=1.0)
    session.output = Terminal()
    link = Link(clock)
    bridge = bridges.Bridge(session, link.send, clock=clock)
    session.start()
    session.step(dict.fromkeys(NAMES, 1.0))
    bridge.receive({"v": 2, "kind": "hello", "client": "page"})
    bridge._turn()
    turns = int(SECONDS / INTERVAL_S)
    every = round(STEPS_PER_S * INTERVAL_S)
    rng = np.random.default_rng(0)
    for turn in range(turns):
        # Most steps come as a block: what they cost the training thread is measured elsewhere.
        first = session.step_count + 1
        steps = np.arange(first, first + every - 1, dtype=float)
        rows = [steps, np.full(len(steps), clock.now - 1_000), *rng.random((4, len(steps)))]
        session.metrics.extend(NAMES, np.column_stack(rows), branch_id=0, round=0)
        session.step(dict(zip(NAMES, rng.random(4), strict=True)), step=first + every - 1)
        session.output.write(f"\r{turn} of {turns}")
        if turn % 90 == 0:
            session.submit({"type": "set_knob", "payload": {"name": "x", "value": rng.random()}})
            session.output.write(f"\nminute {turn // 540}\n")
        if turn % 10 == 0:
            bridge.receive({"v": 2, "kind": "ack", "client": "page", "n": link.n})
        clock.now += 1.0001 * INTERVAL_S
        bridge._turn()
    assert session.step_count > 0.98 * SECONDS * STEPS_PER_S
    assert link.largest <= 20_000
    assert link.messages.max() <= 10
    assert link.n > 0.9 * turns
    minutes = link.bytes[1:-1]
    assert minutes.max() <= 1.2 * minutes[0]
    feed = bridge._feed
    assert len(feed._rows) + len(feed._fresh_marks) + len(feed._received) < 50
    assert len(feed._output._told) <= LINES
    session.end()
