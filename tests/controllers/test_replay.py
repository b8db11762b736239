"""Steered by controllers, and over rounds: done again to the bit, without asking anybody."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

import it2nb
from it2nb.controllers.observation import Observation
from it2nb.core.rounds import RoundContext
from it2nb.core.wire import Action
from it2nb.session import TrainingSession

from ..core.driving import until

STEPS = 24


class Agent:
    """Plans rounds, and halves lr now and then from a thread of its own; counts its calls."""

    name = "agent"
    source = "agent"
    every = 5

    def __init__(self) -> None:
        self.calls = 0

    def ask(self, seen: Observation) -> Any:
        self.calls += 1
        yield Action(type="set_knob", payload={"name": "lr", "value": seen.values["lr"] * 0.7})
        yield Action(type="evaluate")
        if seen.step % 10 == 0:
            yield Action(type="set_knob", payload={"name": "noise", "value": 99.0})
            yield {"type": "pause"}  # agents may not

    def plan(self, ctx: RoundContext) -> Any:
        self.calls += 1
        return {
            "settings": {"noise": 0.05 * ctx.round, "lr": 0.02, "lr[1]": 0.03},
            "schedule": [{"step": 12, "set": {"weight_decay": 0.2}}],
            "stop": ctx.round == 3,
        }

    def reflect(self, ctx: RoundContext, record: Any) -> str:
        self.calls += 1
        return "so be it"


def train(session: TrainingSession, ctx: RoundContext | None = None) -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))
    groups: list[dict[str, Any]] = [
        {"params": net[0].parameters(), "lr": 0.02},
        {"params": net[3].parameters()},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    settings = {"noise": 0.1}
    session.bind(net, optimizers=[optimizer], schedulers=[scheduler])
    session.register_knob(
        "noise", lambda: settings["noise"], lambda value: settings.update(noise=value), min=0, max=1
    )
    fixed = torch.randn(32, 4, generator=torch.Generator().manual_seed(1))

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            return {"val_loss": F.mse_loss(net(fixed), fixed[:, :2].sin()).item()}

    session.on_evaluate(evaluate)
    session.attach(it2nb.rule("every 7: lr x 0.9 then note 'slower'"))
    for _ in range(STEPS):
        x = torch.randn(16, 4)
        noise = settings["noise"] * float(np.random.rand()) * random.random()
        loss = F.mse_loss(net(x), x[:, :2].sin() + noise)
        loss.backward()
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        if session.step({"loss": loss.item()}).stop:
            break


def seeded() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


def done_again(first: TrainingSession, second: TrainingSession, agent: Agent) -> None:
    again = it2nb.replay(first.path)  # type: ignore[arg-type]
    again.attach(second)
    other = Agent()
    second.attach(other, blocking=True)
    assert agent.calls > 0
    seeded()
    if first.memory.records:
        second.run_rounds(train, 4)
    else:
        with second.run():
            train(second)
    verdict = again.verify()
    assert verdict, str(verdict)
    assert verdict.values > 0
    assert verdict.state == "equal"
    assert other.calls == 0


def test_a_run_steered_by_an_agent_and_rules_is_done_again_to_the_bit() -> None:
    seeded()
    agent = Agent()
    first = TrainingSession("val_loss", title="first", resources_every_s=3600)
    first.attach(agent, blocking=True)
    with first.run():
        train(first)
    rows = first.journal.requests()
    assert set(rows["source"]) == {"agent", "rule"}
    assert set(rows["status"]) == {"applied", "clamped", "rejected"}
    done_again(first, TrainingSession("val_loss", title="second", resources_every_s=3600), agent)


def test_an_agent_that_is_not_waited_for_is_done_again_too() -> None:
    """Its requests come at whatever step it happens to be; the recording knows at which."""
    seeded()
    agent = Agent()
    first = TrainingSession("val_loss", title="first", resources_every_s=3600)
    attached = first.attach(agent)
    # It answers in the sixth step to what it saw in the fifth.
    first.every(6, lambda session: until(lambda: attached.calls > 0))
    with first.run():
        train(first)
    assert "agent" in set(first.journal.requests()["source"])
    second = TrainingSession("val_loss", title="second", resources_every_s=3600)
    second.every(6, lambda session: None)
    done_again(first, second, agent)


def test_rounds_are_done_again_to_the_bit(tmp_path: Path) -> None:
    agent = Agent()
    memory = tmp_path / "memory.jsonl"
    first = TrainingSession("val_loss", title="first", resources_every_s=3600, memory=memory)
    first.attach(agent, blocking=True)
    records = first.run_rounds(train, 4)
    assert len(records) == 3
    rows = first.journal.requests()
    assert set(rows["source"]) == {"agent", "plan", "rule"}
    planned = rows[(rows["source"] == "plan") & (rows["type"] == "set_knob")]
    assert set(planned["step"]) == {0, 12}
    assert planned["status"].tolist() == ["applied"] * 8
    assert set(first.metrics.frame()["round"]) == {0, 1, 2}
    assert "round 3 of 3, seeded with 0" in first.to_code()
    assert "noise 0.1 -> 0.05" in first.to_code(round=1)
    assert "noise" not in first.to_code(round=0)
    size = memory.stat().st_size
    second = TrainingSession("val_loss", title="second", resources_every_s=3600, memory=memory)
    done_again(first, second, agent)
    assert memory.stat().st_size == size
    assert len(second.journal.requests()) > 0


def test_going_back_inside_of_rounds_is_done_again_too() -> None:
    kept = {"every": 4, "max_share": 1.0}
    agent = Agent()
    first = TrainingSession("val_loss", title="first", resources_every_s=3600, snapshots=kept)
    first.attach(agent, blocking=True)
    first.attach("at 8: lr x 0.3 then undo")
    first.attach("at 15: do goto step=12, once")
    first.run_rounds(train, 2)
    rows = first.journal.requests()
    assert rows[rows["type"] == "goto"]["status"].tolist() == ["applied", "applied"]
    second = TrainingSession("val_loss", title="second", resources_every_s=3600, snapshots=kept)
    done_again(first, second, agent)


def test_the_baseline_is_the_training_without_any_agent() -> None:
    alone = TrainingSession("val_loss", directory=None)
    alone.run_rounds(train, 1)
    steered = TrainingSession("val_loss", directory=None)
    steered.attach(Agent(), blocking=True)
    steered.run_rounds(train, 2)
    frame = steered.metrics.frame()
    first = frame[frame["round"] == 0]["loss"].tolist()
    assert first == alone.metrics.frame()["loss"].tolist()
    assert first != frame[frame["round"] == 1]["loss"].tolist()


def test_a_round_leaves_nothing_of_it_behind() -> None:
    import gc
    import weakref

    nets: list[Any] = []

    def watched(session: TrainingSession, ctx: RoundContext) -> None:
        assert len(session.bound.models) == 0
        train(session, ctx)
        nets.append(weakref.ref(session.bound.models[0]))
        assert sorted(session.knobs) == sorted(names or session.knobs)
        names[:] = list(session.knobs)
        gc.collect()
        assert [net() is None for net in nets[:-1]] == [True] * (len(nets) - 1)

    names: list[str] = []
    session = TrainingSession("val_loss", directory=None)
    session.run_rounds(watched, 3)
    assert len(nets) == 3


def test_a_steered_optimizer_steps_through_its_hooks_in_each_round() -> None:
    used: list[list[float]] = []

    def hooked(session: TrainingSession, ctx: RoundContext) -> None:
        net = nn.Linear(2, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        session.autopatch(optimizer, lambda: {"val_loss": float(net.weight.detach().sum())})
        mine: list[float] = []
        used.append(mine)
        for _ in range(4):
            net(torch.ones(1, 2)).sum().backward()
            optimizer.register_step_pre_hook(
                lambda opt, args, kwargs: mine.append(opt.param_groups[0]["lr"])
            ) if not mine else None
            optimizer.step()

    session = TrainingSession("val_loss", directory=None)

    class Planner:
        source = "plan"

        def plan(self, ctx: RoundContext) -> Any:
            return {"lr": 0.3}

    session.attach(Planner())
    session.attach("at 2: lr = 0.7")
    session.run_rounds(hooked, 2)
    assert used == [[0.1, 0.1, 0.7, 0.7], [0.3, 0.3, 0.7, 0.7]]
    assert session.metrics.frame()["step"].tolist() == [1, 2, 3, 4] * 2
