"""uvicorn without its habits: no log line, no draw from the global random stream, no long end."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from it2nb.server.hosts import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Generator

#: Seconds that connections get to end in good order when the server closes.
GRACE_S = 0.5
#: Turns of the loop from a connection's acceptance until its protocol knows it, and one more.
ACCEPT_TURNS = 3
#: Seconds of silence after which the system asks whether the other end is still there.
KEEPALIVE_S = 30

# Under no name, so that nobody's configuration turns it on: its lines hold addresses with tokens.
_NOWHERE = logging.Logger("it2nb.server", logging.CRITICAL + 1)


class QuietHttp(H11Protocol):
    """HTTP; says nothing."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = self.access_logger = _NOWHERE
        self.access_log = False

    def connection_made(self, transport: Any) -> None:
        """Let the system find out when the other end has vanished."""
        keep_alive(transport.get_extra_info("socket"))
        super().connection_made(transport)


class QuietSocket(WebSocketsSansIOProtocol):
    """WebSockets; says nothing, and can be cut."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.logger = _NOWHERE
        self.conn.logger = _NOWHERE
        self.conn.debug = False

    async def run_asgi(self) -> None:
        """Offer the application a way to cut the connection."""
        extensions: dict[Any, Any] = self.scope["extensions"]
        extensions["it2nb.abort"] = {"call": lambda: cut_off(self.transport)}
        await super().run_asgi()

    def handle_close(self, event: Any) -> None:
        """Keep a page that was closed from keeping the port taken."""
        if self.client is not None and self.client[0] in LOOPBACK:
            # What was sent has arrived: nothing is on its way between us.
            leave_no_trace(self.transport)
        super().handle_close(event)


class QuietServer(uvicorn.Server):
    """A server that ends at once and leaves the process's signals alone."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave them to the kernel, or whoever has them."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Free the port, give connections a moment, then cut them."""
        await self._accept_no_more()
        for server in self.servers:
            server.close()
        for each in sockets or []:
            each.close()
        state = self.server_state
        for connection in list(state.connections):
            leave_no_trace(connection.transport)
            connection.shutdown()
        await _until(lambda: not state.connections and not state.tasks)
        for connection in list(state.connections):
            cut_off(connection.transport)
        for task in list(state.tasks):
            task.cancel()
        await _until(lambda: not state.connections and not state.tasks)
        await self.lifespan.shutdown()

    async def _accept_no_more(self) -> None:
        """Stop taking connections in, and get to know all that were.

        asyncio makes a connection known some turns after it was accepted. One that is under way
        when its server closes is never known, and stays open: whoever is behind it waits.
        """
        loop = asyncio.get_running_loop()
        for server in self.servers:
            for each in server.sockets:
                loop.remove_reader(each.fileno())
        for _ in range(ACCEPT_TURNS):
            await asyncio.sleep(0)


async def _until(true: Any) -> None:
    loop = asyncio.get_running_loop()
    end = loop.time() + GRACE_S
    while not true() and loop.time() < end:
        await asyncio.sleep(0.005)


def make(app: Any, limits: Any) -> QuietServer:
    """Make the server of an application."""
    config = uvicorn.Config(
        app,
        http=QuietHttp,
        ws=QuietSocket,
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        # These would change loggers that belong to the process. The access log is turned off
        # in QuietHttp: here it would be turned off for other servers too.
        log_config=None,
        log_level=None,
        access_log=True,
        proxy_headers=False,
        server_header=False,
        # Its payload comes from random's global stream, which belongs to the run.
        ws_ping_interval=None,
        ws_max_size=limits.socket_bytes,
        ws_per_message_deflate=False,
        timeout_keep_alive=30,
    )
    return QuietServer(config)


def keep_alive(sock: socket.socket | None) -> None:
    """Let the system find out when the other end has vanished."""
    if sock is None:
        return
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", KEEPALIVE_S), ("TCP_KEEPINTVL", 10),
                            ("TCP_KEEPCNT", 3)):  # fmt: skip
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def cut_off(transport: Any) -> None:
    """End a connection at once; what was not sent yet is thrown away."""
    leave_no_trace(transport)
    transport.abort()


def leave_no_trace(transport: Any) -> None:
    """Have a connection that ends be forgotten, which else keeps the port taken for a minute."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def leave_to_parent(server: uvicorn.Server, sockets: list[socket.socket]) -> None:
    """In a forked child: close the copies of the sockets, or the port would stay taken."""
    inherited = list(sockets)
    for connection in list(server.server_state.connections):
        sock = connection.transport.get_extra_info("socket")
        if sock is not None:
            inherited.append(sock)
    for each in inherited:
        with suppress(OSError):
            os.close(each.fileno())
