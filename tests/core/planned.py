"""Rounds for tests: a planner with a script, a training without weights, odd answers."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from it2nb.core.rounds import RoundContext
from it2nb.session import TrainingSession


class Planner:
    """Plans what it was given, and keeps what it saw."""

    source = "plan"
    name = "planner"

    def __init__(self, *plans: Any) -> None:
        self.plans = list(plans)
        self.seen: list[RoundContext] = []
        self.records: list[Any] = []

    def plan(self, ctx: RoundContext) -> Any:
        self.seen.append(ctx)
        plan = self.plans.pop(0) if self.plans else None
        if isinstance(plan, Exception):
            raise plan
        return plan

    def reflect(self, ctx: RoundContext, record: Any) -> str:
        self.records.append(record)
        return f"round {ctx.round} gave {record['value']}"


class Training:
    """A training without weights: its loss follows from lr and the random streams."""

    def __init__(self, steps: int = 4) -> None:
        self.steps = steps
        self.used: list[list[float]] = []
        self.drawn: list[tuple[float, float]] = []

    def __call__(self, session: Any, ctx: RoundContext) -> None:
        held = {"lr": 0.1}
        session.register_knob(
            "lr", lambda: held["lr"], lambda value: held.update(lr=value), min=0.0, max=1.0
        )
        self.drawn.append((random.random(), float(np.random.rand())))
        used: list[float] = []
        self.used.append(used)
        for step in range(1, self.steps + 1):
            used.append(held["lr"])
            if session.step({"val_loss": abs(held["lr"] - 0.3) + 1.0 / step}).stop:
                return


def rounds(
    *plans: Any, count: int = 3, goal: Any = "val_loss", **options: Any
) -> tuple[TrainingSession, Training, Planner, list[dict[str, Any]]]:
    session = TrainingSession(goal, directory=None, resources_every_s=3600)
    planner, training = Planner(*plans), Training()
    session.attach(planner)
    records = session.run_rounds(training, count, **options)
    return session, training, planner, records


def cyclic() -> dict[str, Any]:
    plan: dict[str, Any] = {"lr": 0.2}
    plan["reason"] = [plan, plan]
    return plan


def deep(levels: int = 500) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found
