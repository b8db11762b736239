"""One update of a plot as others do it: Plotly's FigureWidget and livelossplot."""

from __future__ import annotations

import contextlib
import importlib
import io
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from it2nb.core.session import Session
from it2nb.panel.bridge import Bridge
from scripts.bench.measured import Measured, middle, seconds_a_call

POINTS = (10**3, 10**5, 10**7)
#: FigureWidget sends every point each time: 10^7 of them are left out.
THEIRS = (10**3, 10**5)


def measure(quick: bool) -> list[Measured]:
    """The kernel's side of one update at three lengths: made ready to be sent."""
    repeats = 3 if quick else 15
    ours = {points: _ours(points, repeats) for points in POINTS}
    ratio = max(ours.values()) / ours[POINTS[0]]
    beside: dict[str, float | str] = {}
    for name, make in (("FigureWidget", _figure_widget), ("livelossplot", _livelossplot)):
        try:
            times = [make(points, repeats) for points in THEIRS]
            beside[f"{name}, 10^5 against 10^3"] = times[1] / times[0]
        except ImportError as err:
            beside[name] = f"not installed ({err.name})"
    note = ", ".join(f"{points:,} points: {ms:.2f} ms" for points, ms in ours.items())
    return [Measured("panel update in the kernel, longest curve against shortest", ratio, "x", 1.2,
                     beside=beside, note=note)]  # fmt: skip


def _ours(points: int, repeats: int) -> float:
    names = ["loss", "acc", "lr", "norm"]
    session = Session(directory=None, title="grown", watch=names)
    session.step(dict.fromkeys(names, 1.0))
    rng = np.random.default_rng(0)
    for first in range(2, points, 1_000_000):
        steps = np.arange(first, min(points, first + 1_000_000), dtype=float)
        rows = np.column_stack([steps, steps * 1e-3, *(rng.random(len(steps)) for _ in names)])
        session.metrics.extend(names, rows, branch_id=0, round=0)
    heard = threading.Event()

    def send(content: dict[str, Any], buffers: list[bytes]) -> bool:
        heard.set()
        return True

    bridge = Bridge(session, send, heartbeat_s=None)
    bridge.receive({"v": 2, "kind": "hello", "client": "bench"})
    heard.wait(60)
    bridge.close()
    feed = bridge._feed
    feed.follow(names)
    feed.batch()
    times = []
    for turn in range(repeats * 4):
        for step in range(40):
            session.step(dict.fromkeys(names, 0.5), step=points + turn * 40 + step)
        times += seconds_a_call(lambda _: feed.batch(), 1, 1)
    session.finish()
    return middle(times)[0] * 1e3


def _figure_widget(points: int, repeats: int) -> float:
    import plotly.graph_objects as go

    figure = go.FigureWidget([go.Scattergl(y=np.zeros(points)) for _ in range(4)])

    def update(index: int) -> None:
        with figure.batch_update():
            for trace in figure.data:
                trace.y = np.full(points, float(index))

    return middle(seconds_a_call(update, 1, repeats))[0] * 1e3


def _livelossplot(points: int, repeats: int) -> float:
    import matplotlib

    matplotlib.use("agg")
    losses = importlib.import_module("livelossplot").PlotLosses()
    with contextlib.redirect_stdout(io.StringIO()):
        for step in range(points):
            losses.update({"loss": 1.0 / (step + 1), "acc": 0.5})
        call: Callable[[int], Any] = lambda _: losses.send()  # noqa: E731
        return middle(seconds_a_call(call, 1, min(repeats, 3)))[0] * 1e3
