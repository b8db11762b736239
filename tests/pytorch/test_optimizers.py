"""Knobs of every optimizer in torch.optim, and what they do to its weights."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch.optim import Optimizer

from it2nb.core.session import Session
from it2nb.pytorch.admission import objection
from it2nb.pytorch.groups import Cell
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.hyper import ALL, CLASSES, Training, another_value, make, settings_of
from tests.pytorch.steering import parameters, record, rows, run, statuses, train


def test_every_optimizer_is_covered() -> None:
    assert len(CLASSES) >= 14
    assert {"Muon", "Adafactor", "LBFGS", "SparseAdam", "ASGD", "Rprop"} <= set(CLASSES)


@pytest.mark.parametrize("name", CLASSES)
def test_every_hyper_parameter_is_a_knob_with_type_bounds_and_words(name: str) -> None:
    session = Session(directory=None)
    optimizer = make(name)
    add_optimizer_knobs(session, optimizer)

    machinery = {"foreach", "fused", "capturable", "differentiable"}
    expected = set()
    for key, value in optimizer.defaults.items():
        if key in machinery:
            continue
        parts = value if isinstance(value, tuple) else [value]
        names = [f"{key}[{i}]" for i in range(len(parts))] if len(parts) > 1 else [key]
        expected |= {n for n, each in zip(names, parts, strict=True) if each is not None}
        if value is None and key in ("line_search_fn", "adjust_lr_fn"):
            expected.add(key)
    assert set(session.knobs) == expected
    for knob in session.knobs.values():
        view = knob.view()
        assert view.description and view.group == name, view.name
        if view.dtype in ("float", "int"):
            assert view.value is not None
            assert view.min is None or view.min <= view.value
            assert view.max is None or view.value <= view.max
        if view.name in ("lr", "eps", "weight_decay"):
            assert view.scale == "log" and view.dtype == "float"
        assert view.out_of_bounds == "reject"


@pytest.mark.parametrize(("name", "knob"), ALL)
def test_bounds_are_those_of_the_constructor(name: str, knob: str) -> None:
    """The ends of a knob's range are values with which the optimizer could have been made."""
    cell, rule = next((c, r) for c, r in settings_of(name) if c.name == knob)
    if rule.disabled is not None:
        return
    optimizer = make(name)
    for value in (rule.min, rule.max, *(rule.choices or ())):
        if value is None and rule.dtype != "choice":
            continue
        group = dict(optimizer.param_groups[0])
        if objection(optimizer, group, cell, value) is not None:
            continue
        cell.write(group, value)
        options = {k: group[k] for k in optimizer.defaults if k != "decoupled_weight_decay"}
        if name == "LBFGS" or "decoupled_weight_decay" not in optimizer.defaults:
            options = {k: group[k] for k in optimizer.defaults}
        make(name, **options)


@pytest.mark.parametrize(("name", "knob"), ALL)
def test_weights_are_those_of_a_loop_that_sets_the_group_by_hand(name: str, knob: str) -> None:
    """Bit for bit, and nothing else in the groups has changed."""
    cell, rule = next((c, r) for c, r in settings_of(name) if c.name == knob)
    options = {"nesterov": True, "momentum": 0.9} if name == "SGD" and knob == "momentum" else {}
    if name == "SGD" and knob == "nesterov":
        options = {"momentum": 0.9}
    ours, reference = Training(name, **options), Training(name, **options)
    value = another_value(ours.optimizer, cell, rule)
    first = cell.read(reference.optimizer.param_groups[0])
    asked = {4: value, 7: first}
    with run() as (session, _):
        for step in range(1, 9):
            if step in asked:
                payload = {"name": knob, "value": asked[step]}
                session.submit({"type": "set_knob", "payload": payload})
            ours.step()
            reference.step()
            if step in asked and rule.disabled is None:
                for group in reference.optimizer.param_groups:
                    by_hand(reference.optimizer, group, cell, asked[step])

    if rule.disabled is not None:
        assert statuses(session) == ["rejected", "rejected"]
        assert rows(session, "action_result")[0]["reason"] == rule.disabled
    else:
        assert statuses(session) == ["applied", "applied"]
    for one, other in zip(ours.weights, reference.weights, strict=True):
        assert torch.equal(one, other)
        assert torch.isfinite(one).all()
    for mine, theirs in zip(
        ours.optimizer.param_groups, reference.optimizer.param_groups, strict=True
    ):
        assert {k: v for k, v in mine.items() if k != "params"} == {
            k: v for k, v in theirs.items() if k != "params"
        }


def by_hand(optimizer: Optimizer, group: dict[str, Any], cell: Cell, value: Any) -> None:
    """What a careful user would do."""
    if cell.index is None:
        group[cell.key] = value
    else:
        parts = list(group[cell.key])
        parts[cell.index] = value
        group[cell.key] = tuple(parts)
    if type(optimizer).__name__ == "RMSprop" and cell.key == "momentum" and value > 0:
        for each in group["params"]:
            optimizer.state[each].setdefault("momentum_buffer", torch.zeros_like(each))


FLAVOURS: list[tuple[str, dict[str, Any]]] = [
    *((name, {"foreach": True}) for name in CLASSES if name not in ("LBFGS", "Muon", "SparseAdam")),
    *((name, {"fused": True}) for name in ("Adam", "AdamW", "SGD", "Adagrad")),
    *(
        (name, {"lr": torch.tensor(0.05)})
        for name in CLASSES
        if name not in ("LBFGS", "SparseAdam")
    ),
]


@pytest.mark.parametrize(
    ("name", "options"), FLAVOURS, ids=[f"{n}-{next(iter(o))}" for n, o in FLAVOURS]
)
def test_foreach_fused_and_tensor_lr_take_edits_alike(name: str, options: dict[str, Any]) -> None:
    ours, reference = (Training(name, **copy.deepcopy(options)) for _ in range(2))
    kept = [group["lr"] for group in ours.optimizer.param_groups]
    with run() as (session, _):
        for step in range(1, 7):
            if step == 3:
                session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.011}})
            ours.step()
            reference.step()
            if step == 3:
                for group in reference.optimizer.param_groups:
                    if isinstance(group["lr"], torch.Tensor):
                        group["lr"].fill_(0.011)
                    else:
                        group["lr"] = 0.011
        shown = session.knobs["lr"].value

    assert shown == 0.011
    assert statuses(session) == ["applied"]
    for one, other in zip(ours.weights, reference.weights, strict=True):
        assert torch.equal(one, other)
    if "lr" in options:
        now = [group["lr"] for group in ours.optimizer.param_groups]
        assert all(one is other for one, other in zip(kept, now, strict=True))


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_tensor_betas_are_filled_in_place(name: str) -> None:
    betas = (torch.tensor(0.9), torch.tensor(0.99))
    optimizer = make(name, betas=betas)
    with run() as (session, _):
        train(optimizer, 3, None, {1: {"name": "betas[0]", "value": 0.5}}, session=session)

    assert optimizer.param_groups[0]["betas"][0] is betas[0]
    assert betas[0].item() == 0.5 and betas[1].item() == pytest.approx(0.99)


def test_an_int_lr_is_accepted_and_may_become_a_float() -> None:
    optimizer = torch.optim.SGD(parameters(), lr=1)
    with run() as (session, _):
        train(optimizer, 2, None, {1: {"name": "lr", "value": 0.5}}, session=session)

    assert optimizer.param_groups[0]["lr"] == 0.5
    assert type(session.knobs["lr"].value) is float


@pytest.mark.parametrize(
    "bad", [-1, math.nan, math.inf, "0.01", True, None, 1e999, [0.1], 1e12, -1e-30]
)
def test_C16_bad_values_are_rejected_and_the_next_step_uses_the_old_one(bad: Any) -> None:
    optimizer = torch.optim.AdamW(parameters(), lr=0.1)
    with run() as (session, _):
        used = record(optimizer)
        train(
            optimizer, 4, None,
            {
                2: [
                    {"name": "lr", "value": bad},
                    {"name": "betas[1]", "value": bad if bad != 1e-30 else 1.5},
                ]
            },
            session=session,
        )  # fmt: skip

    assert statuses(session) == ["rejected", "rejected"]
    assert used == [0.1] * 4
    assert all(torch.isfinite(w).all() for w in optimizer.param_groups[0]["params"])


@pytest.mark.parametrize("value", [1.0, 1.5, -0.1])
def test_C16_betas_at_or_above_1_are_never_set(value: float) -> None:
    for name in ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam"):
        session = Session(directory=None)
        optimizer = make(name)
        add_optimizer_knobs(session, optimizer)
        with session.run():
            session.submit({"type": "set_knob", "payload": {"name": "betas[1]", "value": value}})
            session.pump()
        assert statuses(session) == ["rejected"]
        assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)


def test_combinations_that_the_constructor_refuses_are_rejected() -> None:
    session = Session(directory=None)
    plain = torch.optim.SGD(parameters(), lr=0.1)
    add_optimizer_knobs(session, plain, name="plain")
    prop = torch.optim.Rprop(parameters())
    add_optimizer_knobs(session, prop, name="prop")
    asked = [
        ("plain.nesterov", True),
        ("prop.step_sizes[0]", 100.0),
        ("prop.step_sizes[1]", 1e-9),
        ("prop.etas[0]", 1.0),
        ("prop.etas[1]", 1.0),
    ]
    with session.run():
        for name, value in asked:
            session.submit({"type": "set_knob", "payload": {"name": name, "value": value}})
        session.pump()

    assert statuses(session) == ["rejected"] * len(asked)
    assert plain.param_groups[0]["nesterov"] is False
    assert prop.param_groups[0]["step_sizes"] == (1e-6, 50)


def test_rprop_says_that_lr_is_its_first_step_alone() -> None:
    optimizer = torch.optim.Rprop(parameters())
    with run() as (session, _):
        train(optimizer, 2, None, {1: {"name": "lr", "value": 0.02}}, session=session)
    assert "set step_sizes[0]" in rows(session, "note")[0]["text"]
