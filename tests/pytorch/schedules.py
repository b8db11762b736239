"""Schedulers of all kinds, and the lr of each step that their shape demands."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import lr_scheduler as lrs
from torch.optim import swa_utils
from transformers import optimization as hf

from it2nb.core.session import Session
from tests.pytorch.steering import advance, parameters, record, run, train

STEPS = 50
NEW = 0.013

Make = Callable[[torch.optim.Optimizer], Any]


class OwnSchedule(lrs.LRScheduler):
    """Someone's own, with an absolute lr in an attribute that nobody knows of."""

    floor = 0.004

    def get_lr(self) -> list[Any]:
        return [
            self.floor + (base - self.floor) / (1 + 0.1 * self.last_epoch) for base in self.base_lrs
        ]


class NotEvenAScheduler:
    """Duck-typed, recursive, and not a subclass of anything."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer

    def step(self) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = 0.9 * group["lr"] + 0.001


class OwnLambda(lrs.LambdaLR):
    """A subclass that adds nothing to the arithmetic."""


def _sequential(optimizer: torch.optim.Optimizer) -> lrs.SequentialLR:
    warmup = lrs.LinearLR(optimizer, 0.1, total_iters=8)
    return lrs.SequentialLR(optimizer, [warmup, lrs.CosineAnnealingLR(optimizer, 30, 0.002)], [8])


def _warm_restarts(optimizer: torch.optim.Optimizer) -> lrs.SequentialLR:
    warmup = lrs.LambdaLR(optimizer, lambda e: e / 8)
    waves = lrs.CosineAnnealingWarmRestarts(optimizer, 9, eta_min=0.001)
    return lrs.SequentialLR(optimizer, [warmup, waves], [8])


def _nested(optimizer: torch.optim.Optimizer) -> lrs.ChainedScheduler:
    early = lrs.SequentialLR(
        optimizer,
        [lrs.LinearLR(optimizer, 0.25, total_iters=4), lrs.StepLR(optimizer, 9, 0.5)],
        [4],
    )
    return lrs.ChainedScheduler([early, lrs.ExponentialLR(optimizer, 0.95)])


SCHEDULES: dict[str, Make] = {
    "LambdaLR": lambda o: lrs.LambdaLR(o, lambda e: 1 / (1 + 0.1 * e)),
    "LambdaLR from 0": lambda o: lrs.LambdaLR(o, lambda e: min(1.0, e / 40)),
    "LambdaLR subclass": lambda o: OwnLambda(o, lambda e: 0.97**e),
    "MultiplicativeLR": lambda o: lrs.MultiplicativeLR(o, lambda e: 0.95),
    "StepLR": lambda o: lrs.StepLR(o, 7, 0.5),
    "MultiStepLR": lambda o: lrs.MultiStepLR(o, [3, 6, 32, 40], 0.3),
    "ConstantLR": lambda o: lrs.ConstantLR(o, 0.2, 20),
    "LinearLR": lambda o: lrs.LinearLR(o, 0.1, 0.8, 40),
    "ExponentialLR": lambda o: lrs.ExponentialLR(o, 0.93),
    "PolynomialLR": lambda o: lrs.PolynomialLR(o, 45, 2.0),
    "CosineAnnealingLR": lambda o: lrs.CosineAnnealingLR(o, 20, 0.003),
    "CosineAnnealingLR to 0": lambda o: lrs.CosineAnnealingLR(o, 33),
    "CosineAnnealingWarmRestarts": lambda o: lrs.CosineAnnealingWarmRestarts(o, 7, 2, 0.001),
    "CyclicLR": lambda o: lrs.CyclicLR(o, 0.01, 0.2, 5, 8),
    "CyclicLR exp_range": lambda o: lrs.CyclicLR(
        o, 0.01, 0.2, 4, mode="exp_range", gamma=0.97, cycle_momentum=False
    ),
    "OneCycleLR": lambda o: lrs.OneCycleLR(o, 0.2, total_steps=60),
    "OneCycleLR three phases": lambda o: lrs.OneCycleLR(
        o, 0.2, total_steps=55, three_phase=True, anneal_strategy="linear"
    ),
    "ReduceLROnPlateau": lambda o: lrs.ReduceLROnPlateau(o, factor=0.6, patience=3, min_lr=0.004),
    "SWALR": lambda o: swa_utils.SWALR(o, 0.02, anneal_epochs=20),
    "SequentialLR": _sequential,
    "SequentialLR from 0": _warm_restarts,
    "ChainedScheduler of SequentialLR": _nested,
    "ChainedScheduler": lambda o: lrs.ChainedScheduler(
        [lrs.ConstantLR(o, 0.5, 9), lrs.ExponentialLR(o, 0.96)]
    ),
    "hf constant": lambda o: hf.get_constant_schedule_with_warmup(o, 10),
    "hf linear": lambda o: hf.get_linear_schedule_with_warmup(o, 10, 70),
    "hf cosine": lambda o: hf.get_cosine_schedule_with_warmup(o, 10, 70),
    "hf cosine restarts": lambda o: hf.get_cosine_with_hard_restarts_schedule_with_warmup(
        o, 5, 64, 3
    ),
    "hf cosine min lr": lambda o: hf.get_cosine_with_min_lr_schedule_with_warmup(
        o, 5, 70, min_lr=0.01
    ),
    "hf polynomial": lambda o: hf.get_polynomial_decay_schedule_with_warmup(
        o, 10, 70, lr_end=0.001, power=2.0
    ),
    "hf inverse sqrt": lambda o: hf.get_inverse_sqrt_schedule(o, 10),
    "hf wsd": lambda o: hf.get_wsd_schedule(o, 6, 40, num_training_steps=70),
    "hf greedy": lambda o: hf.GreedyLR(o, patience=1, factor=0.8, min_lr=1e-3, max_lr=0.3),
    "unknown subclass": OwnSchedule,
    "duck-typed": NotEvenAScheduler,
}


def optimizer_of(lr: float = 0.1) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters(), lr=lr, momentum=0.9)


@functools.cache
def pristine(name: str) -> tuple[float, ...]:
    """The schedule without us: no session, no hooks."""
    optimizer = optimizer_of()
    scheduler = SCHEDULES[name](optimizer)
    used = record(optimizer)
    for _ in range(STEPS):
        optimizer.step()
        advance(scheduler)
    return tuple(used)


def expected(name: str, mode: str, after: int, value: float) -> list[float]:
    """What each step uses when `value` is asked after step `after`."""
    plain = list(pristine(name))
    rest = plain[after:]
    if mode == "hold":
        rest = [value] * len(rest)
    elif mode == "rescale":
        # A step that would use 0 has no factor: the schedule goes by its initial value then.
        factor = value / rest[0] if rest[0] else value / 0.1
        rest = [value, *(each * factor for each in rest[1:])]
    else:
        rest[0] = value
    return plain[:after] + rest


def pause(session: Session) -> None:
    session.submit({"type": "pause"})


def resume(session: Session) -> None:
    session.submit({"type": "resume"})


def used_with(name: str, edits: Any, *, bound: bool = True) -> tuple[list[float], Session]:
    optimizer = optimizer_of()
    scheduler = SCHEDULES[name](optimizer)
    with run([scheduler] if bound else []) as (session, _):
        used = record(optimizer)
        train(optimizer, STEPS, scheduler, edits, session=session)
    return used, session
