"""What the server says: strict JSON, and refusals with a reason."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from it2nb.core.strict import strict
from it2nb.core.wire import VERSION

JSON_TYPE = "application/json"
#: On everything that the server sends.
SAFE_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}


class Refusal(Exception):
    """Answer a request with an error.

    Parameters
    ----------
    status : int
        Of HTTP, 4xx or 5xx.
    detail : str
        What was wrong and what to do, for people.
    headers : mapping of str to str
    """

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] = {}) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers)

    def response(self) -> Response:
        """Return the answer: ``{"v": 2, "detail": ...}``."""
        return answer({"v": VERSION, "detail": self.detail}, self.status, self.headers)

    def page(self) -> Response:
        """Return the answer for somebody who opened the address in a browser."""
        detail = _NO_TOKEN if self.status == 401 else html.escape(self.detail)
        headers = {**SAFE_HEADERS, **self.headers, "content-security-policy": "default-src 'none'"}
        return Response(_PAGE.format(detail=detail), self.status, headers, "text/html")


_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>it2nb</title></head>
<body>
<h1>it2nb: the page of a run</h1>
{detail}
</body>
</html>
"""
_NO_TOKEN = """<p>This address alone does not open its panel, or the link was used before or is
older than ten minutes.</p>
<p>In the Python that serves the run, <code>print(server.page)</code> prints a new link, where
<code>server = session.serve()</code>; in a notebook, show <code>server</code> and follow the
link. Programs send <code>Authorization: Bearer</code> with <code>server.token</code>.</p>"""


def answer(content: Any, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """Answer with JSON in which every number is finite. Bytes are taken as they are."""
    if isinstance(content, bytes):
        body = content
    else:
        body = orjson.dumps(strict(content)[0])
    return Response(body, status, {**SAFE_HEADERS, **headers}, JSON_TYPE)


async def refuse(scope: Scope, receive: Receive, send: Send, refusal: Refusal) -> None:
    """Send a refusal, before a WebSocket is accepted too."""
    extensions = scope.get("extensions", {})
    if scope["type"] == "websocket" and "websocket.http.response" not in extensions:
        await send({"type": "websocket.close", "code": 1008, "reason": refusal.detail[:120]})
        return
    shown = refusal.page() if _is_shown(scope) else refusal.response()
    await shown(scope, receive, send)


def _is_shown(scope: Scope) -> bool:
    """Whether a browser asks for the page itself, and a person reads the answer."""
    accepted = dict(scope["headers"]).get(b"accept", b"")
    return scope["type"] == "http" and scope["path"] == "/" and b"text/html" in accepted
