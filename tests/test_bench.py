"""The bench: its statistics, its table, and that every measure can be asked."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.optim.optimizer as home

from it2nb.session import TrainingSession
from scripts.bench import table
from scripts.bench.__main__ import MEASURES
from scripts.bench.measured import Measured, middle, of_the_median, p95, side_by_side
from scripts.bench.switch import Snapshots, Switch, told


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_can_be_asked(name: str) -> None:
    assert callable(importlib.import_module(f"scripts.bench.{name}").measure)


def test_candidates_are_timed_in_turn_and_what_an_empty_loop_takes_is_left_out() -> None:
    called: list[str] = []
    found = side_by_side(
        {"one": lambda i: called.append("one"), "other": lambda i: called.append("other")}, 2, 3
    )
    assert called == ["one", "one", "other", "other"] * 3
    assert {name: len(times) for name, times in found.items()} == {"one": 3, "other": 3}
    assert min(min(times) for times in found.values()) >= 0


def test_an_interval_of_the_median_leaves_out_what_is_unlikely() -> None:
    values = [float(each) for each in range(1, 26)]
    # 25 values: the 8th and the 18th hold the median with 95.7 % (binomial, p = 1/2).
    assert of_the_median(values) == (13.0, 8.0, 18.0)
    assert of_the_median([1.0, 2.0, 3.0]) == (2.0, 1.0, 3.0)
    # Many values: 1.96 times half the root of 4,000 ranks on either side.
    _, low, high = of_the_median([float(each) for each in range(4000)])
    assert [low, high] == pytest.approx([1999.5 - 62, 1999.5 + 62], abs=2)
    assert middle([1.0, 2.0, 3.0, 4.0, 5.0])[0] == 3.0
    assert middle([7.0]) == (7.0, 7.0, 7.0)
    assert p95([float(each) for each in range(101)]) == pytest.approx(95.0, abs=1.0)


def test_the_steering_is_off_in_every_other_stretch_and_back_at_the_end() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    session = TrainingSession(directory=None)
    session.bind(None, optimizers=[optimizer])
    sides: list[bool] = []
    switch = Switch(optimizer, [(session, ["step"])], sides.append)

    def is_steered() -> bool:
        return bool(home._global_optimizer_pre_hooks or home._global_optimizer_post_hooks)

    with session.run():
        for on in (True, False, True, True, False):
            switch.turn(on)
            assert is_steered() is on
            weight.grad = torch.ones(3)
            optimizer.step()
            if on:
                session.step({"loss": 1.0})
        switch.end()
        assert is_steered()
    assert (len(switch.steered), len(switch.plain), sides) == (3, 2, [False, True, False, True])
    assert all(cpu > 0 and wall > 0 for cpu, wall in switch.steered + switch.plain)
    assert len(switch.inside) == 3 and all(
        0 < spent < wall for spent, (_, wall) in zip(switch.inside, switch.steered, strict=True)
    )


def test_a_slow_down_is_that_of_the_pairs_and_of_the_snapshots_between_them() -> None:
    weight = torch.nn.Parameter(torch.zeros(3))
    switch, snapshots = Switch(torch.optim.SGD([weight], lr=0.1)), Snapshots()
    # Two updates a stretch of 100 ms; 1 ms more where they are steered, 2 ms by the wall clock.
    switch.steered = [(9.0, 9.0)] + [(0.101, 0.102)] * 5
    switch.plain = [(0.1, 0.1)] * 5
    switch.inside = [9.0] + [0.0006] * 5
    snapshots.cpu = [0.05]
    slow_down, inside = told("a training", switch, snapshots, 1.0, warm_up=1, updates=2)
    share = 100 * 0.05 / (9 + 5 * 0.201)
    assert slow_down.value == pytest.approx(1.0 + share)
    assert "5 pairs" in slow_down.note and f"wall clock {2 + share:.2g} %" in slow_down.note
    assert "50 ms an update" in slow_down.what and slow_down.meets is False
    assert inside.value == pytest.approx(300.0) and (inside.unit, inside.goal) == ("us", None)
    assert "0.6 % of the update" in inside.note


def test_a_goal_is_met_missed_or_not_promised() -> None:
    assert Measured("a", 1.0, "us", 1.0).meets is True
    assert Measured("a", 1.1, "us", 1.0).meets is False
    assert Measured("a", 1.1, "us").meets is None


def test_the_table_goes_between_its_marks_and_says_what_missed(tmp_path: Path) -> None:
    line: dict[str, Any] = {
        "what": "a thing", "value": 30.0, "unit": "us", "goal": 15.0, "low": 20.0, "high": 40.0,
        "beside": {"other": 60.0, "third": "not installed"}, "note": "", "meets": False,
        "load": 0.1,
    }  # fmt: skip
    result = {"machine": {**table.machine(), "load": [0.1]}, "quick": False, "lines": [line]}
    page = tmp_path / "page.md"
    page.write_text(f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n")
    table.write(result, page)
    told = page.read_text()
    assert told.startswith("before\n") and told.endswith("after\n") and "old" not in told
    assert "| a thing | 30 µs (20 to 40) | 15 µs, missed by a factor of 2.0 |" in told
    assert "other: 60 µs; third: not installed" in told
    assert "busy" not in told
    line["load"] = 1_000.0
    assert "busy with other work" in table.markdown(result)
