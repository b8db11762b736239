"""Following the events of a run over as many connections as it takes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from it2nb.core.control import ENDED
from it2nb.core.errors import Refused, Unreachable
from it2nb.server import calls
from it2nb.server.calls import Address, Deadline
from it2nb.server.cursor import Cursor

if TYPE_CHECKING:
    from websockets.sync.client import ClientConnection

    from it2nb.server.client import Client

Rows = list[dict[str, Any]]

#: Seconds between two tries to get a connection back.
AGAIN_S = (0.05, 0.1, 0.2, 0.5, 1.0)
#: A reader that waits looks that often whether its client was closed, seconds.
LOOK_S = 0.5
#: The server holds a request for events that long, where no socket gets through, seconds.
POLL_S = 20.0
#: Of HTTP: the server is busy, or away behind a proxy that is not.
AWAY = frozenset({429, 500, 502, 503, 504})
#: Of a library that logs headers when it is told to: never this one's.
NOWHERE = logging.Logger("it2nb.client", logging.CRITICAL + 1)


class Broken(Exception):
    """The connection is gone, and may be got back."""


class NoSocket(Exception):
    """Something between us and the server lets no socket through."""


def follow(
    client: Client,
    cursor: Cursor,
    timeout: float | None,
    lost: Callable[[str], object] = lambda why: None,
) -> Iterator[Rows]:
    """Yield rows as they come; ends with the run, or when none came for `timeout` seconds.

    An empty list comes when there is a connection, and when there is one again. `lost` is called
    with the reason when there is none.

    Raises
    ------
    Unreachable
        If the connection could not be got back within ``client.retry_s`` seconds.
    Refused
        If the server does not let us.
    """
    tries, patience, silence = 0, Deadline(client.retry_s), Deadline(timeout)
    source = _stream
    while not client.closed.is_set() and silence.left > 0:
        is_new = True
        try:
            for rows in source(client, cursor, silence):
                patience.restart()
                if rows or is_new:
                    is_new = False
                    yield rows
                if rows:
                    tries = 0
                    silence.restart()
                elif silence.left <= 0:
                    break
            return
        except NoSocket:
            source = _poll
            continue
        except Broken as broken:
            lost(str(broken))
            if patience.left <= 0:
                raise calls.lost(client.address, str(broken)) from broken
        client.closed.wait(again_s(tries, silence))
        tries += 1


def again_s(tries: int, silence: Deadline) -> float:
    """Return the seconds until the next try."""
    return min(AGAIN_S[min(tries, len(AGAIN_S) - 1)], silence.left)


def _stream(client: Client, cursor: Cursor, silence: Deadline) -> Iterator[Rows]:
    """Yield rows from one socket, an empty list now and then; ends when the run is over."""
    from websockets.exceptions import ConnectionClosed

    with _connect(client, cursor) as socket, _leaving(socket):
        while not client.closed.is_set():
            yield []
            try:
                rows = cursor.rows(socket.recv(timeout=min(silence.left, LOOK_S)))
            except TimeoutError:
                continue
            except ConnectionClosed as err:
                if is_end(err):
                    return
                raise Broken(str(err)) from err
            if rows:
                yield rows


@contextmanager
def _leaving(socket: ClientConnection) -> Iterator[None]:
    """Leave without a farewell: it would wait behind all that is still on its way to us."""
    try:
        yield
    finally:
        with suppress(OSError):
            socket.socket.shutdown(SHUT_RDWR)


def _connect(client: Client, cursor: Cursor) -> ClientConnection:
    from websockets.exceptions import InvalidStatus, WebSocketException
    from websockets.sync.client import connect

    try:
        socket: ClientConnection = connect(stream_url(client.address, cursor), **options(client))
    except InvalidStatus as err:
        raise meaning_of(err.response.status_code, bytes(err.response.body or b"")) from err
    # ConnectionClosed, too: where the line is closed before the handshake's request is sent.
    except (OSError, WebSocketException, TimeoutError) as err:
        raise Broken(f"{type(err).__name__}: {err}".rstrip(": ")) from err
    response = socket.response
    cursor.belongs(None if response is None else response.headers.get("x-it2nb-run"))
    return socket


def _poll(client: Client, cursor: Cursor, silence: Deadline) -> Iterator[Rows]:
    """Yield rows of one request after another; ends when the run is over."""
    wait_s = 0.0  # the first answer tells that there is one
    while not client.closed.is_set():
        with breaking():
            rows, more = client._page(cursor, min(wait_s, silence.left))
        yield rows
        wait_s = POLL_S
        if rows or more:
            continue
        with breaking():
            if silence.left <= 0 or client.state().get("status") in ENDED:
                return


# -------------------------------------------------------------------------- for both clients


def stream_url(address: Address, cursor: Cursor) -> str:
    """Return where to read on."""
    return f"{address.socket('/events')}?{urlencode(cursor.stream_params, doseq=True)}"


def options(client: Any) -> dict[str, Any]:
    """Return the options of a socket, of either kind."""
    return {
        "additional_headers": client.address.headers,
        # A proxy of the environment can't reach this machine's own addresses.
        "proxy": None if client.address.is_local else True,
        "open_timeout": client.timeout,
        "close_timeout": 1.0,
        # Its payload would come from random's global stream, which belongs to the run.
        "ping_interval": None,
        "max_size": None,
        "compression": None,
        "logger": NOWHERE,
    }


def is_end(err: Any) -> bool:
    """Whether a socket was closed because the run is over."""
    return err.rcvd is not None and err.rcvd.code == 1000


@contextmanager
def breaking() -> Iterator[None]:
    """Turn what a request says of a server that is away into `Broken`: it may come back."""
    try:
        yield
    except Unreachable as err:
        raise Broken(f"{type(err.__cause__).__name__}: {err.__cause__}".rstrip(": ")) from err
    except Refused as err:
        if err.status in AWAY:
            raise Broken(f"status {err.status}") from err
        raise


def meaning_of(status: int, body: bytes) -> Exception:
    """Tell what the refusal of a socket means for whoever follows the events."""
    if status in AWAY:
        return Broken(f"status {status}")
    if calls.is_ours(body) and status in (401, 403, 422):
        return Refused(status, calls.reason_of(body))
    return NoSocket()
