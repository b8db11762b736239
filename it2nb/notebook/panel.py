"""The panel: a live view of one session, and the controls that steer it."""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from it2nb.core.control import ENDED
from it2nb.core.errors import It2nbError
from it2nb.core.faults import Fault, guard
from it2nb.notebook.static_view import StaticView, summary
from it2nb.panel.bridge import Bridge

if TYPE_CHECKING:
    from it2nb.notebook.panel_comms import Comms

#: Panels of this process by the cell under which they stand.
_by_cell: dict[str, Panel] = {}
#: The panel that a session has already.
_by_session: weakref.WeakKeyDictionary[Any, weakref.ref[Panel]] = weakref.WeakKeyDictionary()


class Panel:
    """A live panel of one session. Show it as a cell's last expression or with ``display``.

    Parameters
    ----------
    session : Session or the like
        With ``state()``, ``submit(action, source=)``, ``journal``, ``metrics``, ``status``.
    variable : str
        Python expression by which the session can be reached; the panel names it where it
        can't reach the kernel itself.
    heartbeat_s : float or None
        Seconds of silence after which a sign of life is sent while the run lives, which also
        keeps an idle culler from a run in the background; None sends none.

    Notes
    -----
    Make and show it on the main thread. Every view of it, in any cell, tab or side panel, is a
    view of the same two comms. What it sends goes through one daemon thread, which ends with
    the run.
    """

    def __init__(
        self,
        session: Any,
        *,
        variable: str = "it2nb.current()",
        heartbeat_s: float | None = 5.0,
    ) -> None:
        self.session = session
        self.variable = variable
        self.panel_id = os.urandom(8).hex()
        self._static = StaticView(session, variable, self.panel_id)
        self._comms: Comms | None = None
        self._bridge: Bridge | None = None
        self._heartbeat_s = heartbeat_s
        self._lock = threading.Lock()
        self._closed = False
        #: Why there is no live panel, if there is none.
        self.problem: str | None = None
        _by_session[session] = weakref.ref(self)

    @classmethod
    def of(cls, session: Any, **more: Any) -> Panel:
        """Return the session's open panel, so that another view costs no comm; else a new one."""
        known = _by_session.get(session)
        panel = None if known is None else known()
        if panel is None or panel._closed:
            panel = cls(session, **more)
        return panel

    # ------------------------------------------------------------------------------- showing

    def open(self) -> bool:
        """Open the comms, if that was not done yet; False where there can't be any."""
        with self._lock:
            if self._closed or self.problem is not None:
                return False
            if self._comms is None:
                with guard("panel") as fault:
                    self._open()
                if fault:
                    self.problem = fault.error
                    return False
            return True

    def _open(self) -> None:
        # Heavy, and needed by nobody who only steers from Python.
        from it2nb.notebook.panel_comms import Comms

        def receive(content: Any, buffers: list[bytes]) -> None:
            if self._bridge is not None:
                self._bridge.receive(content, buffers)

        def report(fault: Fault) -> None:
            if self._bridge is not None:
                self._bridge.report(fault)

        python = f"{self.variable}.set('lr', 3e-4), {self.variable}.pause()"
        comms = Comms(self.panel_id, python, receive, report)
        self._bridge = Bridge(
            self.session,
            comms.send,
            variable=self.variable,
            heartbeat_s=self._heartbeat_s,
            also=self._static.keep_up,
            picture=self._static.bundle,
        )
        self._comms = comms

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if self.open() and self._comms is not None:
            bundle = {
                "application/vnd.jupyter.widget-view+json": {
                    "version_major": 2,
                    "version_minor": 0,
                    "model_id": self._comms.stream.model_id,
                },
                # It stays in the file: nothing here that is true today alone.
                "text/plain": f"it2nb panel of {self.variable}, live where its kernel runs "
                "and the notebook is trusted. The run as it was last saved:",
            }
            display(bundle, raw=True)
            self._replace_older()
        self._static.show()
        if self._bridge is None and not self._closed:
            # Nobody else brings the picture up to date; a run elsewhere has no such call.
            when_ended = getattr(self.session, "when_ended", None)
            if when_ended is not None:
                when_ended(self._static.settle)

    def _replace_older(self) -> None:
        """Close the panel that stood under this cell before, if its run is over."""
        cell = _cell_id()
        if cell is None:
            return
        older = _by_cell.get(cell)
        _by_cell[cell] = self
        if older is not None and older is not self and older.session.status in ENDED:
            older.close()

    @property
    def widget(self) -> Any:
        """The ipywidgets widget, for layouts of your own.

        Raises
        ------
        It2nbError
            Where there is no live panel; the message says why.
        """
        if not self.open() or self._comms is None:
            why = self.problem or "it was closed"
            raise It2nbError(f"this panel has no widget: {why}; use {self.variable} from Python")
        return self._comms.stream

    def close(self) -> None:
        """End the panel: its thread, its subscription, its comms. The run goes on. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            bridge, comms = self._bridge, self._comms
            self._bridge = self._comms = None
        if bridge is not None:
            bridge.close()
        if comms is not None:
            comms.close()
        self._static.freeze()
        for cell, panel in list(_by_cell.items()):
            if panel is self:
                del _by_cell[cell]

    def __repr__(self) -> str:
        return summary(self.session, self.variable, problem=self.problem)

    # A copied namespace holds the same panel; the comms can't be copied.
    def __copy__(self) -> Panel:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Panel:
        return self


def _cell_id() -> str | None:
    """Return what the cell that runs is known by: its id, or its text in clients that tell none."""
    with guard("id of the cell"):
        from IPython import get_ipython

        shell = get_ipython()
        kernel = getattr(shell, "kernel", None)
        if kernel is not None:
            parent = kernel.get_parent("shell")
            cell = (parent.get("metadata") or {}).get("cellId")
            if cell is not None:
                return str(cell)
            code = (parent.get("content") or {}).get("code")
            if isinstance(code, str):
                return f"text {hashlib.sha256(code.encode('utf-8', 'replace')).hexdigest()}"
    return None
