"""Wakes kernels that missed a message.

ipykernel 7.1 to 7.3 answer on the socket that they also listen on, behind the back of the stream
that listens: a request that arrives meanwhile is read only when something else happens on that
socket, such as the next connection (ipython/ipykernel issue 1554, mended in 7.4 by pull request
1529). A person restarts the kernel then; a test of the panel must not depend on it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.blocking.client import BlockingKernelClient

EVERY_S = 5.0
ANSWER_S = 2.0


def wake(connection_file: Path) -> None:
    """Connect to a kernel once, which makes it look at all that arrived."""
    client = BlockingKernelClient(connection_file=str(connection_file))
    client.load_connection_file()
    client.start_channels(iopub=False, stdin=False, hb=False)
    try:
        client.kernel_info(reply=True, timeout=ANSWER_S)
    except TimeoutError:
        pass  # a busy kernel answers later; that it was asked is what counts
    finally:
        client.stop_channels()


@contextmanager
def kept_awake(runtime: Path) -> Iterator[None]:
    """While entered, connect now and then to every kernel with a file in ``runtime``."""
    over = threading.Event()

    def knock() -> None:
        while not over.wait(EVERY_S):
            for path in runtime.glob("kernel-*.json"):
                try:
                    wake(path)
                except (OSError, ValueError):
                    continue  # half written, or gone with its kernel

    thread = threading.Thread(target=knock, name="wake-kernels", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
