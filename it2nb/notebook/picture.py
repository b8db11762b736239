"""A picture of a run: state, curves with their marks, knobs. Small, and drawn in milliseconds.

Drawn with Pillow rather than a plotting library: it is made on the panel's thread beside the
training, and in every kind of kernel, and must not touch the user's plotting state.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from it2nb.core.lineage import lineage
from it2nb.core.wire import KnobView, State
from it2nb.core.wire_panel import Mark
from it2nb.panel.rows import cut, number, rounds_text, short_label

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont

#: CSS pixels; the picture has twice as many, for sharp text. An odd number, since the live panel
#: hides its picture by it (js/src/styles/widths.css).
WIDTH = 861
SCALE = 2
PLOT_HEIGHT = 150
CURVES = 4
POINTS = 800
KNOBS = 24

INK, DIM, GRID = "#1d2125", "#59616b", "#e4e7ea"
#: The averaged curve, the raw one behind it, and those of abandoned branches and earlier rounds.
LINE, RAW, FADED = "#1976d2", "#bcd8f3", "#c9ced4"
#: Share of the old value that one point leaves in the average.
KEEP = 0.9
STATUS = {
    "running": "#2e7d32",
    "finished": "#1565c0",
    "failed": "#b3261e",
    "paused": "#8a5300",
    "stopped": "#8a5300",
}


def draw(state: State, metrics: Any, marks: Sequence[Mark] = ()) -> bytes:
    """Return a PNG of the run.

    Parameters
    ----------
    state : State
    metrics : MetricStore or the like
        With ``lines(name)`` and ``view(name, points=, branch_id=, round=)``.
    marks : sequence of Mark
        Lines across the curves.
    """
    from PIL import Image, ImageDraw

    names = (list(state.watch) or list(state.metrics))[:CURVES]
    names = [name for name in names if metrics.lines(name)]
    knobs = [knob for knob in state.knobs if not knob.hidden][:KNOBS]
    plot_rows = math.ceil(len(names) / 2)
    knob_rows = math.ceil(len(knobs) / 3)
    error_rows = 1 if state.error else 0
    height = 44 + error_rows * 20 + plot_rows * (PLOT_HEIGHT + 26) + knob_rows * 18 + 14
    image = Image.new("RGB", (WIDTH * SCALE, height * SCALE), "white")
    page = Page(ImageDraw.Draw(image))

    _head(page, state)
    top = 44.0
    if state.error:
        page.text(14, top, cut(state.error, 120), STATUS["failed"])
        top += 20
    for index, name in enumerate(names):
        wide = len(names) == 1
        left = 14 + (index % 2) * (WIDTH - 14) / 2
        width = WIDTH - 28 if wide else (WIDTH - 14) / 2 - 20
        y = top + (index // 2) * (PLOT_HEIGHT + 26)
        _plot(page, (left, y, width), name, state, metrics, marks)
    top += plot_rows * (PLOT_HEIGHT + 26) + 4
    for index, knob in enumerate(knobs):
        x = 14 + (index % 3) * (WIDTH - 28) / 3
        _knob(page, x, top + (index // 3) * 18, knob)

    packed = io.BytesIO()
    # Few colours are enough for lines and text, and a third of the size.
    image.quantize(48).save(packed, "PNG", optimize=True)
    return packed.getvalue()


class Page:
    """A drawing in CSS pixels."""

    def __init__(self, on: ImageDraw) -> None:
        self._on = on

    def text(
        self, x: float, y: float, text: str, color: str = INK, size: int = 12, anchor: str = "la"
    ) -> float:
        """Write a line and return the x of its end."""
        font = _font(size * SCALE)
        # Pillow's own font has no glyphs beyond Latin; the text beside the picture has it all.
        plain = "".join(c if c.isprintable() else " " for c in text)
        self._on.text((x * SCALE, y * SCALE), plain, fill=color, font=font, anchor=anchor)
        return x + self._on.textlength(plain, font=font) / SCALE

    def line(self, points: Sequence[tuple[float, float]], color: str, width: float = 1.0) -> None:
        """Draw a line through these points."""
        if len(points) > 1:
            scaled = [(x * SCALE, y * SCALE) for x, y in points]
            self._on.line(scaled, fill=color, width=max(1, round(width * SCALE)), joint="curve")


def _font(size: int) -> FreeTypeFont | Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _head(page: Page, state: State) -> None:
    x = page.text(14, 12, cut(state.title or state.run_id, 50), size=15) + 14
    x = page.text(x, 14, state.status, STATUS.get(state.status, DIM), size=13) + 14
    rounds = rounds_text(state)
    if rounds:
        x = page.text(x, 14, rounds, DIM, size=13) + 14
    of = "" if state.total_steps is None else f" / {state.total_steps:,}"
    x = page.text(x, 14, f"step {state.step:,}{of}", size=13) + 14
    page.text(x, 14, f"{state.elapsed_s:,.1f} s", DIM, size=13)
    share = 0.0 if not state.total_steps else min(1.0, state.step / state.total_steps)
    page.line([(0, 38), (WIDTH, 38)], GRID, 2)
    page.line([(0, 38), (WIDTH * share, 38)], LINE, 2)


def _plot(
    page: Page,
    place: tuple[float, float, float],
    name: str,
    state: State,
    metrics: Any,
    marks: Sequence[Mark],
) -> None:
    left, top, width = place
    lines = metrics.lines(name)
    # What an earlier round came to is not where this one is.
    here = any(round == state.round for round, _ in lines)
    latest = state.metrics.get(name) if here else None
    value = "-"
    if latest is not None:
        value = latest.nonfinite or ("-" if latest.value is None else f"{latest.value:.4g}")
    page.text(left, top, cut(name, 40))
    page.text(left + width, top, str(value), anchor="ra")
    box = (left + 40, top + 20, width - 40, PLOT_HEIGHT - 20.0)
    views = [
        metrics.view(name, points=POINTS, branch_id=branch, round=round)
        for round, branch in lines[-8:]
    ]
    scale = _Scale(views, box)
    scale.grid(page)
    # The steps of another round are not these.
    scale.mark(page, [mark for mark in marks if mark.round == state.round])
    # The past of the branch is the run's own line; what was left lies beneath it.
    own = {state.branch_id: math.inf} | dict(lineage(state.branches, state.branch_id))
    ends = [
        int(np.searchsorted(view.steps, own.get(view.branch_id, -1.0), side="right"))
        if view.round == state.round
        else 0
        for view in views
    ]
    for view, end in zip(views, ends, strict=True):
        left_at = max(0, end - 1) if end < len(view.steps) else end
        for stretch in scale.stretches(view.steps[left_at:], view.values[left_at:]):
            page.line(stretch, FADED, 1.0)
    for view, end in zip(views, ends, strict=True):
        for stretch in scale.stretches(view.steps[:end], view.values[:end]):
            page.line(stretch, RAW, 1.0)
    for view, end in zip(views, ends, strict=True):
        steps = view.steps[:end]
        for stretch in scale.stretches(steps, _averaged(steps, view.values[:end])):
            page.line(stretch, LINE, 1.6)


def _averaged(steps: Any, values: Any) -> Any:
    """Smooth a curve over steps as the panel does (js/src/series.ts); holes stay holes."""
    total = weight = 0.0
    last: float | None = None
    found = np.full(len(values), np.nan)
    for index, (step, value) in enumerate(zip(steps.tolist(), values.tolist(), strict=True)):
        if not math.isfinite(value):
            continue
        keep = KEEP ** max(1.0, 1.0 if last is None else step - last)
        total = keep * total + (1 - keep) * value
        weight = keep * weight + (1 - keep)
        last = step
        found[index] = total / weight
    return found


class _Scale:
    """From steps and values to the page."""

    def __init__(self, views: Sequence[Any], box: tuple[float, float, float, float]) -> None:
        self._left, self._top, self._width, self._height = box
        steps = np.concatenate([view.steps for view in views])
        values = np.concatenate([view.values for view in views])
        finite = values[np.isfinite(values)]
        self._low_x, self._high_x = float(steps.min()), float(steps.max())
        self._low = float(finite.min()) if len(finite) else 0.0
        self._high = float(finite.max()) if len(finite) else 1.0
        if self._high == self._low:
            self._low, self._high = self._low - 0.5, self._high + 0.5

    def _x(self, steps: Any) -> Any:
        span = (self._high_x - self._low_x) or 1.0
        return self._left + (steps - self._low_x) / span * self._width

    def stretches(self, steps: Any, values: Any) -> list[list[tuple[float, float]]]:
        """Return the curve's points, parted where a value is no number."""
        x = self._x(steps)
        # Halves first: the difference of two huge values may not be a number.
        half = self._high / 2 - self._low / 2
        y = self._top + self._height * ((self._high / 2 - values / 2) / half)
        parts: list[list[tuple[float, float]]] = [[]]
        for px, py, value in zip(x.tolist(), y.tolist(), values.tolist(), strict=True):
            if math.isfinite(value):
                parts[-1].append((px, py))
            elif parts[-1]:
                parts.append([])
        return [part for part in parts if part]

    def mark(self, page: Page, marks: Sequence[Mark]) -> None:
        """Draw a line at each mark, and its label where there is room."""
        free = self._left - 1.0
        for mark in marks:
            if not self._low_x <= mark.step <= self._high_x:
                continue
            x = float(self._x(mark.step))
            for y in range(int(self._top), int(self._top + self._height), 6):
                page.line([(x, y), (x, y + 3)], DIM, 0.5)
            if x > free and x < self._left + self._width - 60:
                free = page.text(x + 3, self._top - 2, short_label(mark.label, 16), DIM, size=9) + 6

    def grid(self, page: Page) -> None:
        """Draw three lines and say what they are."""
        for share in (0.0, 0.5, 1.0):
            y = self._top + self._height * share
            page.line([(self._left, y), (self._left + self._width, y)], GRID)
            value = self._high * (1 - share) + self._low * share
            page.text(self._left - 5, y, f"{value:.3g}", DIM, size=10, anchor="rm")
        bottom = self._top + self._height + 3
        page.text(self._left, bottom, f"{self._low_x:,.0f}", DIM, size=10)
        page.text(self._left + self._width, bottom, f"{self._high_x:,.0f}", DIM, 10, anchor="ra")


def _knob(page: Page, x: float, y: float, knob: KnobView) -> None:
    value = number(knob.value) if isinstance(knob.value, float) else str(knob.value)
    end = page.text(x, y, cut(knob.name, 24), DIM) + 8
    page.text(max(end, x + 110), y, cut(value, 20))
