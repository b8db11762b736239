"""``it2nb.attach``: the panel, journal and verbs of a run in another process."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from it2nb.server.remote import RemoteSession

if TYPE_CHECKING:
    from it2nb.notebook.panel import Panel


class AttachedRun(RemoteSession):
    """A run in another process; as a cell's last expression it shows its panel.

    Parameters
    ----------
    url, token, timeout, actor
        As for `Client`.
    variable : str
        What this object is called in the notebook; the panel names it.
    """

    def __init__(
        self, url: str, token: str | None = None, *, variable: str = "run", **options: Any
    ) -> None:
        self._variable = variable
        self._panel: Panel | None = None
        self._showing = threading.Lock()
        super().__init__(url, token, **options)

    @property
    def panel(self) -> Panel:
        """The live panel, the same as for a run in this kernel."""
        from it2nb.notebook.panel import Panel

        with self._showing:
            if self._panel is None:
                self._panel = Panel(self, variable=self._variable)
            return self._panel

    def close(self) -> None:
        """Let go of the run, which goes on; the panel keeps its last state. Idempotent."""
        if self._panel is not None:
            self._panel.close()
        super().close()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self.panel)


def attach(
    url: str,
    token: str | None = None,
    *,
    timeout: float = 10.0,
    actor: str | None = None,
    variable: str = "run",
) -> AttachedRun:
    """Attach to a run that another process serves with ``session.serve()``.

    Parameters
    ----------
    url : str
        Of its server; a link that holds the token will do.
    token : str, optional
        Its secret; from the link, or from the environment's ``IT2NB_TOKEN``.
    timeout : float, seconds
        Until a call is given up.
    actor : str, optional
        Who asks, ``"human:anna"``; written into the run's journal.
    variable : str
        The name under which the panel refers to what is returned.

    Returns
    -------
    AttachedRun
        With `panel`, `journal`, `metrics`, `knobs`, `set`, `do`, `pause`, `stop`...

    Raises
    ------
    Unreachable
        If nobody answers there.
    Refused
        If the token is wrong.
    """
    return AttachedRun(url, token, timeout=timeout, actor=actor, variable=variable)
