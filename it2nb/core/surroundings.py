"""The environment row of a run, and a sample of the machine once in a while."""

from __future__ import annotations

import hashlib
import threading
import weakref
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
        self._over = over = threading.Event()
        self._described = threading.Event()
        # The thread must not keep a run that nobody has any more, nor its model.
        ref = weakref.ref(session, lambda _: over.set())
        self._thread = threading.Thread(
            target=_watch, args=(ref, over, self._described, every_s),
            name="it2nb-surroundings", daemon=True,
        )  # fmt: skip
        session.on_end(self.stop)

    def start(self) -> None:
        """Begin; ends with the session, or when nobody has it any more."""
        self._thread.start()

    def stop(self) -> None:
        """Take no more samples; a short run waits until its environment is written down."""
        self._over.set()
        self._described.wait(WAIT_S)


def _watch(
    ref: weakref.ref[Session], over: threading.Event, described: threading.Event, every_s: float
) -> None:
    session = ref()
    if session is not None:
        with guard("environment of the run", session.report):
            session.emit("environment", describe(session))
    described.set()
    meter = ResourceMeter()
    del session
    while not over.wait(every_s):
        session = ref()
        if session is None:
            return
        with guard("resources of the run", session.report):
            sample: dict[str, Any] = meter.sample()
            sample["steps_per_s"] = session.steps_per_s
            session.emit("resources", sample)
        del session


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
