"""A training loop that moves only when a test says so."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from it2nb.core.control import StepControl, StopTraining
from it2nb.core.session import Session

#: Guards against a deadlock; nothing waits for it when all is well.
LIMIT_S = 20.0


class Loop:
    """Runs `session.step` in a thread, once for each `advance`; keeps what each step used."""

    def __init__(
        self,
        session: Session,
        read: Callable[[], Any] = lambda: None,
        act: Callable[[StepControl], Any] = lambda control: None,
        loss: Callable[[int], float] = lambda step: 1.0 / step,
    ) -> None:
        self.session = session
        self.used: list[Any] = []
        self.controls: list[StepControl] = []
        self._read = read
        self._act = act
        self._loss = loss
        self._tickets: SimpleQueue[bool] = SimpleQueue()
        self._passed = threading.Semaphore(0)
        self.thread = threading.Thread(target=self._run, name="training", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        with self.session.run():
            while self._tickets.get():
                self.used.append(self._read())  # the "optimizer step" uses this value
                control = self.session.step({"loss": self._loss(len(self.used))})
                self.controls.append(control)
                self._act(control)
                self._passed.release()
                if control.stop:
                    break

    def advance(self, steps: int = 1, *, wait: bool = True) -> None:
        """Let the loop do some steps; `wait` until it stands behind the last."""
        for _ in range(steps):
            self._tickets.put(True)
        if wait:
            for _ in range(steps):
                assert self._passed.acquire(timeout=LIMIT_S), "the loop did not come back"

    def came_back(self) -> None:
        """Wait until a step that was held has passed."""
        assert self._passed.acquire(timeout=LIMIT_S), "the loop did not come back"

    def finish(self) -> None:
        """Let the loop end by itself."""
        self._tickets.put(False)
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()


def until(true: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    wake = threading.Event()
    for _ in range(int(LIMIT_S / 0.002)):
        if true():
            return
        wake.wait(0.002)
    raise AssertionError("it did not come true")


__all__ = ["LIMIT_S", "Loop", "StopTraining", "until"]
