from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from it2nb import frames
from it2nb.frames import DTYPES, frame_of, metrics_frame, payloads, timestamps

from .conftest import dtypes_here


@pytest.mark.parametrize("kind", ["events", "requests", "rounds", "effects"])
def test_each_frame_has_the_dtypes_that_are_written_down_even_without_rows(kind: str) -> None:
    empty = frame_of(kind, {name: [] for name in DTYPES[kind]})
    assert {name: str(dtype) for name, dtype in empty.dtypes.items()} == dtypes_here(DTYPES[kind])
    assert empty.empty


def test_the_table_of_dtypes_names_every_column() -> None:
    assert frames.__doc__ is not None
    for kind in ("events", "requests", "rounds", "metrics"):
        for name in DTYPES[kind]:
            assert name in frames.__doc__


def test_text_columns_are_text_and_mixed_ones_keep_what_they_hold() -> None:
    columns: dict[str, list[object]] = {name: ["x", None] for name in DTYPES["requests"]}
    for name, dtype in DTYPES["requests"].items():
        if dtype in ("int64", "float64") or dtype == frames.UTC:
            columns[name] = [1, 2]
    columns["requested"] = [{"a": [1]}, math.nan]
    columns["before"] = ["3e-4", 0.5]
    columns["after"] = [True, None]
    frame = frame_of("requests", columns)
    assert str(frame["type"].dtype) == dtypes_here(DTYPES["requests"])["type"]
    assert frame["type"].isna().tolist() == [False, True]
    assert frame["requested"].iloc[0] == {"a": [1]}
    assert frame["before"].tolist() == ["3e-4", 0.5]
    assert frame["after"].tolist() == [True, None]


def test_times_are_utc_to_the_microsecond_and_unknown_ones_nat() -> None:
    stamps = timestamps([1_800_000_000.123456, math.nan])
    assert stamps[0] == np.datetime64("2027-01-15T08:00:00.123456000")
    assert np.isnat(stamps[1])


def test_rows_of_one_step_become_one() -> None:
    frame = metrics_frame(
        [
            (("loss",), 0, 0, np.array([[1.0, 0.1, 5.0], [2.0, 0.2, 4.0]])),
            (("acc", "loss"), 0, 0, np.array([[2.0, 0.3, 0.5, 3.0]])),
            (("loss",), 1, 2, np.array([[1.0, 0.4, 9.0]])),
        ]
    )
    expected = pd.DataFrame(
        {
            "round": [0, 0, 1], "branch_id": [0, 0, 2], "step": [1, 2, 1], "t": [0.1, 0.2, 0.4],
            "loss": [5.0, 3.0, 9.0], "acc": [math.nan, 0.5, math.nan],
        }
    )  # fmt: skip
    pd.testing.assert_frame_equal(frame, expected)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 9])
def test_payloads_are_plain_dicts_of_plain_floats(width: int) -> None:
    names = tuple("abcdefghi"[:width])
    rows = np.arange(3.0 * width).reshape(3, width)
    made = payloads(names, rows)
    assert made == [dict(zip(names, row, strict=True)) for row in rows.tolist()]
    assert type(made[0]["a"]) is float
