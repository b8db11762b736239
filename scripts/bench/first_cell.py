"""The first ``%%it2`` cell in a real kernel: from its start until the prompt is free again."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from scripts.bench.measured import Measured, middle
from scripts.kernel_client import KernelClient

BEFORE = """
import torch
model = torch.nn.Linear(4, 1)
opt = torch.optim.AdamW(model.parameters(), lr=0.01)
data = [torch.randn(8, 4) for _ in range(2_000)]
"""
CELL = """%%it2 --watch loss --no-wait
for x in data:
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    opt.zero_grad()
"""


def measure(quick: bool) -> list[Measured]:
    """A kernel of its own for each; a second's rest before the cell, as a person would take."""
    times = [asyncio.run(_first_cell_s()) * 1e3 for _ in range(2 if quick else 7)]
    value, low, high = middle(times)
    return [
        Measured("first `%%it2` cell, until the prompt is free", value, "ms", low=low, high=high)
    ]


async def _first_cell_s() -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with KernelClient(Path(folder)) as kernel:
            for code in ("%load_ext it2nb", BEFORE):
                await kernel.execute(code, [])
            await asyncio.sleep(1.0)
            began = time.perf_counter()
            await kernel.execute(CELL, [])
            took = time.perf_counter() - began
            await kernel.execute("%it2 stop", [])
            return took
