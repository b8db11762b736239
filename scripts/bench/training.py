"""A real training of about one or five milliseconds a step, with and without a session."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from it2nb.core.session import Session


class Training:
    """A small network on real threads of PyTorch: forward, backward, AdamW.

    Parameters
    ----------
    step_ms : float
        About how long one step takes; the batch is made to fit.
    """

    def __init__(self, step_ms: float) -> None:
        import torch

        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
        )
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.entropy = torch.nn.functional.cross_entropy
        size = 32
        while True:
            self.x, self.y = torch.randn(size, 64), torch.randint(10, (size,))
            self.seconds(None, 20)
            self.step_ms = self.seconds(None, 40) / 40 * 1e3
            if self.step_ms >= 0.9 * step_ms:
                return
            size = int(size * min(2.0, max(1.1, step_ms / self.step_ms)))

    def seconds(self, session: Session | None, steps: int) -> float:
        """Train that many steps and return how long it took."""
        began = time.perf_counter()
        for _ in range(steps):
            loss = self.entropy(self.model(self.x), self.y)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            value = loss.item()
            if session is not None:
                session.step({"loss": value, "log": -value, "half": value / 2, "twice": 2 * value})
        return time.perf_counter() - began

    def slow_downs(self, session: Session, blocks: int, block_s: float) -> list[float]:
        """Return how much longer it takes with the session, per cent, block by block.

        A block is without, with, with, without: what drifts hits both sides alike.
        """
        steps = max(20, int(block_s / 4 / (self.step_ms / 1e3)))
        found = []
        for _ in range(blocks):
            plain = self.seconds(None, steps)
            ours = self.seconds(session, 2 * steps)
            plain += self.seconds(None, steps)
            found.append((ours / plain - 1) * 100)
        return found


def describe(training: Training) -> dict[str, Any]:
    """Say what was trained."""
    return {"step_ms": round(training.step_ms, 2), "batch": len(training.x)}
