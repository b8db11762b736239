"""A small real training, steered by a script: recorded, and done again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from it2nb.core.replay import Replay
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.pytorch import rewind
from it2nb.pytorch.hooks import attach
from it2nb.session import TrainingSession

#: Guards against a deadlock; nothing waits for it when all is well.
LIMIT_S = 60.0
STEPS = 30

#: Requests by the step at which they are asked for; a list in it is asked for while paused.
Script = Mapping[int, list[Any]]


def ask(kind: str, **payload: Any) -> Action:
    return Action(type=kind, payload=payload)


@dataclass
class Training:
    """What is trained, and the session that records it."""

    session: TrainingSession
    net: nn.Module
    optimizer: torch.optim.Optimizer
    settings: dict[str, Any] = field(default_factory=lambda: {"noise": 0.1, "shift": 0})


class Person:
    """Asks for things at the steps of a script: at once, or from another thread in a pause."""

    def __init__(self, session: TrainingSession, script: Script) -> None:
        self._session = session
        self._script = {step: list(asked) for step, asked in script.items()}
        self._for_pauses: SimpleQueue[list[Any] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._steer, name="person", daemon=True)
        session.every(1, self._look)

    def _look(self, session: Session) -> None:
        for asked in self._script.pop(session.step_count, []):
            if isinstance(asked, list):
                session.submit(ask("pause"), source="panel")
                self._for_pauses.put(asked)
            else:
                session.submit(asked, source="panel")

    def _steer(self) -> None:
        while (asked := self._for_pauses.get()) is not None:
            for each in asked:
                if callable(each):
                    each(self._session)
                else:
                    self._session.submit(each, source="magic", wait=True, timeout=LIMIT_S)
            self._session.submit(ask("resume"), source="magic", wait=True, timeout=LIMIT_S)

    @contextmanager
    def steering(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._for_pauses.put(None)
            self._thread.join(LIMIT_S)
            assert not self._thread.is_alive()


def train(
    script: Script | None = None,
    replay: Replay | None = None,
    *,
    steps: int = STEPS,
    seed: int = 0,
    loop_asks: Callable[[int, TrainingSession], Any] | None = None,
    before_run: Callable[[], Any] = lambda: None,
    **options: Any,
) -> TrainingSession:
    """Train a small net that uses every random stream, with dropout and batch statistics."""
    torch.manual_seed(seed)
    np.random.seed(seed)
    random.seed(seed)
    net = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2)
    )
    decay, rest = list(net[0].parameters()), list(net[1:].parameters())
    groups: list[dict[str, Any]] = [{"params": decay, "lr": 0.02}, {"params": rest}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    session = TrainingSession(title="steered", replay=replay, resources_every_s=3600, **options)
    session.bind(net, optimizers=[optimizer], schedulers=[scheduler])
    made = Training(session, net, optimizer)
    _declare(made)
    person = Person(session, script or {})
    before_run()
    loss = torch.tensor(0.0)
    with session.run(), person.steering():
        attach(session, metrics_fn=lambda: {"loss": loss.item()})
        for step in range(steps):
            if loop_asks is not None:
                loop_asks(step, session)
            x = torch.randn(16, 4) + made.settings["shift"] * random.random()
            noise = made.settings["noise"] * float(np.random.rand())
            loss = F.mse_loss(net(x), x[:, :2].sin() + noise)
            loss.backward()
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return session


def _declare(made: Training) -> None:
    session, net = made.session, made.net
    rewind.install(session, snapshots={"every": 7, "max_share": 1.0})

    def evaluate() -> dict[str, float]:
        with torch.no_grad():
            return {"val_loss": F.mse_loss(net(torch.randn(8, 4)), torch.zeros(8, 2)).item()}

    session.on_evaluate(evaluate)
    for name, high in (("noise", 1.0), ("shift", 3)):
        session.register_knob(
            name,
            lambda name=name: made.settings[name],  # type: ignore[misc]
            lambda value, name=name: made.settings.update({name: value}),  # type: ignore[misc]
            dtype=type(high),
            min=0,
            max=high,
        )

    @session.action("shake", "Add noise to the weights; asks for a knob too")
    def shake(scale: float) -> None:
        with torch.no_grad():
            for each in net.parameters():
                each.add_(scale * torch.randn_like(each))
        session.set("noise", 0.5)


_SAVED: Sequence[str] = ("one", "two")


def random_script(seed: int, steps: int = STEPS) -> Script:
    """Make up sets, pauses, evaluations, saves, loads, stops for one run."""
    draw = random.Random(seed)
    script: dict[int, list[Any]] = {}
    saved: list[str] = []

    def something() -> Action:
        kind = draw.choice(
            ["lr", "lr", "lr", "group", "mode", "wd", "beta", "noise", "noise", "batch", "evaluate",
             "save", "load", "undo", "goto", "shake", "note", "bad"]
        )  # fmt: skip
        if kind == "save" or (kind == "load" and not saved):
            saved.append(draw.choice(_SAVED))
            return ask("save_checkpoint", tag=saved[-1])
        return {
            "lr": lambda: ask("set_knob", name="lr", value=10 ** draw.uniform(-4, -1.5)),
            "group": lambda: ask("set_knob", name="lr[1]", value=10 ** draw.uniform(-4, -1.5)),
            "mode": lambda: ask(
                "set_mode", name="lr", mode=draw.choice(["hold", "release", "rescale"])
            ),
            "wd": lambda: ask("set_knob", name="weight_decay", value=draw.uniform(0, 0.3)),
            "beta": lambda: ask("set_knob", name="betas[0]", value=draw.uniform(0.5, 0.95)),
            "noise": lambda: ask("set_knob", name="noise", value=draw.uniform(0, 1.5)),
            "batch": lambda: ask(
                "batch", set={"noise": draw.random(), "shift": draw.randint(0, 3)}
            ),
            "evaluate": lambda: ask("evaluate"),
            "load": lambda: ask("load_checkpoint", path=None),
            "undo": lambda: ask("undo", knobs_only=draw.random() < 0.3),
            "goto": lambda: ask("goto", step=draw.randrange(steps)),
            "shake": lambda: ask("shake", scale=0.1),
            "note": lambda: ask("note", text="x"),
            "bad": lambda: ask("set_knob", name="lr", value=draw.choice(["a", None, 1e9])),
        }[kind]()

    for step in sorted(draw.sample(range(1, steps), draw.randint(3, 8))):
        asked: list[Any] = [something() for _ in range(draw.randint(1, 3))]
        if draw.random() < 0.3:
            asked.append([something() for _ in range(draw.randint(0, 3))])
        script[step] = asked
    if draw.random() < 0.25:
        script[draw.randint(steps // 2, steps - 1)] = [ask("stop")]
    return script
