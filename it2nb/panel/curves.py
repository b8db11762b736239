"""Curves on their way to a panel: few points, and afterwards only what is new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np

from it2nb.core.wire_panel import Curve

#: Points of one curve when a view is born.
FULL = 2_000
#: New points of all curves in one batch, at most: 24 bytes each, of the 20 kB of an update.
FRESH = 600
#: Past lines of steps that are sent with a snapshot; older branches are left out.
LINES = 24


class CurveFeed:
    """Where each curve was left off, so that a batch carries what came since. Sender only.

    Parameters
    ----------
    metrics : MetricStore or the like
        With ``lines(name)`` and ``view(name, lo, hi, points, branch_id=, round=, axis=,
        start=)``.
    """

    def __init__(self, metrics: Any) -> None:
        self._metrics = metrics
        self._ends: dict[tuple[str, int, int], int] = {}
        self._names: set[str] = set()
        #: Those of which a page has been told: whatever begins later comes with the batches.
        self._told: set[str] = set()

    def follow(self, names: Iterable[str]) -> None:
        """Follow these metrics alone from now on; a new one begins with its `whole`."""
        wanted = set(names)
        self._ends = {key: end for key, end in self._ends.items() if key[0] in wanted}
        self._names = wanted
        self._told &= wanted

    def whole(self, names: Sequence[str], packer: Packer) -> None:
        """Pack all of these curves in `FULL` points each.

        A curve that is followed already may overlap with the next batch, which other pages get
        too: a page leaves out the points that it has, told by their time. A line that began since
        the last batch is new to the other pages.
        """
        for name in names:
            for round, branch_id in self._metrics.lines(name)[-LINES:]:
                view = self._metrics.view(name, points=FULL, branch_id=branch_id, round=round)
                if name not in self._told:
                    self._ends[name, round, branch_id] = view.end
                packer.add(view)
            self._told.add(name)

    def fresh(self, packer: Packer) -> None:
        """Pack what the followed curves have gained since the last time."""
        growing = [(name, line) for name in sorted(self._names) for line in self._growing(name)]
        # The line of before has a few points left to tell: it counts where there are more.
        most = max(8, FRESH // max(1, len(self._names), len(growing) - len(self._names)))
        for name, (round, branch_id) in growing:
            key = name, round, branch_id
            start = self._ends.get(key, 0)
            view = self._metrics.view(
                name, points=most, branch_id=branch_id, round=round, start=start
            )
            self._ends[key] = view.end
            packer.add(view)

    def _growing(self, name: str) -> list[tuple[int, int]]:
        """Return the last two lines of a metric, and all that began since the last batch."""
        lines: list[tuple[int, int]] = self._metrics.lines(name)[-LINES:]
        known = [at for at, line in enumerate(lines) if (name, *line) in self._ends]
        first = known[-1] if known else 0
        return lines[max(0, min(first, len(lines) - 2)) :]

    def window(
        self,
        names: Sequence[str],
        axis: Literal["step", "time"],
        bounds: tuple[float, float],
        points: int,
        packer: Packer,
    ) -> None:
        """Pack the stretch of these curves between two ends of the axis."""
        column = "step" if axis == "step" else "t"
        for name in names:
            for round, branch_id in self._metrics.lines(name)[-LINES:]:
                view = self._metrics.view(
                    name, *bounds, points, branch_id=branch_id, round=round, axis=column
                )
                packer.add(view)


class Packer:
    """The buffer of one message, and what stands where in it."""

    def __init__(self) -> None:
        self.curves: list[Curve] = []
        self._parts: list[Any] = []
        self._at = 0

    def add(self, view: Any) -> None:
        """Append one curve, unless it is empty."""
        count = len(view.steps)
        if count == 0:
            return
        self.curves.append(
            Curve(
                name=view.name,
                branch_id=view.branch_id,
                round=view.round,
                at=self._at,
                count=count,
                thinned=bool(view.thinned),
            )
        )
        self._parts.extend((view.steps, view.t, view.values))
        self._at += 3 * count

    @property
    def buffers(self) -> list[bytes]:
        """The numbers, little-endian float64; no buffer when there are none."""
        if not self._parts:
            return []
        return [np.concatenate(self._parts).astype("<f8", copy=False).tobytes()]
