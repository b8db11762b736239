"""Knobs of parameter groups: ratios, names, bounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim import lr_scheduler as lrs

from it2nb.core.session import Session
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.hyper import both, decay_groups
from tests.pytorch.steering import parameters, record, rows, run, statuses, train


def test_C18_ratios_are_kept_and_zero_stays_zero() -> None:
    optimizer = decay_groups()
    with run() as (session, _):
        train(
            optimizer, 1, None,
            {1: [{"name": "lr", "value": 0.05}, {"name": "weight_decay", "value": 0.1}]},
            session=session,
        )  # fmt: skip
        assert both(optimizer, "lr") == (0.05, 0.005)
        assert both(optimizer, "weight_decay") == (0.1, 0.0)
        view = session.knobs["lr"].view()
        assert [(m.name, m.value) for m in view.members] == [("decay", 0.05), ("no_decay", 0.005)]
        assert view.value == 0.05
        train(optimizer, 1, None, {1: {"name": "lr[1]", "value": 0.02}}, session=session)
        assert both(optimizer, "lr") == (0.05, 0.02)


def test_C18_undo_gives_the_exact_originals_back() -> None:
    """By numbers whose ratios do not survive a division and a multiplication."""
    optimizer = torch.optim.SGD(
        [{"params": parameters(), "lr": lr, "weight_decay": 0.003} for lr in (0.1, 0.017, 1e-5 / 3)]
    )
    before = both(optimizer, "lr")
    with run() as (session, _):
        train(
            optimizer, 8, None,
            {
                2: {"name": "lr", "value": 0.0123},
                3: {"name": "lr", "value": 0.0371},
                5: {"name": "lr", "value": 0.0123},
                6: {"name": "lr", "value": 0.1},
            },
            session=session,
        )  # fmt: skip

    assert both(optimizer, "lr") == before


def test_C18_all_groups_set_to_0_and_back_keep_their_ratios() -> None:
    optimizer = decay_groups()
    with run() as (session, _):
        train(
            optimizer, 6, None,
            {
                2: [{"name": "lr", "value": 0.0}, {"name": "weight_decay", "value": 0.0}],
                4: [{"name": "lr", "value": 0.2}, {"name": "weight_decay", "value": 0.01}],
            },
            session=session,
        )  # fmt: skip

    assert both(optimizer, "lr") == pytest.approx((0.2, 0.02))
    assert both(optimizer, "weight_decay") == (0.01, 0.0)


def test_warm_up_from_0_scales_by_the_ratios_of_initial_lr() -> None:
    optimizer = decay_groups()
    scheduler = lrs.LambdaLR(optimizer, lambda e: min(1.0, e / 4))
    with run([scheduler]) as (session, _):
        used = record(optimizer, at=None)
        train(optimizer, 7, scheduler, {0: {"name": "lr", "value": 0.05}}, session=session)

    ramp = [min(1.0, e / 4) for e in range(7)]
    assert used[0] == pytest.approx([0.05, 0.005])
    for step in range(1, 7):
        assert used[step] == pytest.approx([0.05 * ramp[step], 0.005 * ramp[step]])


def test_a_group_that_would_leave_its_bounds_rejects_the_whole_edit() -> None:
    groups = [{"params": parameters(), "betas": (b, 0.999)} for b in (0.5, 0.9)]
    optimizer = torch.optim.Adam(groups)
    with run() as (session, _):
        train(optimizer, 2, None, {1: {"name": "betas[0]", "value": 0.8}}, session=session)

    assert statuses(session) == ["rejected"]
    assert "group 1 would get betas[0]=1.44" in rows(session, "action_result")[0]["reason"]
    assert both(optimizer, "betas") == ((0.5, 0.999), (0.9, 0.999))


def test_groups_are_named_by_themselves_or_by_the_modules_of_their_weights() -> None:
    parts = [nn.Linear(2, 2) for _ in range(3)]
    model = nn.Sequential()
    model.add_module("stem", parts[0])
    model.add_module("block", nn.ModuleList(parts[1:]))

    def names(optimizer: Optimizer, bind: bool = False) -> set[str]:
        session = Session(directory=None)
        if bind:
            session.bind_model(model)
        add_optimizer_knobs(session, optimizer)
        return {name for name in session.knobs if name.startswith("lr")}

    groups: list[dict[str, Any]] = [{"params": list(part.parameters())} for part in parts]
    plain = torch.optim.SGD([dict(g) for g in groups], lr=0.1)
    assert names(plain) == {"lr", "lr[0]", "lr[1]", "lr[2]"}
    assert names(plain, bind=True) == {"lr", "lr[stem]", "lr[block.0]", "lr[block.1]"}
    own = torch.optim.SGD([{**g, "name": f"g{i}"} for i, g in enumerate(groups)], lr=0.1)
    assert names(own, bind=True) == {"lr", "lr[g0]", "lr[g1]", "lr[g2]"}
    told = torch.optim.SGD(
        [
            {"params": list(part.named_parameters(prefix))}
            for part, prefix in zip(parts, ("stem", "block.0", "block.1"), strict=True)
        ],
        lr=0.1,
    )
    assert names(told) == {"lr", "lr[stem]", "lr[block.0]", "lr[block.1]"}


def test_digits_in_brackets_are_the_index_whatever_the_modules_are_called() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(
        [
            {"params": list(model[2].parameters()), "lr": 1e-2},
            {"params": list(model[0].parameters()), "lr": 1e-3},
        ]
    )
    session = Session(directory=None)
    session.bind_model(model)
    add_optimizer_knobs(session, optimizer)
    assert [name for name in session.knobs if name.startswith("lr")] == ["lr", "lr[0]", "lr[1]"]
    assert [m.name for m in session.knobs["lr"].view().members] == ["0", "1"]
    with session.run():
        session.submit({"type": "set_knob", "payload": {"name": "lr[0]", "value": 0.05}})
        session.pump()
    assert both(optimizer, "lr") == (0.05, 1e-3)


@pytest.mark.parametrize("paths", [("0", "2"), ("stem", "1"), ("1.0", "1.2"), ("0.0", "stem.1")])
def test_names_of_modules_that_read_like_an_index_name_no_group(paths: tuple[str, str]) -> None:
    parts = [nn.Linear(2, 2), nn.Linear(2, 2)]
    groups = [
        {"params": list(part.named_parameters(prefix))}
        for part, prefix in zip(parts, paths, strict=True)
    ]
    session = Session(directory=None)
    add_optimizer_knobs(session, torch.optim.SGD(groups, lr=0.1))
    assert [name for name in session.knobs if name.startswith("lr")] == ["lr", "lr[0]", "lr[1]"]


def test_a_given_name_that_is_another_groups_index_is_not_used_and_told() -> None:
    def names(*given: Any) -> tuple[list[str], list[str]]:
        groups = [{"params": parameters(), "name": each} for each in given]
        session = Session(directory=None)
        add_optimizer_knobs(session, torch.optim.SGD(groups, lr=0.1))
        return [name for name in session.knobs if name.startswith("lr[")], session.warnings

    assert names("0", 1) == (["lr[0]", "lr[1]"], [])
    found, told = names("1", "0")
    assert found == ["lr[0]", "lr[1]"]
    assert len(told) == 2 and "parameter group 0 is called '1'" in told[0]
    found, told = names("body", 0)
    assert found == ["lr[body]", "lr[1]"]
    assert len(told) == 1 and "it goes by '1'" in told[0]
    single = Session(directory=None)
    add_optimizer_knobs(single, torch.optim.SGD([{"params": parameters(), "name": "1"}], lr=0.1))
    assert "lr[0]" in single.knobs and "lr[1]" not in single.knobs


def test_a_group_can_be_asked_for_by_number_also_when_it_has_a_name() -> None:
    optimizer = decay_groups()
    session = Session(directory=None)
    add_optimizer_knobs(session, optimizer)
    assert session.knobs["lr[1]"] is session.knobs["lr[no_decay]"]
    assert session.knobs["learning_rate"] is session.knobs["lr"]

    single = Session(directory=None)
    add_optimizer_knobs(single, torch.optim.SGD(parameters(), lr=0.1))
    assert "lr[0]" in single.knobs and "lr[0]" not in list(single.knobs)


def test_a_group_added_in_mid_run_gets_its_knobs() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with run() as (session, _):
        train(optimizer, 2, session=session)
        optimizer.add_param_group({"params": parameters(), "lr": 0.01})
        train(optimizer, 3, None, {2: {"name": "lr", "value": 0.2}}, session=session)

    assert {"lr", "lr[0]", "lr[1]"} <= set(session.knobs)
    assert both(optimizer, "lr") == pytest.approx((0.2, 0.02))


def test_many_groups_have_lr_and_weight_decay_of_each_alone() -> None:
    session = Session(directory=None)
    optimizer = torch.optim.AdamW([{"params": parameters(), "lr": 0.9**i} for i in range(40)])
    add_optimizer_knobs(session, optimizer)
    assert {"lr[39]", "weight_decay[39]", "betas[0]"} <= set(session.knobs)
    assert "eps[39]" not in session.knobs


@pytest.mark.parametrize(
    ("lrs_before", "value", "lrs_after"),
    [
        # As the Trainer of Hugging Face makes them: decay and no decay, one lr.
        ((0.1, 0.1), 0.013, (0.013, 0.013)),
        ((0.07, 0.007), 0.03, (0.03, 0.003)),
        ((3e-4, 3e-5, 3e-4), 1e-5, (1e-5, 1e-6, 1e-5)),
    ],
)
def test_C18_in_proportion_is_what_one_would_write_down(
    lrs_before: tuple[float, ...], value: float, lrs_after: tuple[float, ...]
) -> None:
    optimizer = torch.optim.SGD([{"params": parameters(), "lr": lr} for lr in lrs_before])
    with run() as (session, _):
        train(optimizer, 2, None, {1: {"name": "lr", "value": value}}, session=session)
    assert both(optimizer, "lr") == lrs_after
