"""What the server costs: ``make bench-server``.

POST to applied with one and eight clients, beside a FastAPI route that only echoes; a backlog of
100,000 events; and the step time of a run with nobody, forty readers, one that never reads, and
eight clients that ask without a pause.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable
from statistics import median, quantiles
from typing import Any

import fastapi
import httpx
import psutil
import uvicorn
from websockets.sync.client import connect

from it2nb.core.session import Session
from it2nb.server.client import Client
from it2nb.server.listener import listen
from it2nb.server.server import Server, serve

# Before numpy is loaded: its own threads only get in the way of what is measured.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

POSTS = 400
BACKLOG = 100_000
STEPS = 1_500
WORK_MS = 1.0


class Run:
    """A run whose step is a millisecond of work that lets the GIL go, and its server."""

    def __init__(self) -> None:
        self.values = {"lr": 0.1}
        self.session = Session(directory=tempfile.mkdtemp(), title="bench")
        self.session.register_knob(
            "lr", lambda: self.values["lr"], lambda v: self.values.update(lr=v), min=0.0, max=1.0
        )
        self.server: Server = serve(self.session)
        self.times: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        import numpy as np

        matrix = np.random.default_rng(0).random((100, 100))
        with self.session.run():
            step = 0
            while True:
                began = time.perf_counter()
                until = began + WORK_MS / 1e3
                while time.perf_counter() < until:
                    matrix @ matrix
                step += 1
                stop = self.session.step({"loss": 1.0 / step, "acc": 0.5}).stop
                self.times.append(time.perf_counter() - began)
                if stop:
                    return

    def step_ms(self) -> float:
        """Return the median of the next steps."""
        self.times.clear()
        while len(self.times) < STEPS:
            time.sleep(0.01)
        return median(self.times[:STEPS]) * 1e3

    def measure(self) -> dict[str, float]:
        """Return the median of the next steps, and the server's share of one core meanwhile."""
        began, used = time.perf_counter(), self._server_s()
        step_ms = self.step_ms()
        share = (self._server_s() - used) / (time.perf_counter() - began)
        return {"step_ms": round(step_ms, 3), "server_share": round(share, 3)}

    def _server_s(self) -> float:
        mine = self.server._thread.native_id
        threads = psutil.Process().threads()
        return sum(float(t.user_time + t.system_time) for t in threads if t.id == mine)

    def end(self) -> None:
        """End both."""
        self.session.stop()
        self._thread.join(10)
        self.server.close()


def spread(seconds: list[float]) -> dict[str, float]:
    """Return the median and the 95th percentile, ms."""
    marks = quantiles(seconds, n=20)
    return {"p50_ms": round(median(seconds) * 1e3, 2), "p95_ms": round(marks[18] * 1e3, 2)}


def timed(
    ask: Callable[[httpx.Client], Any], make: Callable[[], httpx.Client], clients: int
) -> Any:
    """Time `POSTS` calls of each of some clients that ask without a pause."""
    seconds: list[float] = []

    def go() -> None:
        with make() as http:
            ask(http)
            for _ in range(POSTS // clients):
                began = time.perf_counter()
                ask(http)
                seconds.append(time.perf_counter() - began)

    threads = [threading.Thread(target=go) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {**spread(seconds), "per_s": round(len(seconds) / (time.perf_counter() - began))}


def posts(run: Run) -> dict[str, Any]:
    """POST to applied."""
    headers = {"authorization": f"Bearer {run.server.token}"}
    body = {"type": "set_knob", "payload": {"name": "lr", "value": 0.2}}

    def make() -> httpx.Client:
        return httpx.Client(base_url=run.server.url, headers=headers, trust_env=False, timeout=30)

    def ask(http: httpx.Client) -> None:
        answer = http.post("/actions", params={"wait": 10}, json=body)
        assert answer.json()["status"] == "applied", answer.text

    return {f"post_to_applied_{n}": timed(ask, make, n) for n in (1, 8)}


def echoes() -> dict[str, Any]:
    """The same against a plain FastAPI route that gives the body back."""
    app = fastapi.FastAPI()

    @app.post("/echo")
    async def echo(body: dict[str, Any]) -> dict[str, Any]:
        return body

    sock = listen("127.0.0.1", 0)
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    thread = threading.Thread(target=lambda: server.run(sockets=[sock]), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"

    def ask(http: httpx.Client) -> None:
        assert http.post("/echo", json={"name": "lr", "value": 0.2}).status_code == 200

    def make() -> httpx.Client:
        return httpx.Client(base_url=url, trust_env=False, timeout=30)

    while not server.started:
        time.sleep(0.01)
    found = {f"fastapi_echo_{n}": timed(ask, make, n) for n in (1, 8)}
    server.should_exit = True
    thread.join(10)
    return found


def backlog() -> dict[str, Any]:
    """100,000 events to one who joins late: by the client, packed, and one a message."""
    with Session(directory=tempfile.mkdtemp()).run() as session:
        for step in range(BACKLOG):
            session.step({"loss": 1.0, "acc": float(step)})
    found = {}
    with serve(session) as server, Client(server.link) as client:
        began = time.perf_counter()
        count = sum(1 for _ in client.events())
        found["backlog_client_s"] = round(time.perf_counter() - began, 2)
        assert count == len(session.journal)
        for name, query in (("packed", "packed=true"), ("single", "since=0")):
            url = f"ws://127.0.0.1:{server.port}/events?{query}"
            headers = {"authorization": f"Bearer {server.token}"}
            began = time.perf_counter()
            with connect(url, additional_headers=headers, proxy=None, max_size=None) as socket:
                for _ in socket:
                    pass
            found[f"backlog_{name}_s"] = round(time.perf_counter() - began, 2)
    return found


#: Clients run in a process of their own: it is the server's cost that is measured.
READERS = """
    import asyncio, sys
    from websockets.asyncio.client import connect

    async def read(url, token, deaf):
        headers = {"authorization": f"Bearer {token}"}
        async with connect(url, additional_headers=headers, proxy=None, max_size=None,
                           ping_interval=None, compression=None) as socket:
            while True:
                await (asyncio.sleep(3600) if deaf else socket.recv())

    async def main(url, token, count, deaf):
        await asyncio.gather(*(read(url, token, deaf) for _ in range(count)))

    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == "deaf"))
"""
ASKERS = """
    import sys, threading
    from it2nb.server.client import Client

    def ask():
        with Client(sys.argv[1], sys.argv[2]) as client:
            while True:
                client.set("lr", 0.2)

    for _ in range(int(sys.argv[3])):
        threading.Thread(target=ask).start()
"""


def beside(run: Run, text: str, *arguments: str) -> dict[str, float]:
    """Measure the run while another process does this."""
    command = [sys.executable, "-c", textwrap.dedent(text), *arguments]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    time.sleep(3.0)
    try:
        assert process.poll() is None, "the other process ended"
        return run.measure()
    finally:
        process.kill()
        process.wait()


def slow_downs(run: Run) -> dict[str, Any]:
    """Step times of the run, beside readers and askers."""
    at = run.server._serving.feed.next_seq
    url = f"ws://127.0.0.1:{run.server.port}/events?after={at}"
    token = run.server.token
    return {
        "alone": run.measure(),
        "40_readers": beside(run, READERS, url, token, "40", "read"),
        "40_batch_readers": beside(run, READERS, url + "&batch=1", token, "40", "read"),
        "deaf_reader": beside(run, READERS, url, token, "1", "deaf"),
        "8_askers": beside(run, ASKERS, run.server.url, token, "8"),
        "alone_again": run.measure(),
    }


def main() -> None:
    """Print what was measured, a line each."""
    logging.disable(logging.CRITICAL)
    run = Run()
    for part in (lambda: posts(run), echoes, lambda: slow_downs(run), run.end, backlog):
        for name, value in (part() or {}).items():
            print(f"{name:<28}{json.dumps(value)}", flush=True)


if __name__ == "__main__":
    main()
