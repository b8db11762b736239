"""A TCP line to a server that a test can cut."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.core.driving import LIMIT_S


class Line:
    """Passes bytes on between its port and another, until it is cut.

    Parameters
    ----------
    to : int
        Port of the server.
    """

    def __init__(self, to: int) -> None:
        self._to = to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        #: Connections so far.
        self.count = 0
        self._open: list[socket.socket] = []
        self._made: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._to), LIMIT_S)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                self.count += 1
                self._open += [near, far]
                self._made += [near, far]
            for pair in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pass, args=pair, daemon=True)
                thread.start()
                self._threads.append(thread)

    def _pass(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65_536):
                other.sendall(data)
        for each in (one, other):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Cut all connections, in the midst of whatever they carry."""
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            self._open.clear()

    def close(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(LIMIT_S)
        for each in self._made:
            each.close()
