"""Plotly figures of a run: one row for each metric, a line wherever somebody intervened."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from it2nb.core.drifted import drifted_names, is_in_force
from it2nb.core.errors import near
from it2nb.core.lineage import forked, lineage
from it2nb.core.thinning import thin
from it2nb.core.wire import EFFECTIVE
from it2nb.frames import DTYPES

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from it2nb.core.wire import Branch, Event

#: Points of one curve, about; extremes are never left out.
POINTS = 4_000
#: Lines across the curves, the newest ones. All changes keep their hover text.
LINES = 400
#: What leaves no trace in the curves.
_UNMARKED = frozenset({"pause", "resume", "stop", "evaluate", "save_checkpoint", "note"})
_RESTORES = frozenset({"load_checkpoint", "undo", "goto"})
# Okabe & Ito: told apart with colour-blind eyes, too.
_ROUNDS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
_CHANGE, _RESTORE = "#b35900", "#7b3294"


def run_figure(
    metrics_frame: pd.DataFrame,
    requests_frame: pd.DataFrame,
    metrics: Sequence[str] | None = None,
    drifts: Iterable[Event] = (),
    forks: Iterable[Event] = (),
) -> go.Figure:
    """Draw the metrics of a run over its steps, with what was done to it.

    Parameters
    ----------
    metrics_frame : DataFrame
        From ``session.metrics.frame()``.
    requests_frame : DataFrame
        From ``journal.requests()``.
    metrics : sequence of str, optional
        Which ones, in this order; all by default.
    drifts : iterable of Event
        The journal's ``knob_drifted`` rows.
    forks : iterable of Event
        The journal's ``branch_forked`` rows: what a branch came from is part of its line.

    Returns
    -------
    plotly.graph_objects.Figure
        A trace for each metric, round and branch: the branch that the run went on with solid, and
        its past with it; what was abandoned dashed and pale. A vertical line stands at each
        request that was applied or clamped and may show in a curve, and where something else
        wrote a knob; it holds from the step after.

    Raises
    ------
    ValueError
        For a metric that was not recorded.
    """
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    known = [name for name in metrics_frame.columns if name not in DTYPES["metrics"]]
    names = known if metrics is None else list(metrics)
    for name in names:
        if name not in known:
            raise ValueError(f"no metric {name!r} was recorded{near(name, known)}")
    if not names:
        return _empty(go)
    figure = make_subplots(
        rows=len(names), cols=1, shared_xaxes=True, vertical_spacing=min(0.05, 0.3 / len(names))
    )
    branches = forked(forks)
    marks = [*_marks(requests_frame), *_drift_marks(drifts)]
    marks.sort(key=lambda mark: int(mark["step"]))
    for row, name in enumerate(names, 1):
        figure.add_traces(
            [*_curves(go, metrics_frame, name, branches), _told(go, metrics_frame, name, marks)],
            rows=row,
            cols=1,
        )
        figure.update_yaxes(title_text=literal(name), row=row, col=1)
    figure.update_layout(
        shapes=_lines(marks, len(names)),
        height=90 + 190 * len(names),
        margin={"l": 70, "r": 20, "t": 30, "b": 45},
        template="plotly_white",
        hovermode="closest",
    )
    figure.update_xaxes(title_text="step", row=len(names), col=1)
    return figure


def literal(text: object) -> str:
    """Escape a text so that Plotly shows it as it is: no markup, no LaTeX, one line."""
    shown = html.escape(" ".join(str(text).split()), quote=False)
    return shown.replace("$", "&#36;")


def _curves(go: Any, frame: pd.DataFrame, name: str, branches: Sequence[Branch]) -> Iterator[Any]:
    rounds = bool(len(frame)) and bool(frame["round"].max())
    several = rounds or (bool(len(frame)) and bool(frame["branch_id"].max()))
    for key, part in frame.groupby(["round", "branch_id"], sort=True):
        round, branch_id = np.array(key).tolist()
        given = part[part[name].notna() | _is_gap(part, name)]
        if not len(given):
            continue
        # The branch of the round's last values: one of a trial is left again.
        now = frame[frame["round"] == round].sort_values(["t", "branch_id"])["branch_id"].iloc[-1]
        own = {int(now): np.inf} | dict(lineage(branches, int(now)))
        newest = branch_id == now
        label = f"{name}, round {round}" if rounds else name
        rows = np.stack([given[each].to_numpy(np.float64) for each in ("step", "t", name)])
        if rows.shape[1] > POINTS:
            rows = thin(rows, POINTS)
        end = int(np.searchsorted(rows[0], own.get(branch_id, -1.0), side="right"))
        # From the last common point on: there is no hole between the two.
        left_at = max(0, end - 1) if end < rows.shape[1] else end
        for live, piece in ((False, rows[:, left_at:]), (True, rows[:, :end])):
            if piece.shape[1] == 0:
                continue
            yield go.Scatter(
                x=piece[0],
                y=np.where(np.isfinite(piece[2]), piece[2], np.nan),
                mode="lines+markers" if piece.shape[1] == 1 else "lines",
                name=literal(label if newest else f"{label}, branch {branch_id}"),
                legendgroup=f"{round}.{branch_id}",
                opacity=1.0 if live else 0.45,
                line={
                    "color": _ROUNDS[round % len(_ROUNDS)],
                    "width": 1.5,
                    "dash": "solid" if live else "dash",
                },
                hovertemplate="step %{x:,}: %{y:.6g}<extra></extra>",
                # Both stretches of a branch share one entry.
                showlegend=several and (live or end == 0),
            )


def _is_gap(part: pd.DataFrame, name: str) -> Any:
    """Tell a NaN that was recorded from a step that has no value of this metric.

    A frame holds NaN for both. When most steps have a value the rest are gaps; a metric that
    is logged now and then, an evaluation for example, is drawn as one line.
    """
    return part[name].isna() & (part[name].notna().mean() > 0.5)


def _marks(requests: pd.DataFrame) -> Iterator[dict[str, Any]]:
    done = requests[requests["status"].isin(EFFECTIVE) & ~requests["type"].isin(_UNMARKED)]
    for record in done.to_dict("records"):
        each = {str(key): value for key, value in record.items()}
        restored = each["type"] in _RESTORES
        yield {
            "step": each["step"],
            "text": _words(each),
            "color": _RESTORE if restored else _CHANGE,
            "dash": "dot" if restored else "solid",
        }


def _drift_marks(drifts: Iterable[Event]) -> Iterator[dict[str, Any]]:
    for event in filter(is_in_force, drifts):
        told = event.payload
        name = literal(drifted_names(told)[-1])
        change = f"<b>{name}: {_number(told.get('before'))} → {_number(told.get('found'))}</b>"
        lines = [change, f"after step {event.step:,}", f"written by {literal(told.get('by'))}"]
        text = "<br>".join([*lines, "no request asked for it"])
        yield {"step": event.step, "text": text, "color": _CHANGE, "dash": "dash"}


def _words(request: dict[str, Any]) -> str:
    what = literal(request["type"])
    if isinstance(request["name"], str):
        what = literal(request["name"])
        if request["after"] is not None:
            what += f": {_number(request['before'])} → {_number(request['after'])}"
    lines = [f"<b>{what}</b>", f"after step {request['step']:,}"]
    if request["status"] == "clamped":
        lines.append(f"clamped, asked {_number(request['requested'])}")
    who = request["actor"] if isinstance(request["actor"], str) else request["source"]
    lines.append(f"by {literal(who)}")
    if isinstance(request["reason"], str):
        lines.append(literal(request["reason"][:200]))
    return "<br>".join(lines)


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else literal(value)


def _told(go: Any, frame: pd.DataFrame, name: str, marks: list[dict[str, Any]]) -> Any:
    """Make the points on a curve that say what was done there."""
    steps = frame["step"].to_numpy()
    values = frame[name].to_numpy(np.float64)
    good = np.isfinite(values)
    steps, values = steps[good], values[good]
    order = np.argsort(steps, kind="stable")
    steps, values = steps[order], values[order]
    at = np.searchsorted(steps, [mark["step"] for mark in marks], side="right") - 1
    heights = [values[max(0, place)] if len(values) else 0.0 for place in at]
    return go.Scatter(
        x=[mark["step"] for mark in marks],
        y=heights,
        mode="markers",
        marker={
            "color": [mark["color"] for mark in marks],
            "size": 7,
            "symbol": "diamond",
            "line": {"color": "white", "width": 1},
        },
        hovertext=[mark["text"] for mark in marks],
        hoverinfo="text",
        name="interventions",
        showlegend=False,
    )


def _lines(marks: list[dict[str, Any]], rows: int) -> list[dict[str, Any]]:
    """Build vertical lines as plain shapes: one call of ``add_vline`` for each takes seconds."""
    return [
        {
            "type": "line",
            "xref": f"x{row}" if row > 1 else "x",
            "yref": f"y{row} domain" if row > 1 else "y domain",
            "x0": mark["step"],
            "x1": mark["step"],
            "y0": 0,
            "y1": 1,
            "line": {"color": mark["color"], "width": 1, "dash": mark["dash"]},
            "opacity": 0.5,
        }
        for row in range(1, rows + 1)
        for mark in marks[-LINES:]
    ]


def _empty(go: Any) -> go.Figure:
    figure = go.Figure()
    figure.add_annotation(
        text="no metrics were recorded yet", showarrow=False, xref="paper", yref="paper",
        x=0.5, y=0.5,
    )  # fmt: skip
    figure.update_layout(template="plotly_white", height=200)
    return figure
