"""A server that speaks the wire of the paper's release, and nothing more.

``GET /state``; ``POST /actions`` with ``{type, payload, source}``, answered by ``{"id"}``;
``GET /events?since=`` with ``{"events": [...]}``; ``WS /events?since=`` with one event a message.
No token, no way to ask for a result but the events, fields of the paper's events alone.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import Any
from urllib.parse import parse_qs

import uvicorn

from it2nb.server.listener import listen
from it2nb.server.quiet import QuietServer
from tests.core.driving import LIMIT_S


class Peer:
    """Runs it in a thread."""

    def __init__(self, *, sockets: bool) -> None:
        self.state = {"status": "running", "step": 7, "knobs": {"lr": {"value": 0.1}}}
        self.asked: list[dict[str, Any]] = []
        self.events: list[dict[str, Any]] = []
        self._tell("status_changed", {"status": "running"})
        self._sockets = sockets
        self._sock = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._sock.getsockname()[1]}"
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            lifespan="off",
            log_config=None,
            ws="websockets-sansio",
            loop="asyncio",
        )
        self._server = QuietServer(config)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._server.serve(sockets=[self._sock]))

    def _tell(self, type: str, payload: dict[str, Any]) -> None:
        seq = len(self.events)
        self.events.append(
            {"seq": seq, "type": type, "payload": payload, "ts": time.time(),
             "branch_id": 0, "round": 0}
        )  # fmt: skip

    def _act(self, asked: dict[str, Any]) -> str:
        self.asked.append(asked)
        made = f"a{len(self.asked)}"
        ok = asked["type"] == "set_knob"
        if ok:
            self._tell("knob_changed", asked["payload"])
        error = None if ok else "no such action"
        told = {"id": made, "type": asked["type"], "ok": ok, "data": None, "error": error}
        self._tell("action_result", told)
        return made

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        query = parse_qs(scope["query_string"].decode())
        since = int(query.get("since", ["0"])[0])
        if scope["type"] == "websocket":
            await self._stream(receive, send, since)
            return
        route = scope["method"], scope["path"]
        if route == ("GET", "/state"):
            await self._answer(send, 200, self.state)
        elif route == ("GET", "/events"):
            await self._answer(send, 200, {"events": self.events[since:]})
        elif route == ("POST", "/actions"):
            body, more = b"", True
            while more:
                message = await receive()
                body, more = body + message["body"], message["more_body"]
            await self._answer(send, 200, {"id": self._act(json.loads(body))})
        else:
            await self._answer(send, 404, {"detail": "Not Found"})

    async def _stream(self, receive: Any, send: Any, since: int) -> None:
        if not self._sockets:
            await send({"type": "websocket.close", "code": 1008})
            return
        await send({"type": "websocket.accept"})
        listening = asyncio.ensure_future(self._gone(receive))
        while not listening.done():
            while since < len(self.events):
                text = json.dumps(self.events[since])
                await send({"type": "websocket.send", "text": text})
                since += 1
            await asyncio.sleep(0.005)

    async def _gone(self, receive: Any) -> None:
        while (await receive())["type"] != "websocket.disconnect":
            pass

    async def _answer(self, send: Any, status: int, content: Any) -> None:
        head = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": json.dumps(content).encode()})

    def close(self) -> None:
        """End it."""
        self._server.should_exit = True
        self._thread.join(LIMIT_S)
        self._sock.close()
