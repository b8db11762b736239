"""The environment row of a run, and a sample of the machine once in a while."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any

from it2nb.core.environment import environment
from it2nb.core.faults import guard
from it2nb.core.resources import ResourceMeter

if TYPE_CHECKING:
    from it2nb.core.session import Session


#: How long the end of a run waits for its environment row, seconds.
WAIT_S = 3.0


class Surroundings:
    """A thread beside the training: one ``environment`` row, then ``resources`` rows.

    Parameters
    ----------
    session : Session
    every_s : float
        Seconds between two samples.
    """

    def __init__(self, session: Session, every_s: float = 30.0) -> None:
        self._session = session
        self._every_s = every_s
        self._over = threading.Event()
        self._described = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="it2nb-surroundings", daemon=True)

    def start(self) -> None:
        """Begin; ends with the session."""
        self._session.on_end(self.stop)
        self._thread.start()

    def stop(self) -> None:
        """Take no more samples; a short run waits until its environment is written down."""
        self._over.set()
        self._described.wait(WAIT_S)

    def _watch(self) -> None:
        session = self._session
        with guard("environment of the run", session.report):
            session.emit("environment", describe(session))
        self._described.set()
        meter = ResourceMeter()
        while not self._over.wait(self._every_s):
            with guard("resources of the run", session.report):
                sample: dict[str, Any] = meter.sample()
                sample["steps_per_s"] = session.steps_per_s
                session.emit("resources", sample)


def describe(session: Session) -> dict[str, Any]:
    """Describe Python, packages, machine, git state, seed, the run and the hash of its cell."""
    found = environment(seed=session.seed)
    cell = session.source_cell
    # What it was for: a stranger who finds the journal can't ask the session.
    found["run"] = {
        "title": session.title,
        "goal": None if session.goal is None else session.goal.describe(),
        "total_steps": session.total_steps,
        "context": session.context,
    }
    found["cell_sha256"] = None if cell is None else hashlib.sha256(cell.encode()).hexdigest()
    return found
