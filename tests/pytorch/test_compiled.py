"""Steps inside ``torch.compile``: as many graphs as without us, and every step a control point."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.optim import lr_scheduler as lrs

from it2nb.core.control import StopTraining
from it2nb.pytorch import compiled
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.steering import gradients, parameters, record, rows, run, statuses


@pytest.fixture(autouse=True)
def compiler() -> Any:
    """The compiler of PyTorch, fresh; parts of it that warn of their own age are loaded before."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        importlib.import_module("torch._inductor.cudagraph_trees")
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("lr", ["float", "tensor"])
def test_C41_edits_do_not_recompile_a_compiled_step(lr: str) -> None:
    def frames(steered: bool) -> tuple[int, list[float], list[torch.Tensor]]:
        torch._dynamo.reset()
        weights = parameters(2)
        optimizer = torch.optim.SGD(weights, lr=torch.tensor(0.1) if lr == "tensor" else 0.1)
        gradients(optimizer)
        counter = CompileCounter()
        step = torch.compile(lambda: optimizer.step(), backend=counter)
        used = record(optimizer) if not steered else []
        if not steered:
            optimizer._optimizer_step_pre_hooks.clear()
        values = [0.1 / (n + 1) for n in range(13)]
        if steered:
            with run() as (session, _):
                add_optimizer_knobs(session, optimizer)
                for value in values:
                    session.submit({"type": "set_knob", "payload": {"name": "lr", "value": value}})
                    step()
                assert session.step_count == 13
                assert set(statuses(session)) == {"applied"}
                # An edit holds for the step after the one at whose end it was served.
                used = values
        else:
            group = optimizer.param_groups[0]
            for value in [values[0], *values[:-1]]:
                group["lr"].fill_(value) if lr == "tensor" else group.update(lr=value)
                step()
        return counter.frame_count, used, [w.detach().clone() for w in weights]

    plain, _, wanted = frames(steered=False)
    ours, _, got = frames(steered=True)
    assert ours == plain
    assert ours <= (2 if lr == "float" else 1)
    for one, other in zip(got, wanted, strict=True):
        assert torch.allclose(one, other)


def test_C41_rescaled_and_held_schedules_do_not_recompile_either() -> None:
    optimizer = torch.optim.AdamW(parameters(2), lr=0.1)
    scheduler = lrs.ExponentialLR(optimizer, 0.9)
    gradients(optimizer)
    counter = CompileCounter()
    step = torch.compile(lambda: optimizer.step(), backend=counter)
    with run([scheduler]) as (session, _):
        for _ in range(3):
            step()
            scheduler.step()
        plain = counter.frame_count
        session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.07}})
        for _ in range(2):
            step()
            scheduler.step()
        # The compiler takes initial_lr for a constant until it changes: once, with the first edit.
        warm = counter.frame_count
        assert warm <= plain + 1
        for n, mode in enumerate(["rescale", "hold", "hold", "rescale", "release", "hold"]):
            payload = {"name": "lr", "value": 0.01 * (n + 1), "mode": mode}
            session.submit({"type": "set_knob", "payload": payload})
            step()
            scheduler.step()
    assert counter.frame_count == warm
    assert session.step_count == 11


def test_stop_ends_a_compiled_step_too() -> None:
    optimizer = torch.optim.SGD(parameters(2), lr=0.1)
    gradients(optimizer)
    step = torch.compile(lambda: optimizer.step(), backend="eager")
    with run() as (session, _):
        step()
        session.submit({"type": "stop"})
        for _ in range(3):
            with pytest.raises(StopTraining):
                step()
    assert session.step_count == 2 and session.status == "stopped"


# --- steps that are one graph ----------------------------------------------------------------


class Plain(torch.optim.Optimizer):
    """Gradient descent as people write it: nothing in it breaks the graph."""

    def __init__(self, weights: Any, lr: float) -> None:
        super().__init__(weights, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for each in group["params"]:
                each.add_(each.grad, alpha=-group["lr"])


class Twice(torch.optim.Optimizer):
    """One that lets another one step inside of its own step."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner.param_groups[0]["params"], {"lr": 0.5})
        self.inner = inner

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step()


def lrs_used(weight: torch.Tensor, call: Callable[[], Any], times: int) -> list[float]:
    """By how much each call moves a weight whose gradient is 1."""
    used = []
    for _ in range(times):
        before = weight[0, 0].item()
        call()
        used.append(round(before - weight[0, 0].item(), 5))
    return used


def ask(session: Any, **payload: Any) -> None:
    session.submit({"type": "set_knob", "payload": payload})


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.Muon, torch.optim.Adafactor, Plain])
def test_C41_a_step_in_one_graph_stays_so_and_each_is_a_control_point(
    kind: Any, fullgraph: bool
) -> None:
    if kind is torch.optim.Adafactor and not fullgraph:
        kind = torch.optim.Muon  # without fullgraph its own `.item()` breaks it
    values = [0.1 / (n + 1) for n in range(6)]

    def trained(steered: bool) -> tuple[int, int, int, list[torch.Tensor]]:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        weights = parameters(2)
        optimizer = kind(weights, lr=0.1)
        gradients(optimizer)
        counter = CompileCounter()

        @torch.compile(backend=counter, fullgraph=fullgraph)
        def step(x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            optimizer.step()
            return y + 1

        if steered:
            with run() as (session, _):
                for value in values:
                    assert step(torch.ones(2)).tolist() == [3.0, 3.0]
                    ask(session, name="lr", value=value)
                step(torch.ones(2))
                # Asked between two steps: served at the end of the next, in force after it.
                assert session.step_count == len(values) + 1
                assert set(statuses(session)) == {"applied"}
                assert [row.step for row in session.journal.since(0) if row.type == "knob_changed"]
        else:
            for value in (0.1, 0.1, *values[:-1]):
                optimizer.param_groups[0]["lr"] = value
                step(torch.ones(2))
        breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
        return breaks, counter.frame_count, counter.op_count, [w.detach().clone() for w in weights]

    ours, plain = trained(True), trained(False)
    assert ours[:3] == plain[:3]
    assert ours[0] == 0
    for one, other in zip(ours[3], plain[3], strict=True):
        assert torch.allclose(one, other)


def test_a_schedule_beside_a_step_in_one_graph_is_rescaled_held_and_released() -> None:
    (weight,) = weights = parameters(1)
    optimizer = Plain(weights, lr=0.1)
    scheduler = lrs.ExponentialLR(optimizer, 0.5)
    gradients(optimizer)
    # PyTorch itself breaks the graph where a scheduler counts the steps.
    step = torch.compile(lambda: optimizer.step(), backend="eager")

    def call() -> None:
        step()
        scheduler.step()

    with run([scheduler]) as (session, _):
        used = lrs_used(weight, call, 2)
        ask(session, name="lr", value=0.2)
        used += lrs_used(weight, call, 3)
        ask(session, name="lr", value=0.4, mode="hold")
        used += lrs_used(weight, call, 3)
        ask(session, name="lr", value=0.4, mode="release")
        used += lrs_used(weight, call, 2)
    assert used[:5] == [0.1, 0.05, 0.025, 0.2, 0.1]
    assert used[5:8] == [0.05, 0.4, 0.4]
    assert used[8] == 0.4
    assert session.step_count == 10


def test_an_lr_that_the_loop_writes_beside_a_step_in_one_graph_is_rescaled() -> None:
    (weight,) = weights = parameters(1)
    optimizer = Plain(weights, lr=0.1)
    gradients(optimizer)
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    formula = iter([0.8, 0.4, 0.2, 0.1, 0.05])

    def call() -> None:
        optimizer.param_groups[0]["lr"] = next(formula)
        step()

    with run() as (session, _):
        used = lrs_used(weight, call, 2)
        ask(session, name="lr", value=0.3)
        used += lrs_used(weight, call, 3)
    assert used == [0.8, 0.4, 0.2, 0.3, 0.15]


def test_a_stop_ends_a_step_in_one_graph_and_none_comes_after_it() -> None:
    (weight,) = weights = parameters(1)
    optimizer = Plain(weights, lr=0.1)
    gradients(optimizer)
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    with run() as (session, _):
        step()
        session.submit({"type": "stop"})
        for _ in range(3):
            with pytest.raises(StopTraining):
                step()
    assert session.step_count == 2 and session.status == "stopped"
    assert weight[0, 0].item() == pytest.approx(1 - 2 * 0.1)


def test_a_stop_leaves_no_setting_of_the_compiler_behind() -> None:
    optimizer = Plain(parameters(1), lr=0.1)
    gradients(optimizer)
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True, dynamic=True)
    config = torch._dynamo.config
    before = config.automatic_dynamic_shapes, config.assume_static_by_default
    with run() as (session, _):
        step()
        session.submit({"type": "stop"})
        for _ in range(3):
            with pytest.raises(StopTraining):
                step()
    assert (config.automatic_dynamic_shapes, config.assume_static_by_default) == before


def test_branches_without_a_step_are_no_control_points_and_two_steps_are_two() -> None:
    (weight,) = weights = parameters(1)
    optimizer = Plain(weights, lr=0.1)
    gradients(optimizer)

    @torch.compile(backend="eager", fullgraph=True)
    def several(times: int) -> None:
        for _ in range(times):
            optimizer.step()

    with run() as (session, _):
        counted = []
        for times in (1, 0, 2, 0, 1):
            several(times)
            counted.append(session.step_count)
    assert counted == [1, 1, 3, 3, 4]
    assert weight[0, 0].item() == pytest.approx(1 - 4 * 0.1)


def test_many_runs_with_one_compiled_step_compile_it_once() -> None:
    optimizer = Plain(parameters(1), lr=0.1)
    gradients(optimizer)
    counter = CompileCounter()
    step = torch.compile(lambda: optimizer.step(), backend=counter, fullgraph=True)
    for _ in range(12):  # PyTorch allows 8 compilations, and raises then
        with run() as (session, _):
            step()
            step()
        assert session.step_count == 2
        step()
    # With our hooks, and without: where another session is about, they are never away.
    assert counter.frame_count <= 2


def test_a_step_inside_another_ones_step_in_one_graph_is_no_step_of_its_own() -> None:
    outer = Twice(Plain(parameters(1), lr=0.1))
    gradients(outer)
    step = torch.compile(lambda: outer.step(), backend="eager", fullgraph=True)
    with run() as (session, _):
        for _ in range(3):
            step()
        assert session.step_count == 3
        assert session.stepper == "twice"


def test_a_compiled_step_of_a_run_that_is_over_goes_on_alone() -> None:
    (weight,) = weights = parameters(1)
    optimizer = Plain(weights, lr=0.1)
    gradients(optimizer)
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    with run() as (session, _):
        step()
    step()
    assert session.step_count == 1
    assert weight[0, 0].item() == pytest.approx(1 - 2 * 0.1)
    assert not any(mark.startswith("step") for mark in vars(compiled.MARKS))


def test_where_no_entry_is_found_a_step_in_one_graph_runs_on_and_says_that_it_is_not_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As with a PyTorch whose private names changed."""
    monkeypatch.setattr(compiled, "_passage", lambda: None)
    optimizer = Plain(parameters(2), lr=0.1)
    gradients(optimizer)
    step = torch.compile(lambda: optimizer.step(), backend="eager", fullgraph=True)
    with run() as (session, _):
        for _ in range(3):
            step()
    assert session.step_count == 0
    assert "fullgraph" in rows(session, "note")[0]["text"]
