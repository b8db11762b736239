"""Events over HTTP and WebSockets: in order, from any seq, without a gap that is not told."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection

from it2nb.core.session import Session
from it2nb.server.cursor import Cursor
from it2nb.server.limits import Limits
from it2nb.server.server import serve
from tests.core.driving import LIMIT_S, until

from .conftest import Served


def messages(socket: ClientConnection) -> Iterator[dict[str, Any]]:
    """Yield what a socket says until the server ends it; its code is in the last place."""
    while True:
        try:
            yield json.loads(socket.recv(timeout=LIMIT_S))
        except ConnectionClosed as err:
            yield {"closed": err.rcvd.code if err.rcvd else None}
            return


def test_a_page_of_events_has_the_shape_of_the_papers_release_and_where_to_go_on(
    served: Served,
) -> None:
    served.loop.advance(3)
    page = served.http.get("/events", params={"since": 0}).json()
    assert set(page) == {"v", "run_id", "events", "next", "gap"}
    assert [each["seq"] for each in page["events"]] == list(range(page["next"]))
    first = page["events"][0]
    assert {"v", "seq", "type", "payload", "ts", "branch_id", "round"} <= set(first)
    assert first["v"] == 2
    assert page["gap"] is None
    metrics = [each for each in page["events"] if each["type"] == "metrics"]
    assert [each["payload"]["loss"] for each in metrics] == [1.0, 0.5, 1 / 3]
    assert [each["step"] for each in metrics] == [1, 2, 3]


def test_since_includes_its_seq_and_after_does_not(served: Served) -> None:
    served.loop.advance(5)
    whole = served.http.get("/events").json()["events"]
    since = served.http.get("/events", params={"since": 3}).json()["events"]
    after = served.http.get("/events", params={"after": 3}).json()["events"]
    assert since == whole[3:]
    assert after == whole[4:]
    beyond = served.http.get("/events", params={"since": 10_000}).json()
    assert (beyond["events"], beyond["next"]) == ([], 10_000)


def test_pages_follow_one_another_to_the_end(served: Served) -> None:
    served.loop.advance(40)
    found: list[int] = []
    seq = 0
    while True:
        page = served.http.get("/events", params={"since": seq, "limit": 7}).json()
        if not page["events"]:
            break
        assert len(page["events"]) <= 7
        found += [each["seq"] for each in page["events"]]
        seq = page["next"]
    assert found == list(range(len(served.session.journal)))


def test_events_can_be_had_by_type(served: Served) -> None:
    served.loop.advance(5)
    served.post("note", {"text": "hear"})
    served.loop.advance()
    page = served.http.get("/events", params={"types": ["note", "status_changed"]}).json()
    assert [each["type"] for each in page["events"]] == ["status_changed", "note"]
    assert page["next"] == len(served.session.journal)


@pytest.mark.parametrize(
    "params",
    [
        {"since": -1},
        {"since": "x"},
        {"since": 1e30},
        {"limit": 0},
        {"limit": 10**9},
        {"wait": -1},
        {"wait": 61},
        {"wait": "nan"},
        {"types": ["t"] * 41},
    ],
)
def test_senseless_parameters_get_422_with_the_reason(
    served: Served, params: dict[str, Any]
) -> None:
    answer = served.http.get("/events", params=params)
    assert answer.status_code == 422
    assert next(iter(params)) in answer.json()["detail"]


def test_a_poll_waits_for_the_next_event(served: Served) -> None:
    served.loop.advance()
    seq = len(served.session.journal)
    found: list[Any] = []

    def poll() -> None:
        with served.client() as http:
            found.append(http.get("/events", params={"since": seq, "wait": 20}).json())

    thread = threading.Thread(target=poll)
    thread.start()
    served.session.emit("note", {"text": "news", "level": "info"})
    thread.join(LIMIT_S)
    assert found[0]["events"][0]["payload"]["text"] == "news"


def test_a_socket_tells_everything_once_and_then_what_happens_until_the_run_is_over(
    served: Served,
) -> None:
    served.loop.advance(3)
    with served.socket("/events?since=0") as socket:
        told = messages(socket)
        early = [next(told)["seq"] for _ in range(3)]
        served.loop.advance(5)
        served.loop.finish()
        rest = list(told)
    assert rest.pop() == {"closed": 1000}
    assert early + [each["seq"] for each in rest] == list(range(len(served.session.journal)))
    assert rest[-1]["type"] != "metrics"


def test_a_socket_can_begin_anywhere_also_inside_a_pack(served: Served) -> None:
    served.loop.advance(50)
    served.loop.finish()
    whole = served.http.get("/events").json()["events"]
    for start in (1, 17, 30, len(whole) - 1):
        for query in (f"since={start}", f"after={start - 1}"):
            with served.socket(f"/events?{query}") as socket:
                *events, last = messages(socket)
            assert events == whole[start:]
            assert last == {"closed": 1000}


def test_batches_and_packs_hold_the_same_events(served: Served) -> None:
    served.loop.advance(30)
    served.loop.finish()
    whole = served.session.journal.since()
    for query in ("batch=true", "packed=true"):
        with served.socket(f"/events?{query}") as socket:
            *told, _ = messages(socket)
        cursor = Cursor(packed=True)
        found = [e for each in told for e in cursor.events(cursor.fresh(each["events"]))]
        assert [e.model_dump() for e in found] == [e.model_dump() for e in whole]
        assert len(told) < 5


def test_numbers_that_are_none_keep_their_kind_on_every_way(tmp_path: Path) -> None:
    made = Served(tmp_path)
    odd = {1: float("nan"), 2: float("inf"), 3: float("-inf"), 4: 0.5}
    made.loop._loss = lambda step: odd[step]
    try:
        made.loop.advance(4)
        made.loop.finish()
        singles = made.http.get("/events", params={"types": ["metrics"]}).json()["events"]
        assert [each["payload"]["loss"] for each in singles] == [None, None, None, 0.5]
        assert [each.get("nonfinite") for each in singles] == [
            {"loss": "nan"}, {"loss": "inf"}, {"loss": "-inf"}, None,
        ]  # fmt: skip
        with made.socket("/events?packed=true") as socket:
            *told, _ = messages(socket)
        cursor = Cursor()
        packed = [e for each in told for e in cursor.events(cursor.fresh(each["events"]))]
        values = [e.payload["loss"] for e in packed if e.type == "metrics"]
        assert math.isnan(values[0])
        assert values[1:] == [float("inf"), float("-inf"), 0.5]
    finally:
        made.close()


def test_what_a_run_without_a_file_forgot_is_told_as_a_gap() -> None:
    made = Served(None, retain=10)
    try:
        made.loop.advance(50)
        page = made.http.get("/events", params={"since": 2}).json()
        oldest = made.session.journal.oldest
        assert page["gap"] == {"from": 2, "to": oldest - 1}
        assert page["events"][0]["seq"] == oldest
        made.loop.finish()
        with made.socket("/events?since=2") as socket:
            first, *rest, _ = messages(socket)
        oldest = made.session.journal.oldest
        assert first["type"] == "gap"
        assert first["payload"] == first["gap"] == {"from": 2, "to": oldest - 1}
        assert rest[0]["seq"] == oldest
    finally:
        made.close()


def test_a_hundred_thousand_events_reach_a_late_joiner_whole(tmp_path: Path) -> None:
    count = 100_000
    with Session(directory=tmp_path, title="long").run() as session:
        for step in range(1, count + 1):
            session.step({"loss": 1.0 / step, "acc": step / count})
            if step % 10_000 == 0:
                session.emit("note", {"text": f"{step}", "level": "info"})
    with serve(session) as server:
        made = object.__new__(Served)
        made.server = server
        seqs: list[int] = []
        with made.socket("/events?batch=true") as socket:
            for message in messages(socket):
                seqs += [each["seq"] for each in message.get("events", [])]
        assert seqs == list(range(len(session.journal)))
        assert len(seqs) > count
        cursor = Cursor(packed=True)
        steps = 0
        with made.socket("/events?packed=true") as socket:
            for message in messages(socket):
                rows = cursor.fresh(message.get("events", []))
                steps += sum(len(row.get("step", [])) for row in rows if row["type"] == "metrics")
        assert (steps, cursor.seq) == (count, len(session.journal))


def test_a_reader_that_takes_nothing_is_cut_off_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with Session(directory=tmp_path).run() as session:
        for step in range(60_000):
            session.step({"loss": 1.0, "text": float(step)})
    with serve(session, limits=Limits(stalled_s=0.05)) as server:
        made = object.__new__(Served)
        made.server = server
        # Its own queue is full after a few messages; then nothing is taken from the network.
        with made.socket("/events?batch=true", max_queue=1) as socket:
            serving = server._serving
            until(lambda: serving.streams == 1)
            until(lambda: serving.streams == 0)
            read = []
            with pytest.raises(ConnectionClosed):
                while True:
                    read += json.loads(socket.recv(timeout=LIMIT_S))["events"]
        assert 0 < len(read) < len(session.journal)
        cursor = Cursor(read[-1]["seq"] + 1)
        with made.socket(f"/events?batch=true&since={cursor.seq}") as socket:
            for message in messages(socket):
                cursor.fresh(message.get("events", []))
        assert cursor.seq == len(session.journal)


def test_a_reader_that_talks_too_much_is_shown_out(served: Served) -> None:
    with served.socket("/events") as socket:
        with pytest.raises(ConnectionClosed) as caught:
            for _ in range(10_000):
                socket.send("hello?")
            while True:
                socket.recv(timeout=LIMIT_S)
        assert caught.value.rcvd is not None
        assert caught.value.rcvd.code == 1008


def test_readers_at_the_head_share_what_is_written_for_them(served: Served) -> None:
    feed = served.server._serving.feed
    served.loop.advance(20)
    assert feed.read(0) is feed.read(0)
    assert feed.read(0).texts is feed.read(0).texts
    for start in range(100):
        feed.read(start % 20)
    assert len(feed._kept) <= 32


def test_the_server_that_goes_says_so_to_its_readers(served: Served) -> None:
    with served.socket("/events") as socket:
        told = messages(socket)
        next(told)
        served.server.close()
        assert [each for each in told if "closed" in each] == [{"closed": 1001}]


def test_the_run_that_is_followed_tells_its_name(served: Served) -> None:
    with served.socket("/events") as socket:
        assert socket.response is not None
        assert socket.response.headers["x-it2nb-run"] == served.session.run_id
    assert served.http.get("/events").headers["x-it2nb-run"] == served.session.run_id
