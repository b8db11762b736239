from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest
import torch

from it2nb.core.session import Session
from it2nb.notebook.options import Watch
from it2nb.notebook.watch import PATIENCE_STEPS, Watcher


class Watched:
    """A session and a watcher whose control points are reached from code like a cell's."""

    def __init__(
        self,
        *watches: str,
        expected: tuple[str, ...] = (),
        own: tuple[str, ...] = (),
        before: str = "",
    ) -> None:
        self.session = Session(directory=None)
        self.space: dict[str, Any] = {"__name__": "__main__", "torch": torch, "np": np}
        exec(before, self.space)
        pairs = [each.split("=", 1) if "=" in each else (each, each) for each in watches]
        self.watcher = Watcher(
            [Watch(*pair) for pair in pairs],
            self.space,
            self.session,
            frozenset(expected),
            frozenset(own),
        )
        self.seen: list[dict[str, float]] = []
        self.space["point"] = self.point

    def point(self) -> None:
        values = self.watcher()
        self.seen.append(values)
        self.session.step(values)

    def run(self, source: str) -> list[dict[str, float]]:
        exec(compile(source, "<cell>", "exec"), self.space)
        return self.seen


def test_globals_are_recorded_as_floats() -> None:
    watched = Watched("loss", "acc")
    seen = watched.run(
        "for i in range(3):\n"
        "    loss = torch.tensor(float(i), requires_grad=True) * 2\n    acc = i / 10\n    point()"
    )
    assert seen == [{"loss": 2.0 * i, "acc": i / 10} for i in range(3)]
    assert all(type(value) is float for row in seen for value in row.values())


def test_a_local_of_a_function_is_found_innermost_first() -> None:
    watched = Watched("loss", "epoch")
    seen = watched.run(
        "loss = 99.0\n"
        "def batch(i):\n    loss = i * 1.5\n    point()\n"
        "def train():\n    for epoch in (1, 2): batch(epoch)\n"
        "train()"
    )
    assert seen == [{"loss": 1.5, "epoch": 1.0}, {"loss": 3.0, "epoch": 2.0}]


def test_closures_have_their_variables_too() -> None:
    watched = Watched("loss")
    seen = watched.run(
        "def train():\n    loss = 0.0\n    def inner(i):\n        nonlocal loss\n"
        "        loss = i + 0.5\n        point()\n    for i in range(2): inner(i)\ntrain()"
    )
    assert seen == [{"loss": 0.5}, {"loss": 1.5}]


def test_only_what_was_rebound_or_changed_in_place_is_recorded() -> None:
    watched = Watched("loss", "total", "best")
    seen = watched.run(
        "total = torch.zeros(())\nbest = 0.123\nloss = 1.5\n"
        "point()\npoint()\ntotal += 2\npoint()\nloss = loss + 1\npoint()"
    )
    assert seen == [{"loss": 1.5, "total": 0.0, "best": 0.123}, {}, {"total": 2.0}, {"loss": 2.5}]


def test_a_new_tensor_at_an_old_address_is_new() -> None:
    watched = Watched("loss")
    seen = watched.run(
        "def step(i):\n    loss = torch.tensor(float(i))\n    point()\nfor i in range(50): step(i)"
    )
    assert [row["loss"] for row in seen] == list(range(50))


def test_no_tensor_and_no_graph_is_kept_alive() -> None:
    watched = Watched("loss")
    refs: list[Any] = []
    watched.space["refs"] = refs
    watched.space["weakref"] = weakref
    watched.run(
        "def step():\n"
        "    activations = torch.ones(8, requires_grad=True)\n"
        "    out = activations * 2\n"
        "    refs.append(weakref.ref(out))\n"
        "    loss = out.sum()\n"
        "    point()\n"
        "    del out, loss, activations\n"
        "    gone.append(refs[-1]() is None)\n"
        "gone = []\nfor _ in range(3): step()"
    )
    gc.collect()
    # Inside the very function whose variables were read: no copy of them stayed behind.
    assert watched.space["gone"] == [True, True, True]
    assert len(refs) == 3


def test_the_user_s_own_locals_stay_as_they_are() -> None:
    watched = Watched("loss")
    watched.run(
        "def step():\n    kept = locals()\n    loss = 1.0\n    config = locals()\n    point()\n"
        "    return sorted(config)\nfound = step()"
    )
    assert set(watched.space["found"]) >= {"kept", "loss"}
    assert watched.seen == [{"loss": 1.0}]


def test_expressions_and_dotted_names() -> None:
    watched = Watched("lr=opt.param_groups[0]['lr']", "m=max(a, b)", "net.scale")
    seen = watched.run(
        "class O: param_groups = [{'lr': 0.1}]\nopt = O()\na, b = 1, 2\n"
        "class N: scale = 3\nnet = N()\npoint()"
    )
    assert seen == [{"lr": 0.1, "m": 2.0, "net.scale": 3.0}]


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("np.float32(0.5)", 0.5),
        ("np.array(2)", 2.0),
        ("np.array([3.0])", 3.0),
        ("torch.tensor([4.0])", 4.0),
        ("torch.tensor(5, dtype=torch.int64)", 5.0),
        ("torch.tensor(0.5, dtype=torch.bfloat16)", 0.5),
        ("True", 1.0),
        ("7", 7.0),
    ],
)
def test_what_is_one_number_is_taken(source: str, value: float) -> None:
    assert Watched("x").run(f"x = {source}\npoint()") == [{"x": value}]


def test_nan_and_infinities_are_values() -> None:
    [row] = Watched("a", "b").run("a = torch.tensor(float('nan'))\nb = float('-inf')\npoint()")
    assert np.isnan(row["a"]) and row["b"] == -np.inf


def test_a_dict_of_numbers_is_taken_key_by_key_when_it_changed() -> None:
    seen = Watched("logs").run(
        "logs = {'loss': torch.tensor(1.0, requires_grad=True), 'text': 'x', 'acc': 0.5}\n"
        "point()\npoint()\nlogs['acc'] = 0.75\npoint()"
    )
    assert seen == [
        {"logs/loss": 1.0, "logs/acc": 0.5},
        {},
        {"logs/loss": 1.0, "logs/acc": 0.75},
    ]


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("torch.zeros(10)", "it has 10 elements; watch one number, its mean()"),
        ("'text'", "a str is no number"),
        ("torch.zeros((), device='meta')", "has no value"),
    ],
)
def test_what_is_no_number_is_told_once(source: str, said: str) -> None:
    watched = Watched("x")
    assert watched.run(f"for _ in range(3):\n    x = {source}\n    point()") == [{}, {}, {}]
    assert len(watched.session.warnings) == 1
    assert said in watched.session.warnings[0]


def test_a_missing_name_is_told_once_and_no_error() -> None:
    watched = Watched("los")
    watched.run("loss = 1.0\nfor _ in range(3): point()")
    watched.watcher.finish()
    assert watched.session.warnings == [
        "--watch los: there is no such value after 1 steps; did you mean 'loss'?"
    ]


def test_a_name_that_the_cell_binds_later_is_waited_for() -> None:
    watched = Watched("val", expected=("val",))
    watched.run("for _ in range(5): point()\nval = 0.5\npoint()")
    assert watched.session.warnings == []
    assert watched.seen[-1] == {"val": 0.5}
    never = Watched("val", expected=("val",))
    never.run(f"for _ in range({PATIENCE_STEPS}): point()")
    assert never.session.warnings == [
        f"--watch val: there is no such value after {PATIENCE_STEPS} steps"
    ]


def test_a_mistyped_name_is_told_with_the_one_that_was_meant() -> None:
    watched = Watched("loss", "acccc", "far=los_of(x)")
    watched.run("def step():\n    acc = loss = 1.0\n    point()\nfor _ in range(3): step()")
    assert watched.session.warnings == [
        "--watch acccc: there is no such value after 1 steps; did you mean 'acc'?",
        "--watch far: there is no such value after 1 steps; did you mean 'loss'?",
    ]


def test_only_what_can_be_recorded_is_taken_for_what_was_meant() -> None:
    source = "def val(): pass\nlosses = []\nclass Vall: pass\nfor _ in range(3): point()"
    for name in ("vall", "losse"):
        watched = Watched(name)
        watched.run(source)
        assert watched.session.warnings == [f"--watch {name}: there is no such value after 1 steps"]


def test_a_value_that_never_comes_leaves_the_plots_and_is_there_again_when_it_comes() -> None:
    watched = Watched("los", "loss")
    watched.session.watch = ["los", "loss"]
    watched.run(f"loss = 1.0\nfor _ in range({PATIENCE_STEPS}): point()")
    assert watched.session.watch == ["loss"]
    watched.run("los = 2.0\npoint()")
    assert watched.session.watch == ["loss", "los"]


def test_a_value_that_raises_is_a_fault_and_the_run_goes_on() -> None:
    watched = Watched("x=1 / zero", "y")
    assert watched.run("zero = 0\ny = 1.0\npoint()") == [{"y": 1.0}]
    assert "ZeroDivisionError" in watched.session.warnings[0]


class Slow(torch.Tensor):
    """A tensor that says it lives on an accelerator."""

    @property
    def device(self) -> Any:  # type: ignore[override]
        return torch.device("xpu")

    def detach(self) -> Any:
        return self


def test_a_number_on_an_accelerator_is_read_a_step_later_for_its_own_step() -> None:
    watched = Watched("loss")
    watched.space["slow"] = lambda x: torch.tensor(x).as_subclass(Slow)
    watched.run("for i in range(3):\n    loss = slow(i + 0.5)\n    point()\n    loss += 100")
    assert watched.seen == [{}, {}, {}]
    watched.watcher.finish()
    frame = watched.session.metrics.frame()
    assert list(zip(frame["step"], frame["loss"], strict=True)) == [(1, 0.5), (2, 1.5), (3, 2.5)]


def test_library_frames_are_no_user_frames() -> None:
    # torch's own functions have locals called `loss` too.
    watched = Watched("weight")
    watched.space["weight"] = 1.0

    class Calls(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            watched.point()
            return x

    watched.space["module"] = Calls()
    watched.run("module(torch.zeros(1))")
    assert watched.seen == [{"weight": 1.0}]


@pytest.mark.parametrize(
    "old", ["0.25", "torch.tensor(0.25)", "np.float64(0.25)", "np.array(0.25)", "{'acc': 0.25}"]
)
def test_what_an_earlier_cell_left_is_no_value_of_this_run(old: str) -> None:
    watched = Watched("acc", "best=acc", own=("acc",), expected=("acc",), before=f"acc = {old}")
    seen = watched.run(
        "point(); point()\n"
        "def step():\n    point()\n"
        "step()\n"
        "acc = 0.5\npoint(); step()\nacc = 0.75; point()"
    )
    new = [{"acc": 0.5, "best": 0.5}, {}, {"acc": 0.75, "best": 0.75}]
    assert seen == [{}, {}, {}, *new]
    assert watched.session.warnings == []


def test_a_variable_that_the_cell_does_not_set_has_its_value_from_the_start() -> None:
    watched = Watched("scale", "epoch", own=("epoch",), before="scale = 0.25; epoch = 0")
    assert watched.run("epoch = 0\npoint()") == [{"scale": 0.25, "epoch": 0.0}]


def test_what_was_left_and_never_set_is_told_and_not_kept_alive() -> None:
    watched = Watched("acc", own=("acc",), expected=("acc",), before="acc = torch.ones(())")
    kept = weakref.ref(watched.space["acc"])
    watched.run("for _ in range(3): point()")
    watched.watcher.finish()
    assert watched.session.warnings == ["--watch acc: it was never set"]
    del watched.space["acc"]
    gc.collect()
    assert kept() is None


LATER = {
    "cell": "for i in range(1, 6): loss = step(i * 10.0)",
    "lines": "for i in range(1, 6):\n    out = step(\n        i * 10.0\n    )\n    loss = out",
    "global": "def train():\n    global loss\n"
    "    for i in range(1, 6): loss = step(i * 10.0)\n"
    "train()",
    "while": "i = 0\nwhile i < 5:\n    i += 1\n    loss = step(i * 10.0)",
    "epochs": "i = 0\nfor _ in range(5):\n"
    "    for _ in range(1):\n        i += 1\n        loss = step(i * 10.0)",
    "unrolled": "\n".join(f"loss = step({i * 10.0})" for i in range(1, 6)),
    "broken off": "try:\n"
    "    for i in range(1, 9):\n        loss = step(i * 10.0)\n        if i == 5: 1 / 0\n"
    "except ZeroDivisionError: pass",
    "initial": "loss = 7.0\nfor i in range(1, 6): loss = step(i * 10.0)",
    "comprehension": "loss = [step(10.0) for i in range(5)][-1] * 5",
}


@pytest.mark.parametrize("source", LATER.values(), ids=LATER)
def test_C13_a_value_that_is_set_after_its_step_is_recorded_for_that_step(source: str) -> None:
    watched = Watched("loss", "half=loss / 2", own=("loss",), expected=("loss",))
    watched.run("def step(value):\n    point()\n    return value\n" + source)
    watched.watcher.finish()
    frame = watched.session.metrics.frame()
    rows = list(zip(frame["step"], frame["loss"], frame["half"], strict=True))
    right = [(i, i * 10.0, i * 5.0) for i in range(1, 6)]
    assert rows == (right[-1:] if "[-1]" in source else right)
    assert watched.session.warnings == []


def test_C13_a_local_that_is_set_after_its_step_is_of_that_step() -> None:
    watched = Watched("loss")
    watched.run(
        "def step(value):\n    point()\n    return value\n"
        "def train():\n    for i in range(1, 6): loss = step(i * 10.0)\n"
        "train()"
    )
    watched.watcher.finish()
    frame = watched.session.metrics.frame()
    # The last one went with its function.
    assert list(zip(frame["step"], frame["loss"], strict=True)) == [
        (i, i * 10.0) for i in range(1, 5)
    ]


def test_C13_a_value_of_each_epoch_is_of_the_last_step_of_it() -> None:
    watched = Watched("acc", "loss", own=("acc", "loss"), expected=("acc", "loss"))
    watched.run(
        "for epoch in range(2):\n"
        "    for batch in range(3):\n        loss = epoch * 10.0 + batch\n        point()\n"
        "    acc = epoch + 0.5"
    )
    watched.watcher.finish()
    frame = watched.session.metrics.frame().set_index("step")
    assert frame["acc"].dropna().to_dict() == {3: 0.5, 6: 1.5}
    assert frame["loss"].to_dict() == {1: 0.0, 2: 1.0, 3: 2.0, 4: 10.0, 5: 11.0, 6: 12.0}


def test_a_sum_that_each_epoch_begins_anew_is_recorded_as_it_stands() -> None:
    watched = Watched("total")
    watched.run(
        "for epoch in range(2):\n    total = 0.25\n"
        "    for batch in range(2):\n        point()\n        total += 1"
    )
    assert watched.seen == [{"total": 0.25}, {"total": 1.25}, {"total": 0.25}, {"total": 1.25}]


def test_a_late_number_on_an_accelerator_goes_to_its_own_step() -> None:
    watched = Watched("loss")
    watched.space["slow"] = lambda x: torch.tensor(x).as_subclass(Slow)
    watched.run("for i in range(3):\n    point()\n    loss = slow(i + 0.5)")
    watched.watcher.finish()
    frame = watched.session.metrics.frame()
    assert list(zip(frame["step"], frame["loss"], strict=True)) == [(1, 0.5), (2, 1.5), (3, 2.5)]


CONSTANT = {
    "number": "for i in range(4):\n    reward = 1.0\n    point()",
    "whole": "for i in range(4):\n    reward = int(i >= 0)\n    point()",
    "truth": "for i in range(4):\n    reward = i >= 0\n    point()",
    "chosen": "for i in range(4):\n    reward = 1.0 if i >= 0 else 0.0\n    point()",
    "local": "def train():\n    for i in range(4):\n        reward = 1\n        point()\ntrain()",
    "while": "i = 0\nwhile i < 4:\n    reward = 1\n    i += 1\n    point()",
    "skipped": "for i in range(8):\n    if i % 2: continue\n    reward = 1\n    point()",
}


@pytest.mark.parametrize("source", CONSTANT.values(), ids=CONSTANT)
def test_C13_a_number_that_is_set_to_the_same_in_each_turn_is_recorded_each_time(
    source: str,
) -> None:
    watched = Watched("reward")
    assert watched.run(source) == [{"reward": 1.0}] * 4


@pytest.mark.parametrize(
    "source",
    [
        "acc = 1\nfor i in range(3): point()",
        "for i in range(3):\n    if i == 0: acc = 1\n    point()",
        "for epoch in range(1):\n    acc = 1\n    for i in range(3): point()",
        "for i in range(3):\n    acc = 1\n    point(); point(); point(); break",
    ],
)
def test_a_number_that_was_left_alone_is_recorded_once(source: str) -> None:
    watched = Watched("acc")
    assert watched.run(source) == [{"acc": 1.0}, {}, {}]
