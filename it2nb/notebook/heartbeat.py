"""Signs of life: a server that culls idle kernels must not take a silent run for an idle one.

A Jupyter server takes a kernel for idle that publishes nothing, however hard a thread of it works
(jupyterhub#1498). An update of an output that nobody shows is ignored by every client and counts
as activity.
"""

from __future__ import annotations

import threading

from it2nb.core.faults import guard
from it2nb.notebook.output import CellOutput

#: Culling timeouts are minutes; this is rare enough to cost nothing.
EVERY_S = 2.0


class Heartbeat:
    """Sends a sign of life while a run lives; a thread of its own."""

    def __init__(self, output: CellOutput, every_s: float = EVERY_S) -> None:
        self._output = output
        self._every_s = every_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="it2nb-heartbeat", daemon=True)

    def start(self) -> None:
        """Begin, where there is a kernel."""
        if self._output.kernel is not None:
            self._thread.start()

    def stop(self) -> None:
        """End; returns when the thread is gone, unless called on it. Any thread."""
        self._over.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _beat(self) -> None:
        content = {"data": {}, "metadata": {}, "transient": {"display_id": "it2nb-heartbeat"}}
        while not self._over.wait(self._every_s):
            with guard("heartbeat"):
                self._output.send("update_display_data", content)
