"""The server's life; CASES C59: signals, event loops, and ports that are taken."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import warnings
import weakref
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from it2nb.core import lifetime
from it2nb.core.errors import PortTaken, ServerError
from it2nb.core.session import Session
from it2nb.server import quiet
from it2nb.server.limits import Limits
from it2nb.server.listener import free_port, listen
from it2nb.server.server import Server, serve, servers
from it2nb.session import TrainingSession
from tests.conftest import ROOT
from tests.core.driving import LIMIT_S, until

from .conftest import Served


def listeners(port: int) -> int:
    found = psutil.Process().net_connections(kind="tcp")
    return sum(1 for c in found if c.status == "LISTEN" and c.laddr.port == port)


def bind_plainly(port: int) -> None:
    """Take a port that nobody listens on; connections that are fading away are no matter."""
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(("127.0.0.1", port))
        sock.listen()


def test_serving_is_off_until_asked_for(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    session = TrainingSession(directory=tmp_path)
    assert not [s for s in servers() if s.session is session]
    assert set(threading.enumerate()) <= before
    with session.serve() as server:
        assert isinstance(server, Server)
        assert server.is_running
        assert server.port > 0
    assert not server.is_running
    session.end()


def test_a_cell_that_is_run_again_gets_the_live_server(served: Served) -> None:
    port = served.server.port
    for _ in range(3):
        assert serve(served.session) is served.server
        assert serve(served.session, port=port) is served.server
    assert listeners(port) == 1


def test_threads_that_ask_at_once_get_one_server_c59() -> None:
    session = Session(directory=None)
    ready = threading.Barrier(8)
    found: list[Server] = []

    def ask() -> None:
        ready.wait(LIMIT_S)
        found.append(serve(session))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(found) == 8
    assert len({id(server) for server in found}) == 1
    assert [each for each in servers() if each.session is session] == found[:1]
    found[0].close()
    session.end()


def test_another_port_moves_the_server(served: Served) -> None:
    old = served.server
    wanted = free_port("127.0.0.1")
    assert wanted is not None
    served.server = serve(served.session, port=wanted, token=old.token)
    assert served.server.port == wanted
    assert not old.is_running
    assert (listeners(old.port), listeners(wanted)) == (0, 1)
    headers = {"authorization": f"Bearer {old.token}"}
    assert httpx.get(f"{served.server.url}/state", headers=headers).status_code == 200


def test_a_taken_port_is_an_error_here_and_a_free_one_is_offered(served: Served) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PortTaken) as caught:
            serve(served.session, port=port)
        assert caught.value.port == port
        assert caught.value.free not in (None, port)
        assert str(port) in str(caught.value)
        assert f"session.serve(port={caught.value.free})" in str(caught.value)
    # The one that ran is still there.
    assert served.server.is_running
    assert served.http.get("/state").status_code == 200


@pytest.mark.parametrize("port", [-1, 65_536, 10**9, "8765", 87.5, None, True])
def test_a_port_that_is_none_is_told_so(served: Served, port: Any) -> None:
    with pytest.raises(ServerError, match=f"port={port!r} is no port"):
        serve(served.session, port=port)
    assert served.server.is_running


@pytest.mark.parametrize("token", ["", "short", 5, b"x" * 20, "x" * 20 + "\n", "é" * 20])
def test_a_token_that_is_none_is_told_so(served: Served, token: Any) -> None:
    # An empty one is mostly a variable that is not set: no other secret is put in its place.
    with pytest.raises(ServerError, match="token"):
        serve(served.session, token=token)
    assert served.server.is_running


def test_a_host_that_is_none_of_ours_is_told_so() -> None:
    with pytest.raises(ServerError, match="host"):
        listen("no such host", 0)
    with pytest.raises(ServerError):
        listen("192.0.2.1", 0)
    with pytest.raises(ServerError, match="host=None"):
        listen(None, 0)  # type: ignore[arg-type]


def test_a_bad_prefix_is_told_so(served: Served) -> None:
    for bad in ("user/x", "/a?b", "/a b"):
        with pytest.raises(ServerError, match="root_path"):
            serve(served.session, root_path=bad)


def test_after_a_close_the_port_is_free_at_once_whatever_was_open(served: Served) -> None:
    port = served.server.port
    served.http.get("/state")  # a connection that is kept
    idle = socket.create_connection(("127.0.0.1", port))
    half = socket.create_connection(("127.0.0.1", port))
    half.sendall(b"POST /actions HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12")
    with served.socket("/events") as reader:
        reader.recv(timeout=LIMIT_S)
        served.server.close()
        bind_plainly(port)
    assert listeners(port) == 0
    for each in (idle, half):
        each.close()
    again = serve(served.session, port=port)
    assert again.port == port
    again.close()
    again.close()


def test_thirty_servers_leave_nothing_behind(tmp_path: Path) -> None:
    session = Session(directory=tmp_path)
    serve(session).close()
    process = psutil.Process()
    threads, files = threading.active_count(), process.num_fds()
    for _ in range(30):
        with serve(session) as server:
            headers = {"authorization": f"Bearer {server.token}"}
            assert httpx.get(f"{server.url}/state", headers=headers).status_code == 200
    until(lambda: threading.active_count() == threads)
    assert process.num_fds() <= files + 2
    assert session.journal._subscriptions == ()
    session.end()


def test_a_run_that_was_served_is_freed_c82(tmp_path: Path) -> None:
    session = TrainingSession(directory=tmp_path)
    with serve(session) as server, session.run():
        headers = {"authorization": f"Bearer {server.token}"}
        assert httpx.get(f"{server.url}/state", headers=headers).status_code == 200
        session.step({"loss": 1.0})
    del server
    there = weakref.ref(session)
    lifetime._runs.remove(session)
    del session
    gc.collect()
    assert there() is None


def test_a_server_of_a_run_that_is_over_makes_room_for_the_next(tmp_path: Path) -> None:
    first, second = Session(directory=tmp_path), Session(directory=tmp_path)
    server = serve(first)
    first.end()
    following = serve(second, port=server.port)
    assert not server.is_running
    assert following.port == server.port
    following.close()
    second.end()


def test_a_live_run_keeps_its_port_from_another(served: Served, tmp_path: Path) -> None:
    other = Session(directory=tmp_path)
    with pytest.raises(PortTaken):
        serve(other, port=served.server.port)
    assert served.server.is_running
    other.end()


def test_it_works_inside_of_a_running_event_loop(served: Served) -> None:
    async def cell() -> int:
        server = serve(served.session)
        headers = {"authorization": f"Bearer {server.token}"}
        async with httpx.AsyncClient(headers=headers) as client:
            return (await client.get(f"{server.url}/state")).status_code

    assert asyncio.run(cell()) == 200


def test_signal_handlers_and_global_random_streams_stay_as_they_are(served: Served) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    state = random.getstate()
    with served.socket("/events") as reader:
        reader.recv(timeout=LIMIT_S)
        served.loop.advance(3)
        served.http.get("/state")
    served.server.close()
    assert random.getstate() == state
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers


def test_other_servers_of_the_process_keep_their_logs(served: Served) -> None:
    import logging

    access = logging.getLogger("uvicorn.access")
    assert access.propagate
    assert logging.getLogger("uvicorn.error").level == logging.NOTSET


def test_a_forked_child_lets_go_of_the_port(served: Served) -> None:
    served.http.get("/state")
    port = served.server.port
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # a DataLoader's worker: it lives on while the server goes
        code = 1
        try:
            assert not servers()
            os.close(write)
            os.read(read, 1)
            code = 0
        finally:
            os._exit(code)
    os.close(read)
    try:
        assert served.http.get("/state").status_code == 200, "the parent's server goes on"
        served.server.close()
        bind_plainly(port)
    finally:
        os.close(write)
        assert os.waitpid(child, 0)[1] == 0


def script(folder: Path, text: str) -> subprocess.Popen[str]:
    """Start a Python process that prints one JSON line when its server is up."""
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text))
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(path)], cwd=folder, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


SCRIPT = """
    import json, threading
    from it2nb.core.session import Session
    from it2nb.server.server import serve

    session = Session(directory="runs")
    server = serve(session)
    print(json.dumps({"url": server.url, "token": server.token}), flush=True)
"""


def test_a_script_that_falls_off_its_end_exits_though_clients_are_there(tmp_path: Path) -> None:
    process = script(
        tmp_path,
        SCRIPT
        + """
    go = threading.Event()
    session.action("leave")(lambda payload, session: go.set())
    while not go.wait(0.001):
        session.step({"loss": 1.0})
    """,
    )
    assert process.stdout is not None
    told = json.loads(process.stdout.readline())
    made = object.__new__(Served)
    made.server = _Elsewhere(told["url"], told["token"])  # type: ignore[assignment]
    with made.socket("/events?types=status_changed&types=action_result") as reader:
        assert json.loads(reader.recv(timeout=LIMIT_S))["payload"]["status"] == "running"
        with made.client() as http:
            http.post("/actions", json={"type": "leave", "payload": {}})
        seen = []
        with pytest.raises(Exception, match=r"100[01]"):
            while True:
                seen.append(json.loads(reader.recv(timeout=LIMIT_S)))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert err == ""
    assert [each["type"] for each in seen] == ["action_result", "status_changed"]
    assert seen[-1]["payload"]["status"] == "stopped"


class _Elsewhere:
    """As much of a Server as a client of it needs."""

    def __init__(self, url: str, token: str) -> None:
        self.url, self.token = url, token
        self.port = int(url.rpartition(":")[2])


def test_a_process_that_is_told_to_go_goes(tmp_path: Path) -> None:
    process = script(tmp_path, SCRIPT + "\n    threading.Event().wait()\n")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM, "its signals are its own"


def test_a_server_in_a_child_of_a_fork_is_refused(tmp_path: Path) -> None:
    session = Session(directory=tmp_path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            serve(session)
        except ServerError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    session.end()


def test_a_session_survives_a_copy_of_its_server(served: Served) -> None:
    until(lambda: served.server.is_running)
    assert "running" in repr(served.server)
    served.server.close()
    assert "closed" in repr(served.server)
    assert "closed" in served.server._repr_html_()


@pytest.mark.parametrize("turns", range(6))
def test_a_connection_that_comes_as_the_server_closes_is_closed_as_well(turns: int) -> None:
    sock = listen("127.0.0.1", 0)
    server = quiet.make(nobody, Limits())

    async def come_and_close() -> socket.socket:
        server.config.load()
        server.lifespan = server.config.lifespan_class(server.config)
        await server.startup(sockets=[sock])
        client = socket.create_connection(sock.getsockname(), LIMIT_S)
        for _ in range(turns):  # accepted, handed to its protocol, known to the server
            await asyncio.sleep(0)
        await server.shutdown([sock])
        return client

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            client = runner.run(come_and_close())
        gc.collect()
    assert [str(each.message) for each in told] == []
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
    assert not server.server_state.connections


async def nobody(scope: Any, receive: Any, send: Any) -> None:
    """Answer nothing."""
