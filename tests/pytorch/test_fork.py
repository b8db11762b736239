"""Counterfactuals: with and without the last change, from the same state, data and noise."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from it2nb.core.control import StopTraining
from it2nb.core.errors import Rejected, WrongThread
from it2nb.core.session import Session
from it2nb.pytorch.fork import fork
from it2nb.pytorch.loops import loop
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.rewind import install
from it2nb.pytorch.state import Live, capture
from it2nb.pytorch.stepping import train
from it2nb.pytorch.trials import NEEDS_REPLAY

from .small import same

LIMIT_S = 60.0


def first(net: nn.Sequential) -> torch.Tensor:
    return net.state_dict()["0.weight"]


class Stepped:
    """A training by a step function, which asks for things at given steps."""

    def __init__(self) -> None:
        torch.manual_seed(5)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 4))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.session = Session(directory=None)
        self.session.bind(self.net, optimizers=[self.opt])
        self.session.register_knob("lr", self._lr, self._set_lr, min=0.0, max=1.0)
        install(self.session, snapshots={"every": 5, "max_share": 1e9})
        self.asks: dict[int, list[Any]] = {}
        self.handles: list[Any] = []
        self.called: list[int] = []

    def _lr(self) -> float:
        return float(self.opt.param_groups[0]["lr"])

    def _set_lr(self, value: float) -> None:
        self.opt.param_groups[0]["lr"] = value

    def step(self, step: int) -> dict[str, float]:
        self.called.append(step)
        for action in self.asks.pop(step, []):
            self.handles.append(self.session.submit(action))
        x = torch.randn(6, 4) + step
        loss = F.mse_loss(self.net(x), x)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return {"loss": loss.item()}

    def state(self) -> dict[str, Any]:
        return capture(
            Live({"net": self.net}, {"opt": self.opt}), Reducer(portable=False, clone=True)
        )

    def curve(self, branch: int) -> dict[int, float]:
        frame = self.session.metrics.frame()
        part = frame[frame["branch_id"] == branch]
        return dict(zip(part["step"].tolist(), part["loss"].tolist(), strict=True))


def ask(kind: str, **payload: Any) -> dict[str, Any]:
    return {"type": kind, "payload": payload}


def test_a_step_function_goes_back_and_on_to_the_bit() -> None:
    straight = Stepped()
    assert train(straight.session, straight.step, 20) == "finished"
    again = Stepped()
    again.asks = {12: [ask("goto", step=5)]}
    train(again.session, again.step, 20)
    assert again.handles[0].result(0).data["notes"] == []
    assert again.called == [*range(13), *range(5, 20)]
    whole = straight.curve(0)
    assert again.curve(1) == {step: whole[step] for step in range(6, 21)}
    assert torch.equal(first(again.net), first(straight.net))


def test_a_stop_ends_a_stepped_training() -> None:
    run = Stepped()
    run.asks = {3: [ask("stop")]}
    assert train(run.session, run.step) == "stopped"
    assert run.called == [0, 1, 2, 3]


def test_a_fork_shows_what_the_change_did_and_leaves_no_trace() -> None:
    straight = Stepped()
    straight.asks = {4: [ask("set_knob", name="lr", value=0.5)]}
    train(straight.session, straight.step, 20)
    forked = Stepped()
    forked.asks = {4: [ask("set_knob", name="lr", value=0.5)], 9: [ask("fork", steps=8)]}
    train(forked.session, forked.step, 20)
    result = forked.handles[1].result(0)
    assert result.status == "applied", result
    data = result.data
    assert data["change"] == "set_knob lr"
    assert (data["from_step"], data["steps"], data["is_equal"]) == (5, 8, False)
    # The way with the change is what happened; the other is what would have.
    happened = straight.curve(0)
    assert forked.curve(data["branches"]["with"]) == {n: happened[n] for n in range(6, 14)}
    untouched = Stepped()
    train(untouched.session, untouched.step, 20)
    never = untouched.curve(0)
    assert forked.curve(data["branches"]["without"]) == {n: never[n] for n in range(6, 14)}
    # And the run itself goes on as if nothing was.
    assert forked.curve(0) == happened
    assert same(forked.state(), straight.state())


def test_a_fork_that_changes_nothing_is_bit_equal() -> None:
    run = Stepped()
    run.asks = {6: [ask("fork", steps=5)]}
    train(run.session, run.step, 10)
    data = run.handles[0].result(0).data
    assert data["change"] is None
    assert data["is_equal"] is True
    assert run.curve(data["branches"]["with"]) == run.curve(data["branches"]["without"])
    assert data["weights_sha256"]["with"] == data["weights_sha256"]["without"]


def test_an_arm_that_raises_fails_the_fork_and_not_the_run() -> None:
    run = Stepped()
    inner, broken = run.step, [8]

    def step(number: int) -> dict[str, float]:
        if number in broken and run.session.branch_id != 0:
            raise ValueError("no such batch")
        return inner(number)

    run.asks = {6: [ask("fork", steps=5)]}
    train(run.session, step, 10)
    result = run.handles[0].result(0)
    assert result.status == "failed"
    assert "no such batch" in str(result.reason)
    plain = Stepped()
    train(plain.session, plain.step, 10)
    assert run.curve(0) == plain.curve(0)
    assert same(run.state(), plain.state())


def test_a_stop_that_comes_during_a_fork_is_obeyed_from_home() -> None:
    run = Stepped()
    inner = run.step

    def step(number: int) -> dict[str, float]:
        if run.session.branch_id != 0 and number == 8:
            run.session.submit(ask("stop"))
        return inner(number)

    run.asks = {6: [ask("fork", steps=5)]}
    assert train(run.session, step, 50) == "stopped"
    assert run.handles[0].result(0).status == "failed"
    assert run.session.step_count == 8, "the stop is served at the next control point"
    assert max(run.curve(0)) == 8
    plain = Stepped()
    train(plain.session, plain.step, 8)
    assert torch.equal(first(run.net), first(plain.net))


class Looped(threading.Thread):
    """A training over ``session.loop`` on a thread of its own."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__(daemon=True)
        torch.manual_seed(5)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 4))
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.session = Session(directory=None)
        self.session.bind(self.net, optimizers=[self.opt])
        self.session.register_knob(
            "lr",
            lambda: self.opt.param_groups[0]["lr"],
            lambda value: self.opt.param_groups[0].update(lr=value),
        )
        self.rewind = install(self.session, snapshots={"every": 5, "max_share": 1e9})
        self.loader = DataLoader(TensorDataset(torch.randn(40, 4)), batch_size=4, shuffle=True)
        self.plain = plain
        self.curve: list[tuple[int, int, float]] = []
        self.reached, self.go = threading.Event(), threading.Event()

    def run(self) -> None:
        session = self.session
        with session.run():
            items: Any = self.loader if self.plain else loop(session, self.loader, epochs=3)
            for (x,) in items:
                loss = F.mse_loss(self.net(x), x)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                self.curve.append((session.branch_id, session.step_count + 1, loss.item()))
                if (session.branch_id, session.step_count) == (0, 6):
                    self.reached.set()
                    self.go.wait(LIMIT_S)
                if self.plain:
                    session.step({"loss": loss.item()})
                else:
                    session.record({"loss": loss.item()}, session.step_count + 1)

    def at(self, branch: int) -> dict[int, float]:
        return {step: loss for b, step, loss in self.curve if b == branch}


def test_a_fork_in_the_users_loop() -> None:
    straight = Looped()
    straight.go.set()
    straight.start()
    straight.join(LIMIT_S)
    run = Looped()
    run.start()
    assert run.reached.wait(LIMIT_S)
    changed = run.session.submit(ask("set_knob", name="lr", value=0.2))
    found: list[Any] = []
    asking = threading.Thread(target=lambda: found.append(fork(run.session, 6, timeout=LIMIT_S)))
    asking.start()
    while not run.session.queue.waits_for("fork"):
        assert asking.is_alive()
        threading.Event().wait(0.005)
    meanwhile = run.session.submit(ask("set_knob", name="lr", value=0.05))
    run.go.set()
    asking.join(LIMIT_S)
    run.join(LIMIT_S)
    assert changed.result(0).ok
    outcome = found[0]
    assert (outcome.change, outcome.from_step, outcome.is_equal) == ("set_knob lr", 7, False)
    assert outcome.frame["arm"].value_counts().to_dict() == {"with": 6, "without": 6}
    without = run.at(outcome.branches["without"])
    assert without == {step: straight.at(0)[step] for step in range(8, 14)}
    assert run.at(outcome.branches["with"]).keys() == without.keys()
    assert run.at(outcome.branches["with"]) != without
    # What was asked meanwhile waited, and came after.
    assert meanwhile.result(0).ok
    assert (meanwhile.result(0).step, meanwhile.result(0).branch_id) == (7, 0)
    assert sorted(run.at(0)) == list(range(1, 31))
    figure = outcome.plot()
    assert [trace.name for trace in figure.data] == ["with set_knob lr", "without set_knob lr"]


def test_a_stop_during_a_fork_in_the_loop_ends_with_the_runs_own_weights() -> None:
    run = Looped()
    run.start()
    assert run.reached.wait(LIMIT_S)
    kept: list[torch.Tensor] = []
    handle = run.session.submit(ask("fork", steps=1000))

    def stop_inside(session: Session) -> None:
        if session.step_count == 20 and session.branch_id != 0:
            session.submit(ask("stop"))

    inner = run.rewind.trials._after_step

    def watched(session: Session) -> None:
        stop_inside(session)
        inner(session)

    run.rewind.trials._after_step = watched  # type: ignore[method-assign]
    kept.append(first(run.net).clone())
    run.go.set()
    run.join(LIMIT_S)
    assert run.session.status == "stopped"
    assert handle.result(0).status == "cancelled"
    assert "the run was stopped before" in str(handle.result(0).reason)
    assert torch.equal(first(run.net), kept[0])
    assert run.session.step_count == 7


def test_a_loop_that_ends_during_a_fork_gives_it_up() -> None:
    run = Looped()
    run.start()
    assert run.reached.wait(LIMIT_S)
    handle = run.session.submit(ask("fork", steps=5))
    weight = first(run.net).clone()
    inner = run.rewind.trials._after_step

    def ending(session: Session) -> None:
        inner(session)
        if session.step_count == 9:
            raise StopTraining

    run.rewind.trials._after_step = ending  # type: ignore[method-assign]
    run.go.set()
    run.join(LIMIT_S)
    assert handle.result(0).status == "cancelled"
    assert torch.equal(first(run.net), weight)


def test_a_plain_loop_is_told_what_a_fork_needs() -> None:
    run = Looped(plain=True)
    run.start()
    assert run.reached.wait(LIMIT_S)
    run.go.set()
    with pytest.raises(Rejected) as refused:
        fork(run.session, 3, timeout=LIMIT_S)
    assert refused.value.reason in (NEEDS_REPLAY, "the run is over (finished)")
    run.join(LIMIT_S)


def test_a_step_function_makes_a_fork_possible_in_a_plain_loop() -> None:
    run = Stepped()
    session = run.session
    with session.run():
        for number in range(4):
            session.step(run.step(number))
        session.set("lr", 0.3)
        session.pump()
        session.step(run.step(4))
        before = run.state()
        outcome = fork(session, 5, step_fn=run.step)
        assert same(run.state(), before)
        assert session.step_count == 5
    assert outcome.change == "set_knob lr"
    assert outcome.from_step == 4
    assert not outcome.is_equal
    assert list(outcome.frame.columns) == ["arm", "step", "loss"]
    assert outcome.frame["step"].tolist() == [*range(5, 10)] * 2


def test_the_loops_own_thread_cannot_wait_for_a_fork() -> None:
    run = Stepped()
    with run.session.run():
        run.session.step({"loss": 1.0})
        with pytest.raises(WrongThread, match="step_fn=fn"):
            fork(run.session, 3)


def test_a_fork_of_a_going_back_is_refused() -> None:
    run = Stepped()
    run.asks = {7: [ask("goto", step=5)], 9: [ask("fork", steps=2)]}
    train(run.session, run.step, 12)
    assert run.handles[1].result(0).reason == (
        "a fork compares a change of the run; the last one was goto"
    )
