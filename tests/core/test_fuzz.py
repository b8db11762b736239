"""Everything asked at once, by everybody, for as long as it takes: one result each."""

from __future__ import annotations

import math
import os
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from it2nb.core.errors import Rejected
from it2nb.core.queue import ActionHandle
from it2nb.core.session import Session
from it2nb.core.wire import SOURCES, TERMINAL, Action
from tests.core.driving import LIMIT_S

#: `make soak` asks ten times as often.
REQUESTS = 100_000 if os.environ.get("IT2NB_SOAK") else 10_000
THREADS = 8


@pytest.fixture(autouse=True)
def eager_switching() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


class Contract:
    """A setter that remembers what it was given outside of its contract."""

    def __init__(self, session: Session) -> None:
        self.broken: list[Any] = []
        self.values: dict[str, Any] = {"x": 0.5, "n": 1, "on": True, "kind": "a", "text": "t"}
        self.thread: int | None = None
        for name, options in {
            "x": {"min": 0.0, "max": 1.0},
            "n": {"dtype": int, "min": 1, "max": 9, "out_of_bounds": "reject"},
            "on": {"dtype": bool},
            "kind": {"choices": ["a", "b"]},
            "text": {"dtype": str},
        }.items():
            session.register_knob(
                name,
                lambda name=name: self.values[name],  # type: ignore[misc]
                lambda value, name=name: self.put(name, value),  # type: ignore[misc]
                **options,  # type: ignore[arg-type]
            )

    def put(self, name: str, value: Any) -> None:
        kept = {
            "x": lambda: type(value) is float and 0.0 <= value <= 1.0,
            "n": lambda: type(value) is int and 1 <= value <= 9,
            "on": lambda: type(value) is bool,
            "kind": lambda: value in ("a", "b"),
            "text": lambda: type(value) is str,
        }[name]()
        if not kept or threading.get_ident() != self.thread:
            self.broken.append((name, value))
        if name == "x" and value > 0.99:
            raise RuntimeError("the setter is in a bad mood")
        self.values[name] = value


def anything(draw: random.Random, depth: int = 0) -> Any:
    kinds = [
        lambda: draw.choice([None, True, False, "", "a", "0.01", "x" * 50, b"b", object()]),
        lambda: draw.choice([math.nan, math.inf, -math.inf, 1e308, -1, 0, 5, 10**400]),
        draw.random,
        lambda: draw.randint(-3, 12),
    ]
    if depth < 2:
        kinds.append(lambda: [anything(draw, depth + 1) for _ in range(2)])
        kinds.append(lambda: {str(draw.random()): anything(draw, depth + 1)})
    return draw.choice(kinds)()


def request(draw: random.Random, used: list[str]) -> Any:
    name = draw.choice(["x", "n", "on", "kind", "text", "nothing", 7])
    kind = draw.choice(
        ["set_knob"] * 12 + ["batch", "evaluate", "resume", "resume", "explode", "refuse", "odd",
         "note", "save_checkpoint", "pause", "unknown", ""]
    )  # fmt: skip
    payload: Any = {
        "set_knob": lambda: {"name": name, "value": anything(draw)},
        "batch": lambda: {"set": {"x": draw.random(), "n": draw.randint(0, 12)}},
        "note": lambda: {"text": "t"},
    }.get(kind, lambda: draw.choice([{}, {}, {"extra": anything(draw)}]))()
    if draw.random() < 0.05:
        return draw.choice([{}, {"type": 3}, {"type": kind, "payload": 1}, None, "stop", payload])
    more: dict[str, Any] = {}
    if draw.random() < 0.1:
        more["valid_until_step"] = draw.randint(0, 10**6)
    if draw.random() < 0.1:
        more["expect"] = {"x": draw.random()}
    if used and draw.random() < 0.05:
        more["id"] = draw.choice(used)
    if not kind:
        return {"type": kind, "payload": payload, **more}
    return Action(type=kind, payload=payload, **more)


def asker(
    session: Session, seed: int, count: int, out: list[ActionHandle], faults: list[BaseException]
) -> None:
    draw = random.Random(seed)
    used: list[str] = []
    try:
        for _ in range(count):
            handle = session.submit(request(draw, used), source=draw.choice(SOURCES))
            out.append(handle)
            used.append(handle.id)
            if draw.random() < 0.02:
                handle.cancel()
            if draw.random() < 0.01:
                session.state()
            if len(out) % 200 == 0:
                session.submit(Action(type="resume"))
    except BaseException as error:  # noqa: BLE001 - shown by the test
        faults.append(error)


def declare(session: Session) -> None:
    @session.action("explode")
    def explode() -> None:
        raise RuntimeError("boom")

    @session.action("refuse")
    def refuse() -> None:
        raise Rejected("no")

    @session.action("odd")
    def odd() -> Any:
        return {"nan": math.nan, 3: {1, 2}, "self": session}

    session.on_evaluate(lambda: {"val": 1.0})


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("ending", ["finish", "stop"])
def test_c05_c15_c16_every_request_from_every_thread_has_one_result(ending: str) -> None:
    session = Session(queue_size=REQUESTS)
    contract = Contract(session)
    declare(session)
    outs: list[list[ActionHandle]] = [[] for _ in range(THREADS)]
    faults: list[BaseException] = []
    count = REQUESTS // THREADS // 2
    askers = [
        threading.Thread(target=asker, args=(session, seed, count, outs[seed], faults))
        for seed in range(THREADS)
    ]

    def keeper() -> None:
        # Somebody has to end the pauses that the askers begin.
        while trainer.is_alive():
            session.submit(Action(type="resume")).result(LIMIT_S * 10)
            trainer.join(0.001)

    asking = threading.Thread.is_alive

    def train() -> None:
        contract.thread = threading.get_ident()
        with session.run():
            step = 0
            # A run that is to be stopped goes on until it is.
            while any(map(asking, askers)) or len(session.queue) or ending == "stop":
                step += 1
                control = session.step({"loss": 1.0 / step})
                if ending == "stop" and step == 3:
                    session.submit(Action(type="stop"))
                if control.stop:
                    break

    trainer = threading.Thread(target=train)
    keeping = threading.Thread(target=keeper)
    for thread in [*askers, trainer, keeping]:
        thread.daemon = True
        thread.start()
    for thread in [*askers, trainer, keeping]:
        thread.join(LIMIT_S * 30)
        assert not thread.is_alive(), "deadlock"
    assert faults == []
    assert contract.broken == []
    assert session.status == ("finished" if ending == "finish" else "stopped")
    handles = [handle for out in outs for handle in out]
    assert len(handles) >= count * THREADS * 0.99
    assert {handle.result(0).status for handle in handles} <= TERMINAL
    events = session.journal.since(0)
    assert [event.seq for event in events] == list(range(len(events)))
    answered = [event.action_id for event in events if event.type == "action_result"]
    asked = [event.action_id for event in events if event.type == "action_submitted"]
    assert len(answered) == len(set(answered))
    assert set(answered) == set(asked)
    assert session.path is not None
    session.journal.verify()
