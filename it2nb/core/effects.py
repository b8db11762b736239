"""What an applied change did to a metric: level and slope before and after, with intervals.

Before and after the change a straight line is fitted to the metric, both read at the moment of
the change, so that a curve that was falling anyway is no effect. The noise of a loss is
correlated from step to step: standard errors are widened by ``sqrt((1 + r) / (1 - r))`` with r
the residuals' lag-1 autocorrelation (first-order autoregressive errors; r corrected for its
bias in short series after Marriott & Pope, 1954), and the degrees of freedom fall likewise.
It is an estimate from one run, not an experiment: other things may have happened at that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from it2nb.core.metrics import MetricStore

Floats = NDArray[np.float64]

#: Values on either side below which nothing is claimed.
FEWEST = 8


@dataclass(frozen=True, slots=True)
class Change:
    """A knob that took another value: it holds for the steps after `step`."""

    action_id: str | None
    name: str
    before: Any
    after: Any
    step: int
    branch_id: int
    round: int


@dataclass(frozen=True, slots=True)
class Fit:
    """A line through one side: its value at the change, its slope, and how sure they are."""

    count: int
    level: float = np.nan
    slope: float = np.nan
    level_error: float = np.nan
    slope_error: float = np.nan
    freedom: float = 0.0


def changes_of(rows: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Read the changes from parsed ``knob_changed`` rows; one to the same value is none."""
    return [
        Change(
            row["action_id"],
            str(payload.get("name")),
            payload.get("before"),
            payload.get("value"),
            row["step"],
            row["branch_id"],
            row["round"],
        )
        for row in rows
        if (payload := row["payload"]).get("before") != payload.get("value")
    ]


def effect_columns(
    metrics: MetricStore, changes: Sequence[Change], names: Sequence[str], window: int
) -> dict[str, list[Any]]:
    """Estimate the effect of each change on each metric; columns as in `it2nb.frames`."""
    if window < FEWEST:
        raise ValueError(f"window={window}: at least {FEWEST} values are needed on either side")
    series: dict[tuple[str, int, int], tuple[Floats, Floats]] = {}
    found: list[dict[str, Any]] = []
    for change in changes:
        line = [c for c in changes if (c.round, c.branch_id) == (change.round, change.branch_id)]
        low = max((c.step for c in line if c.step < change.step), default=-np.inf)
        high = min((c.step for c in line if c.step > change.step), default=np.inf)
        beside = [c.name for c in line if c.step == change.step and c is not change]
        for name in names:
            key = name, change.branch_id, change.round
            if key not in series:
                series[key] = metrics.series(*key)
            steps, values = series[key]
            past = (steps > low) & (steps <= change.step)
            future = (steps > change.step) & (steps <= high)
            before = _fit(steps[past][-window:], values[past][-window:], change.step)
            after = _fit(steps[future][:window], values[future][:window], change.step)
            found.append(_effect(change, name, before, after, beside))
    return {name: [row[name] for row in found] for name in _COLUMNS}


_COLUMNS = (
    "action_id", "name", "before", "after", "step", "branch_id", "round", "metric",
    "n_before", "n_after", "level_before", "level_after", "level_change", "level_low",
    "level_high", "slope_before", "slope_after", "slope_change", "slope_low", "slope_high",
    "verdict", "slope_verdict", "remark",
)  # fmt: skip


def _effect(
    change: Change, metric: str, before: Fit, after: Fit, beside: Sequence[str]
) -> dict[str, Any]:
    remarks = []
    if beside:
        remarks.append(f"changed together with {', '.join(beside)}")
    if min(before.count, after.count) < FEWEST:
        remarks.append(f"fewer than {FEWEST} values on one side")
    level = _interval(before.level, after.level, before.level_error, after.level_error,
                      before.freedom + after.freedom)  # fmt: skip
    slope = _interval(before.slope, after.slope, before.slope_error, after.slope_error,
                      before.freedom + after.freedom)  # fmt: skip
    return {
        "action_id": change.action_id, "name": change.name, "before": change.before,
        "after": change.after, "step": change.step, "branch_id": change.branch_id,
        "round": change.round, "metric": metric,
        "n_before": before.count, "n_after": after.count,
        "level_before": before.level, "level_after": after.level,
        "level_change": level[0], "level_low": level[1], "level_high": level[2],
        "slope_before": before.slope, "slope_after": after.slope,
        "slope_change": slope[0], "slope_low": slope[1], "slope_high": slope[2],
        "verdict": _verdict(level), "slope_verdict": _verdict(slope),
        "remark": "; ".join(remarks),
    }  # fmt: skip


def _fit(steps: Floats, values: Floats, at: int) -> Fit:
    """Fit a line by least squares; non-finite values are left out."""
    good = np.isfinite(values)
    x, y = steps[good] - (at + 0.5), values[good]
    count = len(x)
    if count < FEWEST or x.min() == x.max():
        return Fit(count)
    middle = x.mean()
    spread = float(((x - middle) ** 2).sum())
    slope = float(((x - middle) * (y - y.mean())).sum() / spread)
    level = float(y.mean() - slope * middle)
    rest = y - level - slope * x
    power = float((rest**2).sum())
    r = float((rest[1:] * rest[:-1]).sum() / power) if power > 0 else 0.0
    r = min(0.9, max(0.0, r + (1 + 4 * r) / count))
    widen = (1 + r) / (1 - r)
    variance = power / (count - 2) * widen
    return Fit(
        count,
        level,
        slope,
        float(np.sqrt(variance * (1 / count + middle**2 / spread))),
        float(np.sqrt(variance / spread)),
        max(1.0, count / widen - 2),
    )


def _interval(
    before: float, after: float, error_before: float, error_after: float, freedom: float
) -> tuple[float, float, float]:
    """Return the change and the ends of its 95 % interval; NaN where there is no fit."""
    change = after - before
    if not np.isfinite(change):
        return np.nan, np.nan, np.nan
    half = student_975(freedom) * float(np.hypot(error_before, error_after))
    half += 1e-12 * (abs(before) + abs(after))  # rounding is no effect
    return change, change - half, change + half


def _verdict(interval: tuple[float, float, float]) -> str:
    _, low, high = interval
    if low > 0:
        return "higher"
    return "lower" if high < 0 else "unclear"


def student_975(freedom: float) -> float:
    """Return the 97.5 % point of Student's t, to three digits from 5 degrees of freedom on.

    Abramowitz & Stegun (1964), 26.7.5; a table below.
    """
    if freedom < 5:
        table = [12.706, 4.303, 3.182, 2.776, 2.571]
        return float(np.interp(freedom, [1.0, 2.0, 3.0, 4.0, 5.0], table))
    z = 1.959963985
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))
