"""Half characters, wherever they come from: every view of the run is there all the same (C62)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

import it2nb
from it2nb.core.utf8 import whole
from it2nb.panel.bridge import Bridge
from it2nb.session import TrainingSession
from tests.core.driving import until

HALF = "an emoji cut in two \ud83d here"


def of(**options: Any) -> Callable[[Path], TrainingSession]:
    return lambda folder: TrainingSession(directory=folder, **options)


def choices(folder: Path) -> TrainingSession:
    session = TrainingSession(directory=folder)
    session.register_knob("mode", lambda: "a", lambda value: None, choices=["a", HALF])
    return session


def value(folder: Path) -> TrainingSession:
    session = TrainingSession(directory=folder)
    session.register_knob("prompt", lambda: HALF, lambda value: None, dtype=str)
    return session


def action(folder: Path) -> TrainingSession:
    session = TrainingSession(directory=folder)
    session.action("shake", HALF)(lambda: HALF)
    return session


def warning(folder: Path) -> TrainingSession:
    session = TrainingSession(directory=folder)
    session.warn(HALF)
    return session


def failing(folder: Path) -> TrainingSession:
    session = TrainingSession(directory=folder)

    @session.action("shake")
    def shake() -> None:
        raise ValueError(HALF)

    session.submit({"type": "shake"})
    return session


MADE = {
    "title": of(title=HALF), "context": of(context=HALF), "watch": of(watch=[HALF]),
    "goal": of(goal=it2nb.Goal(HALF, "min")), "choices": choices, "value": value,
    "action": action, "warning": warning, "failing": failing,
}  # fmt: skip


@pytest.mark.parametrize("place", MADE)
def test_every_view_is_there_c62(place: str, tmp_path: Path) -> None:
    session = MADE[place](tmp_path)
    sent: list[Any] = []

    def send(content: dict[str, Any], buffers: list[bytes]) -> bool:
        sent.append(content)
        return True

    bridge = Bridge(session, send)
    try:
        with session.serve() as server, session.run():
            session.step({"loss": 1.0})
            bridge.receive({"v": 2, "client": "0123456789abcdef", "kind": "hello"}, [])
            until(lambda: any(each["kind"] == "snapshot" for each in sent))
            headers = {"authorization": f"Bearer {server.token}"}
            for path in ("/state", "/events?since=0"):
                answer = httpx.get(server.url + path, headers=headers, trust_env=False)
                assert answer.status_code == 200, answer.text
            assert httpx.get(server.link, trust_env=False).status_code == 200
    finally:
        bridge.close()
    json.dumps(sent, ensure_ascii=False).encode()
    repr(session).encode()
    session.report(tmp_path / "run.html")
    it2nb.open(session.export(tmp_path / "run.zip")).verify()


def test_the_error_of_a_run_can_be_written_c62() -> None:
    session = TrainingSession(directory=None)
    with pytest.raises(ValueError, match="cut in two"), session.run():
        raise ValueError(HALF)
    assert session.error == f"ValueError: {whole(HALF)}"
    repr(session).encode()


def test_whole_text_stays_as_it_is() -> None:
    assert whole("plain") == "plain"
    assert whole("\u00fc \U0001f600") == "\u00fc \U0001f600"
    assert whole(HALF) == "an emoji cut in two ? here"
