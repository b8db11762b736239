"""Signs of life: a server that culls idle kernels must not take a silent run for an idle one.

A Jupyter server takes a kernel for idle that publishes nothing, however hard a thread of it works
(jupyterhub#1498). An update of an output that nobody shows is ignored by every client and counts
as activity.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Culling timeouts are minutes; this is rare enough to cost nothing.
EVERY_S = 2.0

#: Sends a message of this type with this content; False where there is nobody to send to.
Send = Callable[[str, dict[str, Any]], object]


class Heartbeat:
    """Sends a sign of life while a run lives; a thread of its own.

    Parameters
    ----------
    send : callable
        See `Send`.
    every_s : float, seconds
    """

    def __init__(self, send: Send, every_s: float = EVERY_S) -> None:
        self._send = send
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="it2nb-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def tell(self) -> None:
        """Let it end by itself, soon. Any thread."""
        self._over.set()

    def stop(self) -> None:
        """End; returns when the thread is gone, unless called on it. Any thread."""
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _beat(self) -> None:
        content = {"data": {}, "metadata": {}, "transient": {"display_id": "it2nb-heartbeat"}}
        while not self._over.wait(self._every_s):
            with guard("heartbeat"):
                self._send("update_display_data", content)


def publish(kernel: Any, header: dict[str, Any], kind: str, content: dict[str, Any]) -> bool:
    """Publish a message under the cell of this header; False without a kernel. Any thread."""
    if kernel is None or kernel.session is None or kernel.iopub_socket is None:
        return False
    topic = f"kernel.{kernel.ident}.{kind}".encode()
    kernel.session.send(kernel.iopub_socket, kind, content, parent={"header": header}, ident=topic)
    return True


def beat_beside(session: Session) -> None:
    """Give signs of life for a run that no ``%%it2`` cell has, where it runs in a kernel.

    They end with the run, or when nobody has it any more. Any thread.
    """
    # Looked up, not imported: a script has neither, and needs neither.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    # Servers count what comes of a cell, and nothing else: the cell that ran last will do.
    header = dict((kernel.get_parent() or {}).get("header") or {})
    beat = Heartbeat(partial(publish, kernel, header))
    weakref.finalize(session, beat.tell).atexit = False
    session.on_end(beat.stop)
    beat.start()
