from __future__ import annotations

import math
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from it2nb.core.metrics import MetricStore
from it2nb.core.pyramid import BASE

LIMIT_S = 30.0


def store(values: Any, name: str = "loss", *, branch_id: int = 0, round: int = 0) -> MetricStore:
    """Make a store with one metric, steps 1, 2, 3..., a tenth of a second each."""
    made = MetricStore()
    extend(made, values, name, branch_id=branch_id, round=round)
    return made


def extend(
    into: MetricStore, values: Any, name: str = "loss", *, first: int = 1, branch_id: int = 0,
    round: int = 0,
) -> None:  # fmt: skip
    values = np.asarray(values, float)
    steps = np.arange(first, first + len(values))
    rows = np.column_stack([steps, steps * 0.1, values])
    into.extend([name], rows, branch_id=branch_id, round=round)


# --- recording ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (0.5, 0.5), (3, 3.0), (True, 1.0), (np.float32(0.5), 0.5), (np.int64(7), 7.0),
        (np.array(2.5), 2.5), (np.array([2.5]), 2.5), (np.bool_(True), 1.0),
        (Decimal("0.25"), 0.25), (-0.0, -0.0), (5e-324, 5e-324), (1.7976931348623157e308,) * 2,
        (math.inf, math.inf), (-math.inf, -math.inf),
    ],
)  # fmt: skip
def test_whatever_is_a_number_is_kept_as_it_is(given: Any, kept: float) -> None:
    metrics = MetricStore()
    for step in (1, 2):  # the first row takes the careful way, the second the fast one
        metrics.record(step, {"loss": given}, 0.1, 0, 0)
    assert metrics.series("loss")[1].tobytes() == np.array([kept, kept]).tobytes()
    assert metrics.refused == {}


def test_a_nan_is_a_value_and_not_a_hole() -> None:
    metrics = MetricStore()
    for step, value in enumerate((1.0, math.nan, 2.0), 1):
        metrics.record(step, {"loss": value}, 0.0, 0, 0)
    steps, values = metrics.series("loss")
    assert steps.tolist() == [1, 2, 3]
    assert np.isnan(values).tolist() == [False, True, False]
    assert len(metrics) == len(metrics.frame()) == 3


class Unwilling:
    def __float__(self) -> float:
        raise RuntimeError("not on this device")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("0.5", "text"), (b"1", "text"), (None, "NoneType"), (1j, "complex"),
        ([1.0], "list"), (np.zeros(2), "ndarray"), (Unwilling(), "not on this device"),
        (10**400, "int too large"),
    ],
)  # fmt: skip
def test_what_is_no_number_is_left_out_once_said_and_the_rest_recorded(bad: Any, said: str) -> None:
    metrics = MetricStore()
    for step in range(1, 4):
        metrics.record(step, {"loss": 1.0, "odd": bad, "acc": 0.5}, 0.0, 0, 0)
    metrics.record(4, {"odd": bad}, 0.0, 0, 0)
    assert said in metrics.refused["odd"]
    assert list(metrics.refused) == ["odd"]
    assert metrics.names() == ["loss", "acc"]
    assert metrics.series("acc")[1].tolist() == [0.5, 0.5, 0.5]
    assert len(metrics) == 3


def test_record_never_raises_whatever_it_is_given() -> None:
    metrics = MetricStore()
    for values in (None, 3, ["loss"], {}, {"loss": 1.0}):
        metrics.record(1, values, 0.0, 0, 0)  # type: ignore[arg-type]
    metrics.record("one", {"loss": 1.0}, 0.0, 0, 0)  # type: ignore[arg-type]
    assert metrics.series("loss")[1].tolist() == [1.0]
    assert metrics.refused


class Tensor:
    """One number that may not be packed; reading it may raise."""

    error: BaseException | None = None

    def __float__(self) -> float:
        raise AssertionError("float() of a tensor that carries a graph warns")

    def detach(self) -> Tensor:
        return self

    def item(self) -> float:
        if self.error is not None:
            raise self.error
        return 0.5


def test_tensors_are_read_and_never_packed_and_one_that_breaks_is_left_out() -> None:
    metrics = MetricStore()
    loss, other = Tensor(), Tensor()
    for step in range(300):
        if step == 200:
            other.error = BaseException("the device is gone")
        metrics.record(step, {"loss": loss, "other": other, "acc": 1}, 0.0, 0, 0)
    assert metrics.series("loss")[1].tolist() == [0.5] * 300
    assert metrics.series("acc")[1].tolist() == [1.0] * 300
    assert metrics.series("other")[1].tolist() == [0.5] * 200
    assert "the device is gone" in metrics.refused["other"]
    loss.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        metrics.record(300, {"loss": loss, "acc": 1}, 0.0, 0, 0)


def test_names_that_are_no_text_or_no_utf8_become_text() -> None:
    metrics = MetricStore()
    metrics.record(1, {3: 1.0, "a\ud800b": 2.0}, 0.0, 0, 0)  # type: ignore[dict-item]
    assert metrics.names() == ["3", "a?b"]


def test_the_order_of_rows_is_kept_across_name_sets_branches_and_rounds() -> None:
    metrics = MetricStore()
    rows: list[tuple[int, dict[str, float], int, int]] = []
    for step in range(1, 300):
        rows.append((step, {"loss": step / 2}, 0, 0))
        if step % 10 == 0:
            rows.append((step, {"val": step * 1.0, "loss": 0.0}, 0, 0))
        if step % 7 == 0:
            rows.append((step, {"loss": -1.0, "val": 2.0}, step // 100, step // 150))
    for step, values, branch_id, round in rows:
        metrics.record(step, values, 0.5, branch_id, round)
    found = [
        (int(row[0]), dict(zip(block.names, row[2:].tolist(), strict=True)), block.branch_id,
         block.round)
        for block in metrics.blocks()
        for row in block.rows
    ]  # fmt: skip
    assert found == rows
    part = [(block.first, len(block)) for block in metrics.blocks(100, 140)]
    assert part[0][0] == 100 and sum(count for _, count in part) == 40


def test_rows_survive_many_chunks_bit_by_bit() -> None:
    metrics = MetricStore()
    values = np.random.default_rng(0).normal(size=(9_000, 3))
    for step, (a, b, c) in enumerate(values.tolist()):
        metrics.record(step, {"a": a, "b": b, "c": c}, step * 0.5, 0, 0)
    for column, name in enumerate("abc"):
        assert (
            metrics.series(name)[1].tobytes() == np.ascontiguousarray(values[:, column]).tobytes()
        )
    assert metrics.latest()["b"] == (8_999, values[-1, 1])


def test_recording_takes_no_lock() -> None:
    metrics = store([1.0])
    with metrics._reading:
        metrics.record(2, {"loss": 2.0}, 0.0, 0, 0)
        metrics.record(3, {"new": 2.0}, 0.0, 1, 0)
    assert len(metrics) == 3


def test_four_metrics_take_at_most_52_bytes_a_step_even_when_all_are_looked_at() -> None:
    metrics = MetricStore()
    rows = np.random.default_rng(0).normal(size=(100_000, 6))
    rows[:, 0] = np.arange(len(rows))
    metrics.extend(["a", "b", "c", "d"], rows, branch_id=0, round=0)
    for name in metrics.names():
        metrics.view(name)
    assert metrics.nbytes <= 52 * len(metrics)


def test_readers_see_whole_rows_only_while_the_trainer_writes() -> None:
    metrics = MetricStore()
    done = threading.Event()
    torn: list[str] = []

    def read() -> None:
        while not done.is_set():
            for block in metrics.blocks(max(0, len(metrics) - 500)):
                own = block.rows[:, 2:]
                if not (own == own[:, :1]).all() or not (own[:, 0] == block.rows[:, 0]).all():
                    torn.append(repr(own))
            latest = metrics.latest()
            if latest and latest["a"][0] != latest["a"][1]:
                torn.append(repr(latest))
            view = metrics.view("a", points=50)
            if not (view.steps == view.values).all():
                torn.append(repr(view))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        readers = [threading.Thread(target=read) for _ in range(2)]
        for reader in readers:
            reader.start()
        for step in range(6_000):
            values = {"a": step, "b": step} if step % 50 else {"a": step, "b": step, "c": step}
            metrics.record(step, values, step, step // 2_000, 0)
        done.set()
        for reader in readers:
            reader.join(LIMIT_S)
    finally:
        sys.setswitchinterval(before)
    assert torn == []


# --- reading ------------------------------------------------------------------------------------


def test_latest_is_the_newest_row_of_each_name_whatever_its_set() -> None:
    metrics = MetricStore()
    assert metrics.latest() == {}
    metrics.record(1, {"loss": 1.0, "acc": 0.1}, 0.0, 0, 0)
    metrics.record(2, {"loss": 2.0}, 0.0, 0, 0)
    assert metrics.latest() == {"loss": (2, 2.0), "acc": (1, 0.1)}
    metrics.record(3, {"acc": 0.3, "loss": 3.0}, 0.0, 0, 0)
    assert metrics.latest() == {"loss": (3, 3.0), "acc": (3, 0.3)}
    metrics.record(2, {"loss": 4.0}, 0.0, 1, 0)
    assert metrics.latest() == {"loss": (2, 4.0), "acc": (3, 0.3)}


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.floats(-9, 9), max_size=3),
            st.integers(0, 5), st.integers(0, 1),
        ),
        max_size=80,
    )
)  # fmt: skip
def test_the_newest_value_of_a_name_is_that_of_latest(rows: list[Any]) -> None:
    metrics = MetricStore()
    for values, step, branch in rows:
        metrics.record(step, values, 0.0, branch, 0)
        for name in "abc":
            assert metrics.newest(name) == metrics.latest().get(name)


def test_a_series_is_private_and_can_be_that_of_one_branch_or_round() -> None:
    metrics = store([1.0, 2.0, 3.0])
    extend(metrics, [9.0], first=3, branch_id=1)
    extend(metrics, [7.0, 8.0], branch_id=2, round=1)
    assert metrics.series("loss")[1].tolist() == [1, 2, 3, 9, 7, 8]
    assert metrics.series("loss", branch_id=1)[0].tolist() == [3]
    assert metrics.series("loss", round=1)[1].tolist() == [7, 8]
    assert metrics.series("loss", branch_id=0, round=1)[1].tolist() == []
    assert metrics.series("nothing")[0].shape == (0,)
    metrics.series("loss")[1][:] = 0
    assert metrics.series("loss")[1][0] == 1


def test_c13_the_frame_has_one_row_for_each_round_branch_and_step() -> None:
    metrics = MetricStore()
    for step in range(1, 31):
        metrics.record(step, {"loss": step}, step, 0, 0)
    for step in range(11, 41):
        metrics.record(step, {"loss": -step}, 100 + step, 1, 0)
    metrics.record(12, {"acc": 0.5}, 500.0, 1, 0)  # a second place logs for the same step
    metrics.record(12, {"acc": 0.75, "loss": 7.0}, 501.0, 1, 0)
    metrics.record(5, {"acc": 0.25}, 502.0, 0, 0)
    metrics.record(1, {"loss": 0.5}, 503.0, 2, 1)
    frame = metrics.frame()
    assert len(frame) == 61
    assert not frame.duplicated(["round", "branch_id", "step"]).any()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        "round": "int64", "branch_id": "int64", "step": "int64", "t": "float64",
        "loss": "float64", "acc": "float64",
    }  # fmt: skip
    row = frame[(frame.branch_id == 1) & (frame.step == 12)].iloc[0]
    assert (row["loss"], row["acc"], row["t"]) == (7.0, 0.75, 112.0)
    assert frame[(frame.branch_id == 0) & (frame.step == 5)].iloc[0]["acc"] == 0.25
    assert frame["branch_id"].tolist() == [0] * 30 + [1] * 30 + [2]
    assert frame["step"].tolist() == [*range(1, 31), *range(11, 41), 1]
    assert len(metrics) == 64  # nothing was dropped from the record


def test_the_frame_is_private_and_empty_without_metrics() -> None:
    metrics = store([1.0, 2.0])
    frame = metrics.frame()
    frame.loc[:, "loss"] = 0.0
    assert metrics.frame()["loss"].tolist() == [1.0, 2.0]
    empty = MetricStore().frame()
    assert list(empty.columns) == ["round", "branch_id", "step", "t"]
    assert len(empty) == 0


def test_a_metric_that_is_named_like_a_column_keeps_out_of_its_way() -> None:
    metrics = MetricStore()
    metrics.record(3, {"step": 0.5, "t": 7.0, "loss": 1.0}, 0.25, 0, 0)
    frame = metrics.frame()
    assert list(frame.columns) == [
        "round", "branch_id", "step", "t", "metric.step", "metric.t", "loss",
    ]  # fmt: skip
    assert frame.iloc[0].tolist() == [0, 0, 3, 0.25, 0.5, 7.0, 1.0]


# --- views --------------------------------------------------------------------------------------


def test_a_short_curve_comes_whole() -> None:
    metrics = store(np.arange(1_000.0))
    view = metrics.view("loss")
    assert (len(view), view.thinned, view.end) == (1_000, False, 1_000)
    assert view.steps.tolist() == list(range(1, 1_001))
    assert view.t[:2] == pytest.approx([0.1, 0.2])
    view.values[:] = 0
    assert metrics.view("loss").values[-1] == 999


LENGTHS = (2_001, 12_345, BASE * 500 - 1, BASE * 500, 200_003)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_long_curve_is_thinned_and_keeps_its_ends_and_extremes(length: int) -> None:
    values = np.random.default_rng(length).normal(size=length).cumsum()
    view = store(values).view("loss")
    assert view.thinned
    assert len(view) <= 2_000
    assert len(view) >= 400
    assert (view.steps[0], view.steps[-1]) == (1, length)
    assert (view.values[0], view.values[-1]) == (values[0], values[-1])
    assert (view.values.min(), view.values.max()) == (values.min(), values.max())
    assert (np.diff(view.steps) > 0).all()
    # Every point is one that was recorded.
    assert (values[view.steps.astype(int) - 1] == view.values).all()


@given(
    length=st.integers(300, 40_000),
    at=st.floats(0, 1),
    height=st.sampled_from([5.0, -5.0]),
    points=st.integers(8, 500),
    seed=st.integers(0, 5),
)
def test_a_spike_of_one_step_is_never_lost(
    length: int, at: float, height: float, points: int, seed: int
) -> None:
    values = np.random.default_rng(seed).uniform(-1, 1, length)
    step = min(length - 1, int(at * length))
    values[step] = height
    view = store(values).view("loss", points=points)
    assert height in view.values
    assert view.steps[view.values == height].tolist() == [step + 1]
    assert len(view) <= max(points, 8) + 8


@given(st.data())
def test_a_pyramid_that_grew_in_steps_shows_the_same_as_one_made_at_once(
    data: st.DataObject,
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 3_000), min_size=1, max_size=6))
    values = np.random.default_rng(sum(sizes)).normal(size=sum(sizes))
    grown = MetricStore()
    done = 0
    for size in sizes:
        extend(grown, values[done : done + size], first=1 + done)
        done += size
        grown.view("loss", points=20)
    one, other = grown.view("loss", points=20), store(values).view("loss", points=20)
    assert one.steps.tolist() == other.steps.tolist()
    assert one.values.tolist() == other.values.tolist()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("length", [5_000, 300_000])
def test_a_gap_shows_and_hides_no_extreme(odd: float, length: int) -> None:
    values = np.random.default_rng(0).normal(size=length)
    values[length // 2] = odd
    values[length // 2 + 1] = 50.0
    values[length // 2 - 1] = -50.0
    view = store(values).view("loss")
    at = np.flatnonzero(view.steps == length // 2 + 1)
    assert len(at) == 1
    assert view.values[at[0]] == pytest.approx(odd, nan_ok=True)
    assert {50.0, -50.0} <= set(view.values.tolist())
    assert (np.diff(view.steps) > 0).all()


def test_a_curve_of_nothing_but_nan_is_a_gap() -> None:
    view = store(np.full(50_000, math.nan)).view("loss")
    assert 2 <= len(view) <= 2_000
    assert np.isnan(view.values).all()


def test_a_constant_curve_needs_one_point_a_bucket() -> None:
    view = store(np.full(300_000, 0.5)).view("loss")
    assert set(view.values.tolist()) == {0.5}
    assert (np.diff(view.steps) > 0).all()


@pytest.mark.parametrize("window", [(1, 100), (777, 250_000), (100_001, 100_900), (5, 299_990)])
def test_a_window_has_both_its_ends_and_nothing_outside(window: tuple[int, int]) -> None:
    lo, hi = window
    values = np.random.default_rng(1).normal(size=300_000)
    view = store(values).view("loss", lo, hi)
    inside = values[lo - 1 : hi]
    assert (view.steps[0], view.steps[-1]) == (lo, hi)
    assert (view.values.min(), view.values.max()) == (inside.min(), inside.max())
    assert len(view) <= 2_000
    assert view.thinned == (len(inside) > 2_000)


def test_a_window_may_lie_on_the_time_axis_or_outside_of_everything() -> None:
    metrics = store(np.arange(100.0))
    view = metrics.view("loss", 1.05, 2.05, axis="t")
    assert view.steps.tolist() == list(range(11, 21))
    assert len(metrics.view("loss", 1_000, 2_000)) == 0
    assert len(metrics.view("loss", hi=-1)) == 0
    assert metrics.view("loss", lo=99).steps.tolist() == [99, 100]
    with pytest.raises(ValueError, match="axis='time'"):
        metrics.view("loss", axis="time")  # type: ignore[arg-type]


def test_steps_that_go_back_inside_a_branch_are_still_found_by_window() -> None:
    metrics = store(np.arange(100.0))
    extend(metrics, np.arange(50.0), first=20)
    view = metrics.view("loss", 20, 22)
    assert view.steps.tolist() == [20, 21, 22, 20, 21, 22]


def test_a_view_goes_on_where_the_last_one_ended() -> None:
    metrics = store(np.arange(10.0))
    first = metrics.view("loss")
    extend(metrics, [70.0, 80.0], first=11)
    metrics.record(13, {"acc": 1.0, "loss": 90.0}, 1.3, 0, 0)
    then = metrics.view("loss", start=first.end)
    assert (then.steps.tolist(), then.values.tolist()) == ([11, 12, 13], [70.0, 80.0, 90.0])
    assert then.end == 13
    assert len(metrics.view("loss", start=then.end)) == 0


def test_each_branch_and_round_is_a_curve_of_its_own() -> None:
    metrics = store(np.arange(1.0, 31))
    extend(metrics, -np.arange(11.0, 41), first=11, branch_id=1)
    extend(metrics, [5.0], round=1, branch_id=2)
    assert metrics.lines("loss") == [(0, 0), (0, 1), (1, 2)]
    assert [len(view) for view in metrics.views("loss")] == [30, 30, 1]
    assert metrics.view("loss").values.tolist() == [5.0]
    assert metrics.view("loss", round=0).values[0] == -11.0
    assert metrics.view("loss", branch_id=0).values[0] == 1.0
    nothing = metrics.view("nothing")
    assert (len(nothing), nothing.end, metrics.lines("nothing")) == (0, 0, [])


def test_alternating_name_sets_still_make_one_curve() -> None:
    metrics = MetricStore()
    for step in range(1, 5_001):
        values = {"loss": step} if step % 10 else {"loss": step, "val": -step}
        metrics.record(step, values, step, 0, 0)
    assert metrics.view("loss", points=5_000).values.tolist() == list(range(1, 5_001))
    view = metrics.view("loss", points=100)
    assert (view.values[0], view.values[-1]) == (1, 5_000)
    assert metrics.view("val").steps.tolist() == list(range(10, 5_001, 10))


@pytest.fixture(autouse=True)
def no_numpy_complaints() -> Iterator[None]:
    with np.errstate(all="raise", under="ignore"):
        yield
