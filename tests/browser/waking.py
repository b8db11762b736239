"""Wakes kernels that missed a message.

ipykernel 7.1 to 7.3 answer on the socket that they also listen on, behind the back of the stream
that listens: a request that arrives meanwhile is read only when something else happens on that
socket, such as the next connection (ipython/ipykernel issue 1554, mended in 7.4 by pull request
1529). A person restarts the kernel then; a test of the panel must not depend on it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import zmq

EVERY_S = 5.0
CONNECTED_S = 0.2


def wake(connection_file: Path) -> None:
    """Connect to a kernel once, which makes it look at all that arrived."""
    kernel = json.loads(connection_file.read_text())
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(f"{kernel['transport']}://{kernel['ip']}:{kernel['shell_port']}")
        time.sleep(CONNECTED_S)


@contextmanager
def kept_awake(runtime: Path) -> Iterator[None]:
    """While entered, connect now and then to every kernel with a file in ``runtime``."""
    over = threading.Event()

    def knock() -> None:
        while not over.wait(EVERY_S):
            for path in runtime.glob("kernel-*.json"):
                try:
                    wake(path)
                except (OSError, ValueError, KeyError):
                    continue  # half written, or gone with its kernel

    thread = threading.Thread(target=knock, name="wake-kernels", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
