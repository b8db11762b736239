"""CASES C60: on Binder and JupyterHub localhost does not reach the browser."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from it2nb.server.async_client import AsyncClient
from it2nb.server.client import Client
from it2nb.server.remote import RemoteSession
from it2nb.server.server import serve
from tests.core.driving import LIMIT_S, until

from .conftest import Served
from .proxy import PrefixProxy

PREFIX = "/user/x/proxy/8765"


@pytest.fixture
def proxied() -> Iterator[Callable[..., PrefixProxy]]:
    with ExitStack() as stack:

        def make(port: int, prefix: str = PREFIX, **options: object) -> PrefixProxy:
            proxy = PrefixProxy(port, prefix, **options)  # type: ignore[arg-type]
            stack.callback(proxy.close)
            return proxy

        yield make


def test_a_run_is_steered_and_followed_through_a_prefix(
    served: Served, proxied: Callable[..., PrefixProxy]
) -> None:
    proxy = proxied(served.server.port)
    with Client(proxy.url, served.server.token, timeout=LIMIT_S) as client:
        assert client.state()["status"] == "running"
        handle = client.submit("set_knob", {"name": "lr", "value": 0.2})
        served.loop.advance(5)
        assert handle.result(LIMIT_S).status == "applied"
        served.loop.finish()
        assert [e.seq for e in client.events()] == list(range(len(served.session.journal)))


def test_without_sockets_the_events_are_polled(
    served: Served, proxied: Callable[..., PrefixProxy]
) -> None:
    proxy = proxied(served.server.port, sockets=False)
    with Client(proxy.url, served.server.token, timeout=LIMIT_S) as client:
        events = client.events()
        first = next(events)
        served.loop.advance(10)
        served.loop.finish()
        assert [first.seq, *(e.seq for e in events)] == list(range(len(served.session.journal)))


def test_without_sockets_a_server_that_comes_back_is_followed_on(
    served: Served, proxied: Callable[..., PrefixProxy]
) -> None:
    port, token = served.server.port, served.server.token
    proxy = proxied(port, sockets=False)
    with RemoteSession(proxy.url, token, timeout=LIMIT_S) as remote:
        served.server.close()
        until(lambda: any("no connection" in text for text in remote.state().warnings))
        served.server = serve(served.session, port=port, token=token)
        until(lambda: remote.state().warnings == [])
        served.loop.advance(4)
        served.loop.finish()
        assert remote.wait(LIMIT_S) == "finished"
        assert remote.problem is None
        assert remote.journal.lines() == served.session.journal.lines()


def test_without_sockets_an_async_client_follows_on_as_well(
    served: Served, proxied: Callable[..., PrefixProxy]
) -> None:
    port, token = served.server.port, served.server.token
    proxy = proxied(port, sockets=False)

    async def main() -> list[int]:
        async with AsyncClient(proxy.url, token, timeout=LIMIT_S) as client:
            events = client.events()
            seqs = [(await anext(events)).seq]
            await asyncio.to_thread(served.server.close)
            asking = asyncio.ensure_future(anext(events))
            while not proxy.failed:
                await asyncio.sleep(0.005)
            served.server = await asyncio.to_thread(serve, served.session, port=port, token=token)
            await asyncio.to_thread(served.loop.finish)
            seqs.append((await asking).seq)
            return seqs + [event.seq async for event in events]

    assert asyncio.run(main()) == list(range(len(served.session.journal)))


def test_the_page_and_all_that_it_loads_stand_below_the_prefix(
    served: Served, proxied: Callable[..., PrefixProxy]
) -> None:
    proxy = proxied(served.server.port)
    page = httpx.get(f"{proxy.url}/", params={"token": served.server.token}).text
    links = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert links
    for link in links:
        assert not link.startswith(("/", "http")), link
    origin = f"http://127.0.0.1:{proxy.port}"
    address = proxy.url.replace("http", "ws", 1)
    with connect(
        f"{address}/panel?token={served.server.token}",
        origin=Origin(origin),
        proxy=None,
    ) as socket:
        socket.send(json.dumps({"v": 2, "kind": "hello", "client": "page"}))
        assert isinstance(socket.recv(timeout=LIMIT_S), bytes)


def test_built_scripts_name_no_host() -> None:
    static = files("it2nb.notebook").joinpath("static")
    for name in ("page.mjs", "panel.mjs", "loader.js"):
        script = static.joinpath(name)
        if not script.is_file():
            pytest.fail(f"{name} was not built: npm --prefix js run build")
        text = script.read_text()
        assert not re.search(r"localhost|127\.0\.0\.1", text), name


def test_a_proxy_that_leaves_the_prefix_on_is_told_of_it(
    tmp_path: Path, proxied: Callable[..., PrefixProxy]
) -> None:
    made = Served(tmp_path, root_path=PREFIX)
    try:
        proxy = proxied(made.server.port, strip=False)
        with Client(proxy.url, made.server.token, timeout=LIMIT_S) as client:
            assert client.state()["status"] == "running"
            assert client._http.get(f"{proxy.url}/openapi.json").json()["servers"] == [
                {"url": PREFIX}
            ]
        # One that takes it off works with the same server.
        with Client(proxied(made.server.port).url, made.server.token) as client:
            assert client.state()["status"] == "running"
        assert made.server.page.startswith(f"{PREFIX}/?ticket=")
    finally:
        made.close()


def test_on_a_hub_its_host_name_is_taken_and_the_link_is_a_path_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxied: Callable[..., PrefixProxy]
) -> None:
    monkeypatch.setenv("JUPYTERHUB_SERVICE_PREFIX", "/user/anna/")
    made = Served(tmp_path)
    try:
        port = made.server.port
        assert made.server.page.startswith(f"/user/anna/proxy/{port}/?ticket=")
        assert f'href="/user/anna/proxy/{port}/?ticket=' in made.server._repr_html_()
        proxy = proxied(port, f"/user/anna/proxy/{port}", host="hub.example")
        with Client(proxy.url, made.server.token) as client:
            assert client.state()["status"] == "running"
        origin = {"origin": "https://hub.example", "host": "hub.example"}
        assert made.http.get("/state", headers=origin).status_code == 200
        foreign = {"origin": "https://evil.example", "host": "hub.example"}
        assert made.http.get("/state", headers=foreign).status_code == 403
    finally:
        made.close()


def test_a_foreign_page_does_not_get_through_the_proxy(
    served: Served, proxied: Callable[..., PrefixProxy]
) -> None:
    proxy = proxied(served.server.port)
    answer = httpx.get(
        f"{proxy.url}/state",
        headers={
            "origin": "http://evil.example",
            "authorization": f"Bearer {served.server.token}",
        },
    )
    assert answer.status_code == 403
    with pytest.raises(InvalidStatus):
        connect(
            f"{proxy.url.replace('http', 'ws', 1)}/events?token={served.server.token}",
            origin=Origin("http://evil.example"),
            proxy=None,
        )
