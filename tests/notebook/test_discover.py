from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import ChainedScheduler, ReduceLROnPlateau, StepLR

from it2nb.core.errors import KnobError
from it2nb.notebook.discover import find, is_there, of_optimizer, root_of, variable_knob
from it2nb.notebook.options import KnobSpec


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1))


@pytest.fixture
def space() -> dict[str, Any]:
    model, teacher = net(), net()
    opt = SGD(model.parameters(), lr=0.1)
    return {
        "model": model,
        "layer": model[0],  # type: ignore[index]
        "teacher": teacher,
        "criterion": nn.CrossEntropyLoss(),
        "opt": opt,
        "sched": StepLR(opt, 1),
        "scaler": torch.amp.GradScaler("cpu"),
        "_1": AdamW(net().parameters()),
        "n": 3,
    }


def test_what_is_trained_is_found_by_name(space: dict[str, Any]) -> None:
    found = find(space)
    assert list(found.models) == ["model"]
    assert list(found.optimizers) == ["opt"]
    assert list(found.schedulers) == ["sched"]
    assert list(found.scalers) == ["scaler"]
    assert found.names()[id(space["opt"])] == "opt"


def test_leftovers_of_earlier_cells_are_left_out_when_the_cell_uses_others(
    space: dict[str, Any],
) -> None:
    other = net()
    space["old_model"], space["old_opt"] = other, AdamW(other.parameters())
    assert set(find(space).optimizers) == {"opt", "old_opt"}
    used = find(space, {"opt", "model", "loader"})
    assert (list(used.optimizers), list(used.models)) == (["opt"], ["model"])
    # The scheduler belongs to the optimizer, whether the cell names it or not.
    assert list(used.schedulers) == ["sched"]


def test_members_of_lists_dicts_and_own_objects_are_found() -> None:
    g, d = net(), net()

    class Trainer:
        pass

    Trainer.__module__ = "__main__"
    trainer: Any = Trainer()
    trainer.opt = SGD(d.parameters(), lr=0.1)
    space = {"opts": [SGD(g.parameters(), lr=0.1)], "nets": {"g": g, "d": d}, "trainer": trainer}
    found = find(space)
    assert set(found.optimizers) == {"opts[0]", "trainer.opt"}
    assert set(found.models) == {"nets['g']", "nets['d']"}
    foreign = {"plain": SimpleNamespace(opt=trainer.opt)}
    assert find(foreign).optimizers == {}


def test_parts_of_schedulers_are_left_out(space: dict[str, Any]) -> None:
    one = StepLR(space["opt"], 1)
    space["inner"], space["chain"] = one, ChainedScheduler([one])
    assert set(find(space).schedulers) == {"sched", "chain"}
    space["plateau"] = ReduceLROnPlateau(space["opt"])
    assert "plateau" in find(space).schedulers


def test_what_belongs_to_an_optimizer_in_a_function() -> None:
    mine, other = net(), net()
    opt = SGD(mine.parameters(), lr=0.1)
    scopes = [
        {"net": mine, "o": opt, "s": StepLR(opt, 1)},
        {"other": other, "o2": SGD(other.parameters(), lr=0.1), "net": other},
    ]
    found = of_optimizer(opt, scopes)
    assert (list(found.optimizers), list(found.models), list(found.schedulers)) == (
        ["o"], ["net"], ["s"],
    )  # fmt: skip
    assert found.models["net"] is mine
    assert list(of_optimizer(opt, []).optimizers) == ["optimizer"]


def test_a_namespace_without_any_is_empty() -> None:
    found = find({"x": 1, "torch": torch})
    assert not (found.models or found.optimizers or found.schedulers or found.scalers)


# ------------------------------------------------------------------- variables as knobs


def test_a_variable_is_read_and_set_where_it_lives() -> None:
    space: dict[str, Any] = {"clip": 1.0}
    knob = variable_knob(KnobSpec("clip", 0.1, 10, "log"), space)
    assert (knob.dtype, knob.value) == ("float", 1.0)
    assert (knob.min, knob.max, knob.scale) == (0.1, 10, "log")
    knob.set(2.5)
    assert space["clip"] == 2.5


@pytest.mark.parametrize(
    ("value", "spec", "dtype"),
    [
        (1, KnobSpec("x", 0, 9), "int"),
        (1, KnobSpec("x", 0.5, 9), "float"),
        (True, KnobSpec("x"), "bool"),
        ("adam", KnobSpec("x"), "str"),
        ("adam", KnobSpec("x", choices=("adam", "sgd")), "choice"),
        (0.5, KnobSpec("x"), "float"),
    ],
)
def test_the_type_is_that_of_the_value(value: Any, spec: KnobSpec, dtype: str) -> None:
    assert variable_knob(spec, {"x": value}).dtype == dtype


def test_attributes_and_items_are_set_in_their_object() -> None:
    space: dict[str, Any] = {"cfg": SimpleNamespace(clip=1.0), "d": {"k": [0.5]}}
    variable_knob(KnobSpec("cfg.clip", 0, 9), space).set(3.0)
    variable_knob(KnobSpec("d['k'][0]", 0, 9), space).set(0.75)
    assert (space["cfg"].clip, space["d"]["k"]) == (3.0, [0.75])
    assert set(space) == {"cfg", "d"}


def test_a_missing_variable_is_named_with_near_ones() -> None:
    spec = KnobSpec("clp", 0, 1)
    assert not is_there(spec, {"clip": 1.0})
    with pytest.raises(KnobError, match=r"no such variable.*did you mean 'clip'"):
        variable_knob(spec, {"clip": 1.0})


@pytest.mark.parametrize(
    ("value", "dtype", "asked"),
    [
        (np.float32(0.5), "float", 0.25),
        (np.float64(0.5), "float", 0.25),
        (np.int64(3), "int", 4),
        (np.bool_(True), "bool", False),
    ],
)
def test_a_number_of_numpy_is_steered_and_stays_one(value: Any, dtype: str, asked: Any) -> None:
    space: dict[str, Any] = {"x": value, "d": {"k": value}}
    for name in ("x", "d['k']"):
        knob = variable_knob(KnobSpec(name), space)
        assert knob.dtype == dtype
        assert knob.apply(knob.coerce(asked)).status == "applied"
        assert knob.value == asked
    assert [type(space["x"]), type(space["d"]["k"])] == [type(value)] * 2


def test_a_variable_that_no_knob_can_hold_is_refused() -> None:
    with pytest.raises(KnobError, match="holds a list"):
        variable_knob(KnobSpec("x"), {"x": [1]})


@pytest.mark.parametrize(
    ("target", "root"), [("x", "x"), ("cfg.a.b", "cfg"), ("d['k'][0].x", "d"), ("f(x).y", "f")]
)
def test_the_root_of_a_target(target: str, root: str) -> None:
    assert root_of(target) == root
