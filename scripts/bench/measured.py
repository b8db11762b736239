"""A measure: a number with its goal, and what a user would have instead."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Any


@dataclass(frozen=True, slots=True)
class Measured:
    """One line of the table.

    Attributes
    ----------
    what : str
        The measure, in words.
    value : float
        In `unit`; for a slow-down per cent.
    goal : float or None
        At most; None where nothing is promised.
    unit : str
    low, high : float, optional
        Ends of the interval: of the middle half of the repetitions, or of the median where
        `note` says so.
    beside : dict
        What a user would have instead: its name and its number in the same unit, or why there
        is none.
    note : str
    """

    what: str
    value: float
    unit: str
    goal: float | None = None
    low: float | None = None
    high: float | None = None
    beside: dict[str, float | str] = field(default_factory=dict)
    note: str = ""

    @property
    def meets(self) -> bool | None:
        """Whether the goal is met; None without one."""
        return None if self.goal is None else self.value <= self.goal


def seconds_a_call(call: Callable[[int], Any], calls: int, repeats: int) -> list[float]:
    """Time `calls` calls in a row, `repeats` times; return seconds for one call, each."""
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        for index in range(calls):
            call(index)
        found.append((time.perf_counter() - began) / calls)
    return found


def side_by_side(
    candidates: dict[str, Callable[[int], Any]], calls: int, rounds: int
) -> dict[str, list[float]]:
    """Time candidates in turn, round after round, so that a busy moment hits them all.

    Returns
    -------
    dict of str to list of float
        Seconds for one call in each round, without what an empty loop takes.
    """
    found: dict[str, list[float]] = {name: [] for name in candidates}
    gc.collect()
    for _ in range(rounds):
        (empty,) = seconds_a_call(_nothing, calls, 1)
        for name, call in candidates.items():
            (each,) = seconds_a_call(call, calls, 1)
            found[name].append(max(0.0, each - empty))
    return found


def _nothing(index: int) -> None:
    pass


def middle(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and the ends of the middle half."""
    if len(values) < 2:
        return values[0], values[0], values[0]
    low, mid, high = quantiles(values, n=4)
    return mid, low, high


def of_the_median(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the median and an interval that holds the true one with at least 95 %.

    By order statistics: the binomial distribution of how many of n values lie below the median.
    """
    ordered = sorted(values)
    n = len(ordered)
    # Whole numbers, of 2**n: a float has no 0.5**n from n = 1075 on.
    share, weight, rank = 0, 1, 0
    while rank < n // 2 and 40 * (share + weight) <= 2**n:
        share += weight
        weight = weight * (n - rank) // (rank + 1)
        rank += 1
    low = max(rank - 1, 0)
    return median(ordered), ordered[low], ordered[n - 1 - low]


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return quantiles(values, n=20)[18] if len(values) > 1 else values[0]
