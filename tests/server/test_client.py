"""The clients, against a real server, a broken line, and servers that are not quite like ours."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection as AsyncConnection
from websockets.sync.client import ClientConnection as SyncConnection

from it2nb.core.errors import Refused, ServerError, Unreachable
from it2nb.core.wire import Action, Event
from it2nb.server.async_client import AsyncClient
from it2nb.server.calls import Address
from it2nb.server.client import Client
from it2nb.server.cursor import Cursor
from it2nb.server.server import serve
from tests.core.driving import LIMIT_S, until

from .conftest import Served
from .line import Line
from .peer import Peer


def test_an_address_takes_links_and_hides_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IT2NB_TOKEN", raising=False)
    link = Address("http://127.0.0.1:8765/?token=secret-of-the-run")
    assert (link.url, link.token) == ("http://127.0.0.1:8765", "secret-of-the-run")
    assert Address("localhost:80/user/x/proxy/1/", "t").url == "http://localhost:80/user/x/proxy/1"
    assert Address("https://hub.example/p").socket("/events") == "wss://hub.example/p/events"
    assert Address("http://127.0.0.1:1").headers == {}
    for each in (link, Address("http://127.0.0.1:1/~secret-of-the-run")):
        assert "secret" not in repr(each)
    monkeypatch.setenv("IT2NB_TOKEN", "of-the-environment")
    assert Address("http://127.0.0.1:1").token == "of-the-environment"
    for bad in ("", "ftp://x", "http://", "http://?token=secret"):
        with pytest.raises(ServerError) as caught:
            Address(bad)
        assert "secret" not in str(caught.value)


def test_verbs_ask_and_wait_for_the_result(served: Served) -> None:
    with Client(served.server.link, actor="human:anna", timeout=LIMIT_S) as client:
        asked: list[Any] = []

        def ask() -> None:
            asked.append(client.set("lr", 0.2, timeout=LIMIT_S))
            asked.append(client.set("lr", 7.0, timeout=LIMIT_S))
            asked.append(client.batch({"lr": 0.3, "wd": 0.1}, timeout=LIMIT_S))
            asked.append(client.do("note", text="hello", timeout=LIMIT_S))
            asked.append(client.pause())
            asked.append(client.resume())

        thread = threading.Thread(target=ask)
        thread.start()
        while thread.is_alive():
            served.loop.advance(wait=False)
            thread.join(0.01)
    statuses = [each.status for each in asked]
    assert statuses == ["applied", "rejected", "applied", "applied", "applied", "applied"]
    assert asked[0].actor == "human:anna"
    assert asked[0].source == "http"
    assert served.values == {"lr": 0.3, "wd": 0.1}


def test_a_request_without_a_result_gives_a_handle(served: Served) -> None:
    with Client(served.server.url, served.server.token) as client:
        handle = client.set("lr", 0.2, timeout=0.01)
        assert (handle.done(), handle.status) == (False, "pending")
        with pytest.raises(TimeoutError, match="control point"):
            handle.result(0.02)
        with pytest.raises(TimeoutError):
            client.submit("note", {"text": "x"}, wait=True, timeout=0.02)
        other = client.submit(Action(type="note", payload={"text": "y"}))
        assert other.cancel()
        served.loop.advance()
        assert handle.result(LIMIT_S).after == 0.2
        assert handle.done()
        assert other.result(LIMIT_S).status == "cancelled"
        assert client.result(handle.id) == handle.result(0)
        assert client.result(client.submit("note", {"text": "z"}).id) is None


def test_refusals_are_told_with_status_and_reason(served: Served) -> None:
    with Client(served.server.url, "a-wrong-token-of-length") as client:
        for ask in (client.state, lambda: client.set("lr", 1), lambda: list(client.events())):
            with pytest.raises(Refused, match="token") as caught:
                ask()
            assert caught.value.status == 401
    with Client(served.server.url, served.server.token) as client:
        with pytest.raises(Refused, match="no request has the id"):
            client.result("unknown")
        with pytest.raises(ServerError):
            client.submit({"type": "note", "payload": {"text": "x" * 2_000_000}})


def test_nobody_there_is_told_in_time(served: Served) -> None:
    served.server.close()
    with Client(served.server.url, served.server.token, timeout=0.3, retry_s=0.3) as client:
        for ask in (client.state, client.pause, lambda: list(client.events())):
            with pytest.raises(Unreachable, match="no answer from"):
                ask()


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Client(url, "t", timeout=0.2, retry_s=0.2) as client:
            with pytest.raises(Unreachable, match="Timeout"):
                client.state()
            with pytest.raises(Unreachable):
                list(client.events())


def test_waiting_ends_with_the_run(served: Served) -> None:
    with Client(served.server.url, served.server.token) as client:
        with pytest.raises(TimeoutError, match="running"):
            client.wait(0.05)
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(client.wait(LIMIT_S)))
        thread.start()
        served.loop.advance(3)
        served.loop.finish()
        thread.join(LIMIT_S)
        assert found == ["finished"]
        assert client.wait(0) == "finished"


def test_events_can_be_had_without_following(served: Served) -> None:
    served.loop.advance(50)
    with Client(served.server.url, served.server.token) as client:
        events = list(client.events(follow=False))
        assert [e.seq for e in events] == list(range(len(served.session.journal)))
        assert events == served.session.journal.since()
        later = list(client.events(after=10, follow=False))
        assert later == events[11:]
        notes = client.events(types=["metrics"], follow=False)
        assert all(e.type == "metrics" for e in notes)


def test_silence_ends_following_after_its_time(served: Served) -> None:
    served.loop.advance(3)
    with Client(served.server.url, served.server.token) as client:
        seqs = [e.seq for e in client.events(timeout=0.3)]
        assert seqs == list(range(len(served.session.journal)))


def test_a_client_that_is_closed_ends_its_readers(served: Served) -> None:
    client = Client(served.server.url, served.server.token)
    seen: list[Event] = []
    reader = threading.Thread(target=lambda: seen.extend(client.events()))
    reader.start()
    until(lambda: served.server._serving.streams == 1)
    client.close()
    reader.join(LIMIT_S)
    assert not reader.is_alive()
    client.close()
    with pytest.raises(ServerError, match="closed"):
        client.state()


def test_events_resume_over_a_broken_line_without_gap_or_duplicate(served: Served) -> None:
    line = Line(served.server.port)
    client = Client(f"http://127.0.0.1:{line.port}", served.server.token, retry_s=LIMIT_S)
    seqs: list[int] = []
    reader = threading.Thread(target=lambda: seqs.extend(e.seq for e in client.events()))
    reader.start()
    for _ in range(8):
        served.loop.advance(25)
        served.session.journal.seal()
        wanted = len(served.session.journal)
        until(lambda: len(seqs) >= wanted)  # noqa: B023
        line.cut()
        served.loop.advance(10)
    served.loop.finish()
    reader.join(LIMIT_S)
    assert seqs == list(range(len(served.session.journal)))
    assert line.count >= 8
    client.close()
    line.close()


def test_a_server_that_starts_again_is_found_again(served: Served) -> None:
    port, token = served.server.port, served.server.token
    client = Client(served.server.url, token, retry_s=LIMIT_S)
    events = client.events()
    seqs = [next(events).seq]
    served.loop.advance(5)
    served.server.close()
    served.loop.advance(5)
    served.server = serve(served.session, port=port, token=token)
    served.loop.finish()
    seqs += [event.seq for event in events]
    assert seqs == list(range(len(served.session.journal)))
    client.close()


def test_another_run_at_the_same_address_is_not_mixed_in(served: Served) -> None:
    port, token = served.server.port, served.server.token
    client = Client(served.server.url, token, retry_s=LIMIT_S)
    events = client.events()
    next(events)
    served.server.close()
    other = Served(None, port=port, token=token)
    with pytest.raises(ServerError, match="another run"):
        list(events)
    other.close()
    client.close()


def test_a_busy_server_is_asked_again_when_it_says_so(tmp_path: Any) -> None:
    from it2nb.server.limits import Limits

    made = Served(tmp_path, limits=Limits(requests_per_s=50.0, burst=2.0))
    with Client(made.server.url, made.server.token) as client:
        for _ in range(20):
            client.state()
    made.close()


def test_global_random_streams_and_logs_stay_as_they_are(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    state = random.getstate()
    with caplog.at_level(logging.DEBUG), Client(served.server.link) as client:
        client.state()
        assert next(client.events()).seq == 0
        assert served.server.token not in repr(client) + str(vars(client.address).keys())
    assert served.server.token not in caplog.text
    assert random.getstate() == state


# ------------------------------------------------------------------------------------ in a loop


def awaited(main: Callable[[], Any]) -> Any:
    return asyncio.run(main())


def test_the_client_for_event_loops_does_the_same(served: Served) -> None:
    async def main() -> list[int]:
        async with AsyncClient(served.server.link, actor="human:bo", timeout=LIMIT_S) as client:
            assert (await client.state())["status"] == "running"
            handle = await client.set("lr", 0.2, timeout=0.01)
            assert not await handle.done()
            with pytest.raises(TimeoutError):
                await handle.result(0.02)
            served.loop.advance(5)
            result = await handle.result(LIMIT_S)
            assert (result.status, result.actor) == ("applied", "human:bo")
            assert (await client.result(handle.id)) == result
            pending = await client.submit("note", {"text": "x"})
            assert await pending.cancel()
            with pytest.raises(TimeoutError):
                await client.wait(0.05)
            now = [e.seq async for e in client.events(follow=False)]
            assert now == list(range(len(served.session.journal)))
            waiting = asyncio.ensure_future(client.wait(LIMIT_S))
            stop = asyncio.ensure_future(client.stop())
            while not stop.done():
                served.loop.advance(wait=False)
                await asyncio.sleep(0.001)
            assert stop.result().status == "applied"
            assert await waiting == "stopped"
            return [e.seq async for e in client.events()]

    assert awaited(main) == list(range(len(served.session.journal)))


def test_the_client_for_event_loops_resumes_too(served: Served) -> None:
    async def main() -> list[int]:
        line = Line(served.server.port)
        seqs: list[int] = []
        async with AsyncClient(
            f"http://127.0.0.1:{line.port}", served.server.token, retry_s=LIMIT_S
        ) as client:
            cuts = 0
            served.loop.advance(30)
            async for event in client.events():
                seqs.append(event.seq)
                if event.seq % 20 == 19 and cuts < 5:
                    cuts += 1
                    line.cut()
                    served.loop.advance(20)
                    if cuts == 5:
                        served.loop.finish()
        line.close()
        return seqs

    assert awaited(main) == list(range(len(served.session.journal)))


def test_the_client_for_event_loops_tells_who_refuses_and_who_is_not_there(served: Served) -> None:
    async def main() -> None:
        async with AsyncClient(served.server.url, "a-wrong-token-of-length") as client:
            with pytest.raises(Refused):
                await client.state()
            with pytest.raises(Refused):
                [e async for e in client.events()]
        served.server.close()
        async with AsyncClient(served.server.url, "t", timeout=0.2, retry_s=0.2) as client:
            with pytest.raises(Unreachable):
                await client.state()
            with pytest.raises(Unreachable):
                [e async for e in client.events()]

    awaited(main)


def test_a_line_that_closes_before_it_was_asked_for_anything_is_no_answer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The line takes the connection and closes it: nobody is behind it.
    line = Line(served.server.port)
    url = f"http://127.0.0.1:{line.port}"
    served.server.close()
    one, other = SyncConnection.handshake, AsyncConnection.handshake

    def late(self: SyncConnection, *args: Any, **options: Any) -> None:
        self.recv_events_thread.join(LIMIT_S)
        one(self, *args, **options)

    async def late_too(self: AsyncConnection, *args: Any, **options: Any) -> None:
        await asyncio.shield(self.connection_lost_waiter)
        await other(self, *args, **options)

    monkeypatch.setattr(SyncConnection, "handshake", late)
    monkeypatch.setattr(AsyncConnection, "handshake", late_too)
    with Client(url, "t", timeout=0.2, retry_s=0.2) as client, pytest.raises(Unreachable):
        list(client.events())

    async def main() -> None:
        async with AsyncClient(url, "t", timeout=LIMIT_S, retry_s=0.2) as client:
            with pytest.raises(Unreachable):
                [e async for e in client.events()]

    awaited(main)
    line.close()


# --------------------------------------------------------------------- the paper's own server


@pytest.mark.parametrize("sockets", [True, False])
def test_a_server_of_the_papers_release_is_steered_and_read(sockets: bool) -> None:
    peer = Peer(sockets=sockets)
    try:
        with Client(peer.url, timeout=LIMIT_S, retry_s=0.5) as client:
            assert client.state() == peer.state
            result = client.submit("set_knob", {"name": "lr", "value": 0.2}, wait=True, timeout=5)
            assert (result.ok, result.status) == (True, "applied")
            assert peer.asked[0]["payload"] == {"name": "lr", "value": 0.2}
            assert {"type", "payload"} <= set(peer.asked[0])
            failed = client.submit("unknown", {}, wait=True, timeout=5)
            assert (failed.ok, failed.error) == (False, "no such action")
            events = client.events(types=None, follow=sockets, timeout=0.5)
            assert [e.seq for e in events] == list(range(len(peer.events)))
    finally:
        peer.close()


# ------------------------------------------------------------------------------------- cursors


def pack(first: int, values: list[float | None], odd: dict[str, str]) -> dict[str, Any]:
    steps = list(range(first, first + len(values)))
    return {
        "v": 2, "seq": [first, first + len(values) - 1], "type": "metrics", "epoch": 100.0,
        "branch_id": 0, "round": 0, "step": steps, "t": [float(s) for s in steps],
        "columns": {"loss": values}, "nonfinite": {"loss": odd} if odd else {},
    }  # fmt: skip


def test_a_cursor_takes_each_event_once_whatever_comes_twice() -> None:
    cursor = Cursor(packed=True)
    note = {"seq": 3, "type": "note", "payload": {}, "ts": 1.0}
    first = cursor.fresh([pack(0, [1.0, 2.0, 3.0], {}), note])
    assert cursor.seq == 4
    assert len(cursor.events(first)) == 4
    assert cursor.fresh([note, pack(0, [1.0, 2.0, 3.0], {})]) == []
    rest = cursor.events(cursor.fresh([pack(2, [3.0, 0.0, 5.0, None], {"3": "nan"})]))
    assert [e.seq for e in rest] == [4, 5]
    assert rest[0].payload == {"loss": 5.0}
    assert rest[1].payload["loss"] != rest[1].payload["loss"]


def test_a_cursor_passes_over_what_is_no_event() -> None:
    cursor = Cursor()
    for message in ('{"hello": 1}', "[]", "3", '{"type": "x"}'):
        assert cursor.rows(message) == []
    assert cursor.rows(json.dumps({"seq": 0, "type": "note", "payload": {}}))
    assert cursor.rows(json.dumps({"events": [{"seq": 1, "type": "note"}]}))
    assert cursor.seq == 2
