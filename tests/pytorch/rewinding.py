"""A session over a small training, on the thread of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from it2nb.core.session import Session
from it2nb.core.wire import ActionResult
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.rewind import Rewind, install
from it2nb.pytorch.state import capture

from .small import Net, small_run


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now


class Run:
    """A training with a knob ``lr``, a session and everything that goes back."""

    def __init__(
        self,
        optimizer: str = "adamw",
        schedule: str = "none",
        *,
        directory: Path | None = None,
        bound: bool = True,
        **options: Any,
    ) -> None:
        self.live, self._update = small_run(optimizer, schedule)
        self.clock = Clock()
        self.session = Session(directory=directory, clock=self.clock)
        net = self.live.models["net"]
        assert isinstance(net, Net)
        self.net = net
        self.opt = self.live.optimizers["opt0"]
        if bound:
            self.session.bind(
                self.net,
                optimizers=list(self.live.optimizers.values()),
                schedulers=list(self.live.schedulers.values()),
            )
            self.session.bound.generators.update(self.live.generators)
        self.session.register_knob("lr", self._lr, self._set_lr, min=0.0, max=1.0)
        self.session.honours_control = False
        options.setdefault("snapshots", {"every": 10})
        self.rewind: Rewind = install(self.session, **options)
        self.losses: list[float] = []

    def _lr(self) -> float:
        return float(self.opt.param_groups[0]["lr"])

    def _set_lr(self, value: float) -> None:
        for group in self.opt.param_groups:
            group["lr"] = value

    def steps(self, count: int) -> list[float]:
        """Train; returns the losses."""
        done = []
        for _ in range(count):
            self.clock.now += 10.0
            done.append(self._update())
            self.session.step({"loss": done[-1]})
        self.losses += done
        return done

    def ask(self, action: str, source: str = "python", **payload: Any) -> ActionResult:
        """Ask, stand at a control point, return the result."""
        self.clock.now += 10.0
        handle = self.session.submit({"type": action, "payload": payload}, source=source)
        self.session.pump()
        return handle.result(0)

    def state(self) -> dict[str, Any]:
        """Copy the whole state."""
        return capture(self.live, Reducer(portable=False, clone=True))

    def rows(self, kind: str) -> list[dict[str, Any]]:
        """Payloads of the journal's rows of one type."""
        return [each.payload for each in self.session.journal.since(0) if each.type == kind]

    def steps_of(self, branch_id: int) -> list[int]:
        """Steps at which a branch has metrics."""
        frame = self.session.metrics.frame()
        return frame[frame["branch_id"] == branch_id]["step"].tolist()
