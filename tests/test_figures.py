from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

import it2nb
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.figures import LINES, POINTS, literal, run_figure


def ask(journal: Journal, id: str, step: int, type: str = "set_knob", **result: Any) -> None:
    where: dict[str, Any] = {"step": step, "source": "panel", "action_id": id}
    payload = {"name": result.get("name"), "value": result.get("requested")}
    journal.append("action_submitted", {"id": id, "type": type, "payload": payload}, **where)
    journal.append(
        "action_result", {"id": id, "type": type, "status": "applied", **result}, **where
    )


@pytest.fixture
def journal() -> Journal:
    made = Journal(None, MetricStore(), run="r")
    for step in range(1, 101):
        made.metrics.record(step, {"loss": 1 / step, "acc": step / 100}, step * 0.1, 0, 0)
    return made


def drawn(journal: Journal, *metrics: str) -> go.Figure:
    return run_figure(journal.metrics.frame(), journal.requests(), list(metrics) or None)


def curves(figure: go.Figure) -> list[Any]:
    return [trace for trace in figure.data if trace.name != "interventions"]


def told(figure: go.Figure) -> list[str]:
    return list(next(t for t in figure.data if t.name == "interventions").hovertext)


def test_there_is_a_row_for_each_metric_in_the_order_that_was_asked_for(journal: Journal) -> None:
    figure = drawn(journal)
    assert [trace.name for trace in curves(figure)] == ["loss", "acc"]
    assert curves(figure)[0].y[1] == 0.5
    figure = drawn(journal, "acc")
    assert (figure.layout.yaxis.title.text, figure.layout.xaxis.title.text) == ("acc", "step")
    assert [t.yaxis for t in curves(drawn(journal, "acc", "loss"))] == ["y", "y2"]


def test_applied_and_clamped_requests_leave_a_mark_on_every_row_and_others_none(
    journal: Journal,
) -> None:
    ask(journal, "a", 20, name="lr", requested=0.5, before=0.1, after=0.5)
    ask(journal, "b", 30, name="lr", requested=9.0, before=0.5, after=1.0, status="clamped",
        reason="the bound is 1")  # fmt: skip
    ask(journal, "c", 40, name="lr", requested="x", status="rejected", reason="not a number")
    ask(journal, "d", 50, type="pause")
    ask(journal, "e", 60, type="load_checkpoint")
    figure = drawn(journal)
    assert [line.x0 for line in figure.layout.shapes] == [20, 30, 60] * 2
    assert {line.yref for line in figure.layout.shapes} == {"y domain", "y2 domain"}
    assert [line.line.dash for line in figure.layout.shapes[:3]] == ["solid", "solid", "dot"]
    first, second, third = told(figure)
    assert first == "<b>lr: 0.1 → 0.5</b><br>after step 20<br>by panel"
    assert "clamped, asked 9" in second and "the bound is 1" in second
    assert "load_checkpoint" in third
    # Its point lies on the curve.
    points = next(trace for trace in figure.data if trace.name == "interventions")
    assert points.y[0] == pytest.approx(1 / 20)


def test_abandoned_branches_are_dashed_and_pale(journal: Journal) -> None:
    for step in range(50, 120):
        journal.metrics.record(step, {"loss": 2.0}, 20.0, 1, 0)
    old, new = curves(drawn(journal, "loss"))
    assert (old.line.dash, new.line.dash) == ("dash", "solid")
    assert old.opacity < new.opacity == 1.0
    assert (old.name, new.name) == ("loss, branch 0", "loss")
    assert len(old.x) == 100 and len(new.x) == 70


def test_the_past_of_the_runs_branch_is_solid_and_what_was_abandoned_pale() -> None:
    session = it2nb.TrainingSession(directory=None)
    session.start()
    for branch in (0, 1):
        for _ in range(100):
            session.step({"loss": 1.0})
        if branch == 0:
            session.fork_branch(50, "back to step 50")
    session.end()
    drawn = [(t.line.dash, t.opacity, t.x[0], t.x[-1]) for t in curves(session.plot("loss"))]
    assert drawn == [
        ("dash", 0.45, 50, 100), ("solid", 1.0, 1, 50), ("solid", 1.0, 51, 150),
    ]  # fmt: skip


def test_each_round_has_its_colour(journal: Journal) -> None:
    journal.metrics.record(1, {"loss": 2.0}, 0.0, 1, 1)
    first, second = curves(drawn(journal, "loss"))
    assert first.line.color != second.line.color
    assert (first.name, second.name) == ("loss, round 0", "loss, round 1")
    assert first.line.dash == second.line.dash == "solid"


def test_names_and_reasons_are_text_and_never_markup() -> None:
    journal = Journal(None, MetricStore(), run="r")
    bad = '<a href="javascript:x">$y$</a>'
    for step in (1, 2):
        journal.metrics.record(step, {bad: 1.0}, 0.0, 0, 0)
        journal.metrics.record(step, {bad: 1.0}, 0.0, 1, 0)
    ask(journal, "a", 1, name=bad, requested=bad, before=bad, after=bad, actor=bad, reason=bad)
    figure = drawn(journal)
    shown = literal(bad)
    assert shown == '&lt;a href="javascript:x"&gt;&#36;y&#36;&lt;/a&gt;'
    assert bad not in figure.to_json().replace("\\u003c", "<").replace('\\"', '"')
    assert figure.layout.yaxis.title.text == shown
    assert curves(figure)[1].name == shown
    assert told(figure)[0].count("&lt;a") == 5
    assert literal("two\nlines") == "two lines"


def test_a_gap_is_a_gap_and_a_metric_that_is_logged_now_and_then_is_one_line() -> None:
    journal = Journal(None, MetricStore(), run="r")
    for step in range(1, 41):
        journal.metrics.record(step, {"loss": np.nan if step == 20 else 1.0}, 0.0, 0, 0)
        if step % 10 == 0:
            journal.metrics.record(step, {"val": 2.0, "top": np.inf}, 0.0, 0, 0)
    loss, val, _ = curves(drawn(journal))
    assert len(loss.x) == 40 and np.isnan(loss.y[19])
    assert list(val.x) == [10, 20, 30, 40] and not np.isnan(val.y).any()


def test_a_long_run_stays_a_small_figure_and_keeps_its_spikes() -> None:
    journal = Journal(None, MetricStore(), run="r")
    values = np.random.default_rng(0).normal(size=200_000)
    values[123_456] = 99.0
    steps = np.arange(len(values))
    rows = np.column_stack([steps, steps, values])
    journal.metrics.extend(["loss"], rows, branch_id=0, round=0)
    for index in range(LINES + 50):
        ask(journal, str(index), index, name="lr", before=0.0, after=1.0)
    figure = drawn(journal)
    assert len(curves(figure)[0].x) <= POINTS
    assert 99.0 in curves(figure)[0].y
    assert len(figure.layout.shapes) == LINES
    assert len(told(figure)) == LINES + 50


def test_a_run_without_metrics_says_so_and_a_wrong_name_is_an_error(journal: Journal) -> None:
    empty = Journal(None, MetricStore(), run="r")
    assert "no metrics" in drawn(empty).layout.annotations[0].text
    with pytest.raises(ValueError, match="'los' was recorded; did you mean 'loss'"):
        drawn(journal, "los")
