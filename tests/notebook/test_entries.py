"""Whatever comes in by panel, magic or Python at once: one result each, and training goes on."""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from it2nb.core.wire import TERMINAL
from it2nb.panel.bridge import Bridge

LIMIT_S = 120.0
ASKS = 300


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def anything(draw: random.Random) -> Any:
    return draw.choice(
        [None, True, "0.5", "abc", "", -1, 0, 0.25, 7, 1e308, [], {}, [1], {"a": 1}, "x" * 300,
         math.nan, math.inf]
    )  # fmt: skip


def panel_message(draw: random.Random) -> Any:
    action = draw.choice(
        [
            {"type": "set_knob", "payload": {"name": draw.choice("xyz"), "value": anything(draw)}},
            {"type": draw.choice(["resume", "note", "evaluate", ""]), "payload": anything(draw)},
            anything(draw),
        ]
    )
    return draw.choice(
        [
            {"v": 2, "kind": "submit", "client": "c", "action": action},
            {"v": 2, "kind": "submit", "client": anything(draw), "action": action},
            {"v": 2, "kind": "window", "client": "c", "names": ["loss"], "lo": anything(draw)},
            {"v": 2, "kind": "rows", "client": "c", "ask": 1, "limit": anything(draw)},
            {"v": 2, "kind": "answer", "client": "c", "id": "none", "approve": True},
            {"v": 2, "kind": "hello", "client": "c"},
            {"v": anything(draw), "kind": anything(draw)},
            anything(draw),
        ]
    )


def magic_line(draw: random.Random) -> str:
    return draw.choice(
        [
            f"set {draw.choice('xyz')} {anything(draw)}",
            f"set x {draw.random()}",
            f"do note text={anything(draw)!r}",
            f"do {anything(draw)}",
            "status",
            "knobs",
            "set",
            "set x",
            "fly away",
            "resume",
            "evaluate",
            "policy",
        ]
    )


def test_c05_c16_panel_magic_and_python_at_once_leave_one_result_for_each_request(
    shell: Any,
) -> None:
    from it2nb import TrainingSession

    session = TrainingSession(directory="it2runs", title="entries")
    values = {"x": 0.5}
    broken: list[Any] = []

    def put(value: Any) -> None:
        if type(value) is not float or not 0.0 <= value <= 1.0:
            broken.append(value)
        values["x"] = value

    session.register_knob("x", lambda: values["x"], put, min=0.0, max=1.0)
    over = threading.Event()

    def train() -> None:
        with session.run():
            step = 0
            while not over.wait(0.0002):  # a loop that never rests holds up those who ask
                step += 1
                session.step({"loss": 1.0 / step})

    bridge = Bridge(session, lambda content, buffers: True, heartbeat_s=None)

    def click(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(ASKS):
            bridge.receive(panel_message(draw), None)

    def call(seed: int) -> None:
        draw = random.Random(seed)
        for _ in range(ASKS):
            session.submit({"type": "set_knob", "payload": {"name": "x", "value": anything(draw)}})

    trainer = threading.Thread(target=train, daemon=True)
    askers = [threading.Thread(target=click, args=(seed,), daemon=True) for seed in range(3)]
    askers += [threading.Thread(target=call, args=(9,), daemon=True)]
    for thread in (trainer, *askers):
        thread.start()
    draw = random.Random(4)
    for _ in range(ASKS // 5):
        shell.run_cell(f"%it2 {magic_line(draw)}", silent=True)
        session.submit({"type": "resume"})
    for thread in askers:
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "deadlock"
    last = session.submit({"type": "note", "payload": {"text": "the end"}})
    assert last.result(LIMIT_S).status == "applied"
    assert trainer.is_alive() and session.status == "running"
    over.set()
    trainer.join(LIMIT_S)
    bridge.close()
    assert session.wait(LIMIT_S) == "finished"
    assert broken == []
    requests = session.journal.requests()
    assert set(requests["status"]) <= TERMINAL
    assert requests["action_id"].is_unique
    assert {"panel", "magic", "python"} <= set(requests["source"])
    events = session.journal.since(0)
    assert [event.seq for event in events] == list(range(len(events)))
    session.journal.verify()
