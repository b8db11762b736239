"""A reverse proxy that shows a server under a prefix, as JupyterHub and Binder do."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import httpx
import uvicorn
import websockets

from it2nb.server.listener import listen
from it2nb.server.quiet import QuietServer
from tests.core.driving import LIMIT_S


class PrefixProxy:
    """Forwards what comes under `prefix`, by default without it.

    Parameters
    ----------
    port : int
        Of the server behind.
    prefix : str
    strip : bool
        Take the prefix off.
    host : str, optional
        The Host header that it sends on; that of the browser by default.
    sockets : bool
        Whether it lets WebSockets through.
    """

    def __init__(
        self,
        port: int,
        prefix: str,
        *,
        strip: bool = True,
        host: str | None = None,
        sockets: bool = True,
    ) -> None:
        self._to = f"127.0.0.1:{port}"
        self._prefix = prefix
        self._strip = strip
        self._host = host
        self._sockets = sockets
        #: Requests that the server behind did not answer.
        self.failed = 0
        self._sock = listen("127.0.0.1", 0)
        self.port: int = self._sock.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}{prefix}"
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            ws="websockets-sansio",
            loop="asyncio",
        )
        self._server = QuietServer(config)
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._up.wait(LIMIT_S)

    def _run(self) -> None:
        async def main() -> None:
            async def tell() -> None:
                while not self._server.started:
                    await asyncio.sleep(0.005)
                self._up.set()

            told = asyncio.ensure_future(tell())
            await self._server.serve(sockets=[self._sock])
            await told

        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(main())

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        path: str = scope["path"]
        if not path.startswith(self._prefix):
            await _plain(send, 404)
            return
        if self._strip:
            path = path[len(self._prefix) :] or "/"
        target = path + ("?" + scope["query_string"].decode() if scope["query_string"] else "")
        headers = {key.decode(): value.decode() for key, value in scope["headers"]}
        if self._host is not None:
            headers["host"] = self._host
        if scope["type"] == "http":
            await self._forward(scope, receive, send, target, headers)
        elif self._sockets:
            await self._bridge(receive, send, target, headers)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _forward(
        self, scope: Any, receive: Any, send: Any, target: str, headers: dict[str, str]
    ) -> None:
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        try:
            async with httpx.AsyncClient(timeout=LIMIT_S, trust_env=False) as client:
                answer = await client.request(
                    scope["method"], f"http://{self._to}{target}", headers=headers, content=body
                )
        except httpx.TransportError:
            self.failed += 1
            await _plain(send, 502)
            return
        kept = [(k, v) for k, v in answer.headers.raw if k.lower() != b"transfer-encoding"]
        await send({"type": "http.response.start", "status": answer.status_code, "headers": kept})
        await send({"type": "http.response.body", "body": answer.content})

    async def _bridge(self, receive: Any, send: Any, target: str, headers: dict[str, str]) -> None:
        passed = {k: v for k, v in headers.items() if k in ("authorization", "origin")}
        try:
            behind = await websockets.connect(
                f"ws://{self._to}{target}",
                additional_headers=passed,
                ping_interval=None,
                proxy=None,
                compression=None,
                max_size=None,
            )
        except websockets.InvalidStatus:
            await send({"type": "websocket.close", "code": 1008})
            return
        await receive()
        await send({"type": "websocket.accept"})

        async def up() -> None:
            while (message := await receive())["type"] == "websocket.receive":
                await behind.send(message.get("text") or message.get("bytes"))
            await behind.close()

        upward = asyncio.ensure_future(up())
        code = 1000
        try:
            async for message in behind:
                kind = "text" if isinstance(message, str) else "bytes"
                await send({"type": "websocket.send", kind: message})
            code = behind.close_code or 1000
        finally:
            upward.cancel()
            behind.transport.abort()
            with contextlib.suppress(Exception):
                await send({"type": "websocket.close", "code": code})

    def close(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join(LIMIT_S)
        self._sock.close()


async def _plain(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})
