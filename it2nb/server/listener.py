"""The listening socket: taken in the calling thread, so that its errors are seen in the cell."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

from it2nb.core.errors import PortTaken, ServerError

BACKLOG = 128


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on host and port; port 0 takes a free one.

    Raises
    ------
    PortTaken
        If another socket listens there; offers a free port.
    ServerError
        If the host is none of this machine's, or the port may not be used.
    """
    check_place(host, port)
    family, address = _address(host, port)
    # asyncio turns Nagle's delay off only where the protocol is named: 40 ms an answer else.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            # The port is free at once after a close; two listeners are refused all the same.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as err:
        sock.close()
        raise _explain(err, host, port) from err
    sock.setblocking(False)
    return sock


def check_place(host: object, port: object) -> None:
    """Refuse what is no host and no port, before anything is asked of the network.

    Raises
    ------
    ServerError
        With what was given and what can be.
    """
    if type(port) is not int or not 0 <= port < 65_536:
        raise ServerError(f"port={port!r} is no port: a whole number, 0 to 65535, 0 for a free one")
    if not isinstance(host, str):
        raise ServerError(f"host={host!r} is no name and no address; try '127.0.0.1'")


def _address(host: str, port: int) -> tuple[socket.AddressFamily, Any]:
    try:
        found = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
    except OSError as err:
        raise ServerError(f"host={host!r} is not known ({err}); try '127.0.0.1'") from err
    family, _, _, _, address = found[0]
    return family, address


def _explain(err: OSError, host: str, port: int) -> ServerError:
    if err.errno == errno.EADDRINUSE:
        free = free_port(host)
        offer = "" if free is None else f"; port {free} is free: session.serve(port={free})"
        return PortTaken(
            f"port {port} on {host} is taken by another program{offer}, and port=0 takes any",
            port=port,
            free=free,
        )
    return ServerError(f"can't listen on {host}:{port} ({err.strerror}); try port=0")


def free_port(host: str) -> int | None:
    """Return a port that was free a moment ago; None when there is none."""
    try:
        family, address = _address(host, 0)
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind(address)
            return int(sock.getsockname()[1])
    except (OSError, ServerError):
        return None
