"""Journals and the life of their process: the sealing thread, forks, the end."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import TYPE_CHECKING

from it2nb.core.faults import guard

if TYPE_CHECKING:
    from it2nb.core.journal import Journal

#: Pending metrics are sealed that often, seconds.
SEAL_EVERY_S = 0.25

# Not a WeakSet: a fork may come while another thread is in the midst of changing it.
_alive: dict[int, weakref.ref[Journal]] = {}


def hold(journal: Journal) -> None:
    """Take care of a new journal, without keeping it alive."""
    key = id(journal)
    _alive[key] = weakref.ref(journal, lambda _: _alive.pop(key, None))


def start(journal: Journal, stop: threading.Event) -> threading.Thread:
    """Start the thread that seals pending metrics; it ends with the journal."""
    thread = threading.Thread(
        target=_seal_now_and_then,
        args=(weakref.ref(journal), stop),
        name=f"it2nb journal {journal.run}",
        daemon=True,
    )
    thread.start()
    return thread


def _seal_now_and_then(ref: weakref.ref[Journal], stop: threading.Event) -> None:
    while not stop.wait(SEAL_EVERY_S):
        journal = ref()
        if journal is None:
            return
        with guard("sealing metrics"):
            journal.tick()
        del journal  # or this thread would keep it alive


def _after_fork() -> None:
    # A DataLoader worker inherits our locks in any state: touch none.
    for ref in list(_alive.values()):
        journal = ref()
        if journal is not None:
            journal.let_go()
    _alive.clear()


@atexit.register
def _at_exit() -> None:
    """Write what was recorded in the last quarter second."""
    for ref in list(_alive.values()):
        journal = ref()
        if journal is not None:
            with guard("sealing metrics at exit"):
                journal.seal()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
