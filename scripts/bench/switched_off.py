"""``IT2NB_OFF=1``: the cell runs in its place, with the same results and at the same speed."""

from __future__ import annotations

import os
import time

from scripts.bench.measured import Measured, of_the_median

STEPS = 200_000
LOOP = """
weight = 5.0
for step in range(STEPS):
    weight -= 1e-6 * (weight - 1)
"""


def measure(quick: bool) -> list[Measured]:
    """The same loop as a plain cell and under the magic that is switched off, in turn."""
    from IPython.core.interactiveshell import InteractiveShell

    os.environ["IT2NB_OFF"] = "1"
    shell = InteractiveShell.instance()
    shell.run_line_magic("load_ext", "it2nb")
    shell.user_ns["STEPS"] = STEPS
    more = []
    for _ in range(5 if quick else 25):
        plain_s, plain = _timed(shell, LOOP)
        off_s, off = _timed(shell, "%%it2 --watch weight\n" + LOOP.lstrip())
        assert plain == off
        more.append((off_s - plain_s) / STEPS * 1e6)
    value, low, high = of_the_median(more)
    return [Measured("switched off (`IT2NB_OFF=1`), a step; same results", value, "us", 0.1,
                     low, high, note="interval of the median")]  # fmt: skip


def _timed(shell: object, cell: str) -> tuple[float, float]:
    began = time.perf_counter()
    result = shell.run_cell(cell)  # type: ignore[attr-defined]
    took = time.perf_counter() - began
    result.raise_error()
    return took, float(shell.user_ns["weight"])  # type: ignore[attr-defined]
