from __future__ import annotations

import sys

import numpy as np
import pandas as pd
import pytest

from it2nb.core.effects import student_975
from it2nb.core.errors import MissingDependency
from it2nb.core.export import plain
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore


def noise(count: int, seed: int, r: float = 0.0) -> np.ndarray:
    """First-order autoregressive noise with standard deviation 1."""
    draws = np.random.default_rng(seed).normal(size=count + 50)
    out = np.zeros(count + 50)
    for at in range(1, len(out)):
        out[at] = r * out[at - 1] + draws[at] * np.sqrt(1 - r * r)
    return out[50:]


def run(values: np.ndarray, changes: list[tuple[int, str, float, float]]) -> Journal:
    """Record one value a step, from step 1 on, and write changes: step, name, before, after."""
    journal = Journal(None, MetricStore(), run="r")
    for step, value in enumerate(values.tolist(), 1):
        journal.metrics.record(step, {"loss": value}, step * 0.1, 0, 0)
        for at, name, before, after in changes:
            if at == step:
                payload = {"name": name, "before": before, "value": after}
                journal.append("knob_changed", payload, step=step, action_id=f"{name}{at}")
    return journal


def test_a_jump_is_found_with_its_size_and_direction() -> None:
    values = 5 + 0.1 * noise(100, 0)
    values[50:] -= 2
    effects = run(values, [(50, "lr", 0.1, 0.01)]).effects()
    assert len(effects) == 1
    row = effects.iloc[0]
    assert row[["action_id", "name", "before", "after", "metric"]].tolist() == [
        "lr50", "lr", 0.1, 0.01, "loss",
    ]  # fmt: skip
    assert (row["n_before"], row["n_after"], row["step"]) == (50, 50, 50)
    assert row["level_low"] < -2 < row["level_high"] < 0
    assert (row["verdict"], row["slope_verdict"], row["remark"]) == ("lower", "unclear", "")


def test_a_curve_that_was_falling_anyway_is_no_effect() -> None:
    values = 10 - 0.05 * np.arange(100) + 0.2 * noise(100, 1)
    row = run(values, [(50, "lr", 0.1, 0.2)]).effects().iloc[0]
    assert row["level_before"] > row["level_after"] or row["verdict"] == "unclear"
    assert (row["verdict"], row["slope_verdict"]) == ("unclear", "unclear")
    assert row["level_low"] <= 0 <= row["level_high"]


def test_a_change_of_slope_is_told_apart_from_a_jump() -> None:
    steps = np.arange(1, 101)
    values = np.where(steps <= 50, 5.0, 5.0 - 0.2 * (steps - 50.5)) + 0.05 * noise(100, 2)
    row = run(values, [(50, "lr", 0.1, 0.2)]).effects().iloc[0]
    assert row["slope_verdict"] == "lower"
    assert row["slope_low"] < -0.2 < row["slope_high"]
    assert row["verdict"] == "unclear"


@pytest.mark.parametrize("r", [0.0, 0.5, 0.8])
def test_where_nothing_happened_the_verdict_is_nearly_always_unclear(r: float) -> None:
    unclear = []
    for seed in range(200):
        effects = run(noise(100, seed, r), [(50, "lr", 0.1, 0.2)]).effects()
        unclear.append(effects["verdict"].iloc[0] == "unclear")
    assert np.mean(unclear) >= 0.9


def test_a_window_ends_at_the_next_change_and_company_is_named() -> None:
    values = noise(200, 3)
    changes = [(40, "wd", 0.0, 0.1), (60, "lr", 0.1, 0.2), (60, "clip", 1.0, 2.0),
               (75, "lr", 0.2, 0.3)]  # fmt: skip
    effects = run(values, changes).effects(window=50)
    lr60, lr75 = (effects[effects["action_id"] == each].iloc[0] for each in ("lr60", "lr75"))
    assert lr60[["n_before", "n_after"]].tolist() == [20, 15]
    assert lr60["remark"] == "changed together with clip"
    assert lr75[["n_before", "n_after"]].tolist() == [15, 50]


def test_too_few_or_non_finite_values_claim_nothing() -> None:
    values = np.full(60, np.nan)
    values[:5] = 1.0
    effects = run(values, [(3, "lr", 0.1, 0.2), (30, "lr", 0.2, 0.3)]).effects()
    assert effects["verdict"].tolist() == ["unclear", "unclear"]
    assert effects["level_change"].isna().all()
    assert all("fewer than 8 values" in remark for remark in effects["remark"])


def test_constant_metrics_and_rounding_are_no_effect() -> None:
    row = run(np.full(100, 0.1), [(50, "lr", 0.1, 0.2)]).effects().iloc[0]
    assert (row["verdict"], row["slope_verdict"]) == ("unclear", "unclear")
    jump = np.full(100, 0.1)
    jump[50:] = 0.2
    assert run(jump, [(50, "lr", 0.1, 0.2)]).effects()["verdict"].tolist() == ["higher"]


def test_setting_the_same_value_is_no_change_and_branches_stay_apart() -> None:
    journal = run(noise(100, 4), [(50, "lr", 0.1, 0.1)])
    for step in range(51, 101):
        journal.metrics.record(step, {"loss": 100.0}, 0.0, 1, 0)
    payload = {"name": "lr", "before": 0.1, "value": 0.5}
    journal.append("knob_changed", payload, step=80, branch_id=1)
    effects = journal.effects()
    assert len(effects) == 1
    assert effects[["n_before", "n_after", "branch_id"]].iloc[0].tolist() == [30, 20, 1]
    assert effects["level_before"].iloc[0] == pytest.approx(100.0)


def test_only_the_asked_metrics_are_looked_at() -> None:
    journal = run(noise(100, 5), [(50, "lr", 0.1, 0.2)])
    assert journal.effects(metrics=[]).empty
    assert journal.effects(metrics=["nothing"])["verdict"].tolist() == ["unclear"]
    with pytest.raises(ValueError, match="window=3"):
        journal.effects(window=3)


@pytest.mark.parametrize(
    ("freedom", "value"),
    [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (48, 2.011), (1e6, 1.960)],
)
def test_students_quantile_is_that_of_the_tables(freedom: float, value: float) -> None:
    assert student_975(freedom) == pytest.approx(value, abs=2e-3)


def test_exports_can_be_read_by_others() -> None:
    journal = run(noise(20, 6), [(5, "lr", 0.1, 0.2)])
    journal.append("note", {"text": 'a,b\n"c"', "x": float("nan")}, step=20)
    path = journal.to_csv("events.csv")
    back = pd.read_csv(path)
    assert len(back) == len(journal.frame())
    assert back["payload"].iloc[-1] == '{"text":"a,b\\n\\"c\\"","x":"nan"}'
    assert pd.read_csv(journal.to_csv("m.csv", "metrics"))["loss"].tolist() == pytest.approx(
        journal.metrics.frame()["loss"].tolist()
    )
    assert len(pd.read_csv(journal.to_csv("r.csv", "effects"))) == 1
    with pytest.raises(ValueError, match="table='nope'"):
        journal.to_csv("x.csv", "nope")


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"needs 'pyarrow': pip install 'it2nb\[parquet\]'"):
        run(noise(20, 7), []).to_parquet("events.parquet")


def test_a_table_for_parquet_has_no_mixed_columns() -> None:
    journal = run(noise(20, 8), [(5, "lr", 0.1, 0.2)])
    journal.append("action_result", {"requested": {"a": 1}, "after": "x"}, action_id="a")
    journal.append("action_result", {"requested": float("nan"), "after": None}, action_id="b")
    flat = plain(journal.requests(), keep_scalars=False)
    assert flat["requested"].tolist() == ['{"a":1}', '"nan"']
    assert flat["after"].iloc[0] == '"x"' and pd.isna(flat["after"].iloc[1])
