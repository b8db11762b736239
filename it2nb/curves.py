"""One metric as a picture in a file of its own: SVG, drawn without a library."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from it2nb.core.recording import Recording

if TYPE_CHECKING:
    from it2nb.core.curve import CurveView
    from it2nb.core.history import History

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 34, 30
POINTS = 1_500
#: What leaves no trace in a curve.
_UNMARKED = frozenset(
    {"pause", "resume", "note", "evaluate", "save_checkpoint", "list_checkpoints"}
)


def svg(journal: History, metric: str) -> str:
    """Draw one metric of a run over its steps, with a line wherever somebody changed it."""
    views = journal.metrics.views(metric, points=POINTS)
    steps = np.concatenate([view.steps for view in views]) if views else np.zeros(1)
    values = np.concatenate([view.values for view in views]) if views else np.zeros(1)
    scale = _Scale(steps, values[np.isfinite(values)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="11" role="img">',
        f"<title>{escape(metric)} of {escape(journal.run)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="13" fill="#1d2125">{escape(metric)}</text>',
        *scale.axes(),
    ]
    recording = Recording(journal)
    newest = (0, 0) if recording.last is None else (recording.last.round, recording.last.branch_id)
    for request in recording.requests:
        # The steps of another round are not these.
        if request.type not in _UNMARKED and request.place.round == newest[0]:
            parts.append(scale.mark(request.place.step, request.what))
    for view in views:
        colour = "#1976d2" if (view.round, view.branch_id) == newest else "#b9c0c8"
        parts.append(f'<path d="{scale.path(view)}" fill="none" stroke="{colour}"/>')
    return "\n".join([*parts, "</svg>", ""])


class _Scale:
    """From steps and values to the picture."""

    def __init__(self, steps: np.ndarray, values: np.ndarray) -> None:
        self._first, self._last = float(steps.min()), float(steps.max())
        self._low = float(values.min()) if len(values) else 0.0
        self._high = float(values.max()) if len(values) else 1.0
        if self._high == self._low:
            self._low, self._high = self._low - 0.5, self._high + 0.5

    def x(self, step: float) -> float:
        span = (self._last - self._first) or 1.0
        return LEFT + (step - self._first) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        # Halves first: the difference of two huge values may not be a number.
        share = (self._high / 2 - value / 2) / (self._high / 2 - self._low / 2)
        return TOP + share * (HEIGHT - TOP - BOTTOM)

    def path(self, view: CurveView) -> str:
        """Return the curve, parted where a value is no number."""
        parts, pen_down = [], False
        for step, value in zip(view.steps.tolist(), view.values.tolist(), strict=True):
            if not math.isfinite(value):
                pen_down = False
                continue
            parts.append(f"{'L' if pen_down else 'M'}{self.x(step):.1f} {self.y(value):.1f}")
            pen_down = True
        return "".join(parts)

    def axes(self) -> list[str]:
        """Return three lines across with their values, and the ends of the steps."""
        found = []
        for share in (0.0, 0.5, 1.0):
            value = self._high * (1 - share) + self._low * share
            y = TOP + share * (HEIGHT - TOP - BOTTOM)
            found.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e4e7ea"/>')
            found.append(
                f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end" fill="#59616b">'
                f"{value:.4g}</text>"
            )
        y = HEIGHT - 10
        for x, step, anchor in (
            (LEFT, self._first, "start"), (WIDTH - RIGHT, self._last, "end")
        ):  # fmt: skip
            found.append(
                f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="#59616b">{step:,.0f}</text>'
            )
        return found

    def mark(self, step: int, what: str) -> str:
        """Return a line at a change; it says what on hover."""
        x = self.x(step)
        return (
            f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#b35900" stroke-dasharray="3 3">'
            f"<title>{escape(what)}, after step {step:,}</title></path>"
        )
