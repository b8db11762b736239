"""The token, and the door that every request passes before any of our routes sees it."""

from __future__ import annotations

import hmac
import os
import re
import secrets
import time
from asyncio import CancelledError
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote_plus

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketDisconnect

from it2nb.core.errors import ServerError
from it2nb.core.faults import ENDING, Fault, guard
from it2nb.server.answers import Refusal, refuse
from it2nb.server.hosts import Hosts
from it2nb.server.limits import Bucket, Limits

#: Where a token is looked for when none is given.
TOKEN_VARIABLE = "IT2NB_TOKEN"
#: Seconds that a one-time link stays good.
TICKET_S = 600.0
#: How a token stands in a path, for clients that can send no header.
_IN_PATH = re.compile(r"^/~([^/]*)")
_FINE = re.compile(r"[A-Za-z0-9_.~-]{16,200}")
_CLOSE = {"connection": "close"}


def new_token(given: str | None = None) -> str:
    """Return the given token, that of the environment, or a random one of 256 bits.

    Raises
    ------
    ServerError
        If the given one is short or holds characters that a URL would have to escape.
    """
    if given is not None and not isinstance(given, str):
        raise ServerError(f"token has to be a text, not {type(given).__name__}")
    chosen = given if given is not None else os.environ.get(TOKEN_VARIABLE, "")
    if given is None and not chosen:
        return secrets.token_urlsafe(32)
    if not _FINE.fullmatch(chosen):
        # Not the token itself: messages end up in notebooks.
        raise ServerError(
            f"the given token of {len(chosen)} characters can't be used: it takes 16 to 200 of "
            "A-Z a-z 0-9 _ . ~ -; leave it out for a random one"
        )
    return chosen


class Keys:
    """Knows the token, and the one-time tickets that stand for it in links.

    Parameters
    ----------
    token : str
    clock : callable
        Seconds, monotonic.
    """

    def __init__(self, token: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.token = token
        self._clock = clock
        self._tickets: dict[str, float] = {}

    def fits(self, given: str | None) -> bool:
        """Whether this is the token; takes the same time whatever is given."""
        offered = (given or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(offered, self.token.encode())

    def issue(self) -> str:
        """Return a ticket that opens the page once, within ten minutes. Any thread."""
        now = self._clock()
        for old in [t for t, until in list(self._tickets.items()) if until < now]:
            self._tickets.pop(old, None)
        ticket = secrets.token_urlsafe(24)
        self._tickets[ticket] = now + TICKET_S
        return ticket

    def redeem(self, ticket: str) -> bool:
        """Use up a ticket; False for one that is unknown, used or too old."""
        until = self._tickets.pop(ticket, None)
        return until is not None and until >= self._clock()

    def __repr__(self) -> str:
        return "<Keys>"


class Shield:
    """Lets nothing through that has no business here; everything behind it is authorised.

    Looks at Host, Origin, token, rate and size, in this order, and answers 403, 401, 429, 413.
    The token is taken out of the scope, so that no log of a library can show it.

    Parameters
    ----------
    app : ASGI application
    keys : Keys
    hosts : Hosts
    limits : Limits
    root_path : str
        The prefix under which a proxy shows us; taken off where the proxy left it on.
    report : callable
        Gets the Fault of a request that failed inside of us.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: Keys,
        hosts: Hosts,
        limits: Limits,
        root_path: str,
        report: Callable[[Fault], object],
    ) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._limits = limits
        self._root_path = root_path.rstrip("/")
        self._report = report
        self._rate = Bucket(limits.requests_per_s, limits.burst)
        self._sockets = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        self._strip_prefix(scope)
        headers = {key.decode("latin-1"): v.decode("latin-1") for key, v in scope["headers"]}
        try:
            self._admit(scope, headers)
        except Refusal as refusal:
            await refuse(scope, receive, send, refusal)
            return
        if scope["type"] == "websocket":
            self._sockets += 1
        try:
            await self._pass(scope, _bounded(receive, self._limits.body_bytes), send)
        finally:
            if scope["type"] == "websocket":
                self._sockets -= 1

    # ------------------------------------------------------------------------------- admission

    def _admit(self, scope: Scope, headers: dict[str, str]) -> None:
        """Raise the Refusal that a request deserves."""
        given = self._take_token(scope, headers)
        wrong = self._hosts.refuse_host(headers.get("host")) or self._hosts.refuse_origin(headers)
        if wrong is None and _is_foreign(scope, headers):
            wrong = "pages of another site may not use this server"
        if wrong is not None:
            raise Refusal(403, wrong)
        if not self._keys.fits(given):
            raise Refusal(
                401,
                "a valid token is needed: header 'Authorization: Bearer <token>', or '?token=' "
                "for the page and WebSockets; server.token has it",
                {"www-authenticate": "Bearer"},
            )
        if scope["type"] == "websocket" and self._sockets >= self._limits.sockets:
            raise Refusal(503, f"{self._sockets} sockets are open, more are not taken")
        wait_s = self._rate.take()
        if wait_s:
            raise Refusal(
                429,
                f"more than {self._limits.requests_per_s:g} requests a second; "
                f"try again in {wait_s:.2f} s",
                {"retry-after": str(int(wait_s) + 1), "x-it2nb-retry-s": f"{wait_s:.3f}"},
            )
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._limits.body_bytes:
            raise Refusal(413, too_long(self._limits.body_bytes), _CLOSE)

    def _take_token(self, scope: Scope, headers: dict[str, str]) -> str | None:
        """Find what was offered as the token, and take it out of the scope."""
        query = scope.get("query_string", b"").decode("latin-1")
        pairs = [_split(pair) for pair in query.split("&")] if query else []
        offered = [value for name, value in pairs if name == "token"]
        tickets = [value for name, value in pairs if name == "ticket"]
        if offered or tickets:
            kept = [p for p in query.split("&") if _split(p)[0] not in ("token", "ticket")]
            scope["query_string"] = "&".join(kept).encode("latin-1")
        path = _IN_PATH.match(scope["path"])
        if path is not None:
            scope["path"] = scope["path"][path.end() :] or "/"
            scope["raw_path"] = scope["path"].encode()
        page = scope["type"] == "websocket" or _is_page(scope)
        if tickets and _is_page(scope) and self._keys.redeem(tickets[-1]):
            return self._keys.token
        scheme, _, rest = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return rest.strip()
        if path is not None:
            return path[1]
        return offered[-1] if offered and page else None

    def _strip_prefix(self, scope: Scope) -> None:
        root = self._root_path
        if root and (scope["path"] == root or scope["path"].startswith(root + "/")):
            scope["path"] = scope["path"][len(root) :] or "/"
            scope["raw_path"] = scope["path"].encode()

    # --------------------------------------------------------------------------------- passing

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watch(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        answer = Refusal(500, _INSIDE, _CLOSE)
        with guard("server", self._report, passes=(*ENDING, CancelledError)):
            try:
                await self._app(scope, receive, watch)
            except (OSError, WebSocketDisconnect):
                return  # the other end is gone
            except Refusal as refusal:
                answer = refusal
            else:
                return
        if not started:
            await refuse(scope, receive, send, answer)


_INSIDE = "the server failed on this request; the run goes on, and the panel shows the fault"


def too_long(most: int) -> str:
    """Say that a body is too long."""
    return f"the body is longer than the {most:,} bytes that are taken"


def _is_page(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return False
    path: str = scope["path"]
    return path == "/" or path.startswith("/static/")


def _is_foreign(scope: Scope, headers: dict[str, str]) -> bool:
    """Whether a browser says that another site asks; a link to our page may be followed."""
    if headers.get("sec-fetch-site") != "cross-site":
        return False
    return not (_is_page(scope) and headers.get("sec-fetch-mode") == "navigate")


def _split(pair: str) -> tuple[str, str]:
    name, _, value = pair.partition("=")
    return unquote_plus(name), unquote_plus(value)


def _bounded(receive: Receive, most: int) -> Receive:
    """Count a body while it comes, for those that don't say how long it will be."""
    count = 0

    async def counted() -> Any:
        nonlocal count
        message = await receive()
        if message["type"] == "http.request":
            count += len(message.get("body", b""))
            if count > most:
                raise Refusal(413, too_long(most), _CLOSE)
        return message

    return counted
