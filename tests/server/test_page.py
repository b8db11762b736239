"""The page: the same panel over a WebSocket, with a bounded mailbox."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from socket import SHUT_RDWR
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from it2nb.server.pages import MAILBOX, pack
from tests.core.driving import LIMIT_S, until

from .conftest import Served


def unpack(frame: bytes | str) -> tuple[dict[str, Any], np.ndarray]:
    """Take a frame apart as js/src/socket.ts does."""
    assert isinstance(frame, bytes)
    (length,) = struct.unpack_from("<I", frame)
    message: dict[str, Any] = json.loads(frame[4 : 4 + length])
    return message, np.frombuffer(frame, "<f8", offset=4 + length)


def say(socket: ClientConnection, kind: str, client: str = "page", **more: Any) -> None:
    socket.send(json.dumps({"v": 2, "kind": kind, "client": client, **more}))


def heard(socket: ClientConnection) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
    while True:
        yield unpack(socket.recv(timeout=LIMIT_S))


@pytest.mark.parametrize("numbers", [[], [1.5], [float("nan"), float("inf"), -0.0]])
@pytest.mark.parametrize("text", ["", "x", "ü" * 5, "longer text"])
def test_a_frame_holds_message_and_numbers_at_a_multiple_of_eight(
    numbers: list[float], text: str
) -> None:
    data = np.array(numbers, "<f8")
    frame = pack({"kind": "batch", "text": text}, [data.tobytes()] if numbers else [])
    message, found = unpack(frame)
    assert message == {"kind": "batch", "text": text}
    assert np.array_equal(found, data, equal_nan=True)
    (length,) = struct.unpack_from("<I", frame)
    assert (4 + length) % 8 == 0


def test_a_page_gets_a_snapshot_then_what_changes_and_can_steer(served: Served) -> None:
    served.loop.advance(3)
    with served.socket("/panel") as socket:
        say(socket, "hello")
        message, data = snapshot(socket)
        assert message["to"] == "page"
        assert message["state"]["step"] == 3
        (curve,) = message["curves"]
        count = curve["count"]
        assert data[curve["at"] + 2 * count :][:count].tolist() == [1.0, 0.5, 1 / 3]
        action = {"type": "set_knob", "payload": {"name": "lr", "value": 0.3}, "id": "mine"}
        say(socket, "submit", action=action)
        until(lambda: served.session.queue.known("mine") is not None)
        served.loop.advance()
        rows = (row for message, _ in heard(socket) for row in message.get("rows", []))
        row = next(each for each in rows if each["action_id"] == "mine")
    assert (row["status"], row["source"], row["actor"]) == ("applied", "http", "page")
    assert served.values["lr"] == 0.3


def test_answers_go_to_the_page_that_asked(served: Served) -> None:
    with served.socket("/panel") as one, served.socket("/panel") as other:
        say(one, "hello", "one")
        say(other, "hello", "other")
        for socket, name in ((one, "one"), (other, "other")):
            for message, _ in heard(socket):
                assert message.get("to", name) == name
                if message["kind"] == "snapshot":
                    break


def test_a_page_that_vanishes_is_forgotten(served: Served) -> None:
    pages = served.server._serving.pages
    with served.socket("/panel") as socket:
        say(socket, "hello")
        snapshot(socket)
        assert len(pages._open) == 1
        assert len(pages._bridge._clients) == 1
        socket.socket.shutdown(SHUT_RDWR)
    until(lambda: not pages._open and not pages._bridge._clients)


def snapshot(socket: ClientConnection) -> tuple[dict[str, Any], np.ndarray]:
    """Return the first snapshot; a sign of life may come before it."""
    return next(each for each in heard(socket) if each[0]["kind"] == "snapshot")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"kind": "fly"}', '{"v": 3}', "\\x00"])
def test_a_page_that_talks_nonsense_does_no_harm(served: Served, text: str) -> None:
    with served.socket("/panel") as socket:
        socket.send(text)
        socket.send(text.encode())
        say(socket, "hello")
        assert any(message["kind"] == "snapshot" for message, _ in heard(socket))
    served.loop.advance()


def test_a_page_that_shouts_is_shown_out(served: Served) -> None:
    with served.socket("/panel") as socket, pytest.raises(ConnectionClosed) as caught:
        for _ in range(5_000):
            say(socket, "ack", n=0)
        while True:
            socket.recv(timeout=LIMIT_S)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1008


def test_a_full_mailbox_leaves_messages_out_and_keeps_no_more(served: Served) -> None:
    from it2nb.server.pages import Page

    class Silent:
        def receive(self, content: Any) -> None: ...

    async def main() -> int:
        page = Page(served.server._serving, Silent())  # type: ignore[arg-type]
        for number in range(1000):
            page.post(b"%d" % number)
        return page._mail.qsize()

    import asyncio

    assert asyncio.run(main()) == MAILBOX


def test_scripts_are_served_by_name_alone(served: Served) -> None:
    for name in ("page.mjs", "panel.mjs", "chart.mjs"):
        answer = served.http.get(f"/static/{name}")
        assert answer.status_code in (200, 404)
        if answer.status_code == 200:
            assert answer.headers["content-type"].startswith("text/javascript")
            assert answer.headers["x-content-type-options"] == "nosniff"
    for name in ("../app.py", "..%2F..%2Fapp.py", "loader.js", "x"):
        assert served.http.get(f"/static/{name}").status_code == 404


def test_the_page_loads_nothing_from_elsewhere_and_escapes_the_title(served: Served) -> None:
    served.session.title = "<script>alert(1)</script>"
    answer = served.http.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "<script>alert" not in answer.text
    assert "http://" not in answer.text
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
