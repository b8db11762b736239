"""Clients in numbers, clients that misbehave: the run does not notice."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from it2nb.core.session import Session
from it2nb.core.wire import TERMINAL
from it2nb.server.client import Client
from it2nb.server.server import serve
from tests.core.driving import LIMIT_S, until

from .conftest import Served

CLIENTS, REQUESTS = 8, 40


class Racing:
    """A run whose loop steps as fast as it can, until it is stopped."""

    def __init__(self, folder: Path) -> None:
        self.values = {"lr": 0.1}
        self.session = Session(directory=folder, title="racing")
        self.session.register_knob(
            "lr", lambda: self.values["lr"], lambda v: self.values.update(lr=v), min=0.0, max=1.0
        )
        self.server = serve(self.session)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        until(lambda: self.session.started)

    def _run(self) -> None:
        with self.session.run():
            step = 0
            while True:
                step += 1
                if self.session.step({"loss": 1.0 / step}).stop:
                    return

    def end(self) -> None:
        self.session.stop()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()
        self.server.close()


@pytest.fixture
def racing(tmp_path: Path) -> Racing:
    return Racing(tmp_path)


def test_eight_clients_at_once_get_one_result_for_each_request(racing: Racing) -> None:
    statuses: list[str] = []
    ids: list[str] = []

    def ask(number: int) -> None:
        with Client(racing.server.link, actor=f"client {number}", timeout=LIMIT_S) as client:
            for turn in range(REQUESTS):
                value = (number * REQUESTS + turn) / 1000
                result = client.submit(
                    "set_knob", {"name": "lr", "value": value}, wait=True, timeout=LIMIT_S
                )
                statuses.append(result.status)
                ids.append(result.id)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(6 * LIMIT_S)
    racing.end()
    assert len(statuses) == CLIENTS * REQUESTS
    assert set(statuses) == {"applied"}
    requests = racing.session.journal.requests().query("type == 'set_knob'")
    assert sorted(requests["action_id"]) == sorted(ids)
    assert set(requests["source"]) == {"http"}
    # In order, none lost: what each was before is what the one before it left.
    assert requests["before"].tolist()[1:] == requests["after"].tolist()[:-1]


def test_forty_readers_hold_nothing_and_all_get_everything(served: Served) -> None:
    with ExitStack() as stack:
        readers = [stack.enter_context(served.socket("/events?batch=true")) for _ in range(40)]
        until(lambda: served.server._serving.streams == 40)
        served.loop.advance(200)
        served.loop.finish()
        count = len(served.session.journal)
        for reader in readers:
            seen = 0
            while seen < count:
                message = reader.recv(timeout=LIMIT_S)
                assert isinstance(message, str)
                seen += message.count('"seq":')
            assert seen == count
    until(lambda: served.server._serving.streams == 0)
    # One subscription for all of them, and it holds no events.
    assert len(served.session.journal._subscriptions) == 1
    assert not served.session.journal._subscriptions[0]._fetched


def test_a_reader_that_never_reads_holds_up_neither_the_run_nor_the_others(
    racing: Racing,
) -> None:
    made = object.__new__(Served)
    made.server = racing.server
    with made.socket("/events", max_queue=1), Client(racing.server.link, timeout=LIMIT_S) as client:
        until(lambda: racing.server._serving.streams == 1)
        before = racing.session.step_count
        for value in (0.2, 0.3, 0.4):
            assert client.set("lr", value, timeout=LIMIT_S).status == "applied"
        until(lambda: racing.session.step_count > before + 1000)
        got = [event.seq for event, _ in zip(client.events(), range(2000), strict=False)]
        assert got == list(range(len(got)))
    racing.end()


def test_connections_that_vanish_leave_nothing(served: Served) -> None:
    port, token = served.server.port, served.server.token
    upgrade = (
        f"GET /events?token={token} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    ).replace("Host: x", "Host: 127.0.0.1")
    beginnings = [
        b"",
        b"GET /st",
        b"POST /actions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100\r\n\r\n{",
        f"GET /state HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n".encode(),
        f"GET /events?since=9999&wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"Authorization: Bearer {token}\r\n\r\n".encode(),
        upgrade.encode(),
        b"\x16\x03\x01 no HTTP at all \x00\xff",
    ]
    for _ in range(5):
        for beginning in beginnings:
            with socket.create_connection(("127.0.0.1", port), LIMIT_S) as sock:
                sock.sendall(beginning)
    assert served.http.get("/state").status_code == 200
    until(lambda: served.server._serving.streams == 0)
    served.loop.advance(3)
    assert not [text for text in served.session.warnings if text.startswith("server")]


def test_a_flood_of_requests_is_bounded_and_each_has_its_end(tmp_path: Path) -> None:
    made = Served(tmp_path)
    made.session.queue.size = 20
    ids = [made.post("note", {"text": str(number)})["id"] for number in range(50)]
    made.loop.advance()
    results = [made.session.result(each) for each in ids]
    made.close()
    statuses = [result.status for result in results if result is not None]
    assert len(statuses) == 50
    assert set(statuses) <= TERMINAL
    assert (statuses.count("applied"), statuses.count("rejected")) == (20, 30)
