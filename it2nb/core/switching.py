"""The interpreter's switch interval while a run lives or its panel is open.

A cell that spins in pure Python gives the GIL back every 5 ms only, and a training step asks for
it dozens of times: a 0.5 ms step then takes half a second. At 0.1 ms it takes 5 to 11 ms, and an
idle kernel loses nothing. A click passes through three threads of the kernel on its way to the
step that applies it, and waits at each.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

INTERVAL_S = 1e-4


class SwitchInterval:
    """While entered, by any number of runs, the interval is `INTERVAL_S`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entered = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._entered == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(INTERVAL_S, self._before))
            self._entered += 1

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._entered -= 1
            # Whoever set another one meanwhile meant it.
            if self._entered == 0 and abs(sys.getswitchinterval() - INTERVAL_S) < 1e-6:
                sys.setswitchinterval(self._before)


#: Shared by all runs of this process.
switch_interval = SwitchInterval()
