"""Optimizers of all kinds, and trainings that are the same twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from it2nb.pytorch import rules
from it2nb.pytorch.groups import Cell
from tests.pytorch.steering import parameters

CLASSES = sorted(
    name
    for name, kind in vars(torch.optim).items()
    if isinstance(kind, type) and issubclass(kind, Optimizer) and kind is not Optimizer
)


def make(name: str, weights: Any = None, **options: Any) -> Optimizer:
    kind: Callable[..., Optimizer] = getattr(torch.optim, name)
    return kind(parameters(2) if weights is None else weights, **options)


class Training:
    """Steps of any optimizer on a fixed problem; the same twice from the same start."""

    def __init__(self, name: str, **options: Any) -> None:
        generator = torch.Generator().manual_seed(7)
        self.weights = [nn.Parameter(torch.randn(3, 3, generator=generator)) for _ in range(2)]
        self.optimizer = make(
            name,
            [{"params": [self.weights[0]]}, {"params": [self.weights[1]]}]
            if name != "LBFGS"
            else self.weights,
            **options,
        )
        self.name = name
        self._generator = generator

    def step(self) -> Any:
        target = torch.randn(3, 3, generator=self._generator)

        def closure() -> Any:
            self.optimizer.zero_grad()
            loss = sum(((w - target) ** 2).sum() for w in self.weights)
            assert isinstance(loss, torch.Tensor)
            loss.backward()
            if self.name == "SparseAdam":
                for each in self.weights:
                    assert each.grad is not None
                    each.grad = each.grad.to_sparse()
            return loss

        if self.name == "LBFGS":
            return self.optimizer.step(closure)
        closure()
        return self.optimizer.step()


def another_value(optimizer: Optimizer, cell: Cell, rule: rules.Rule) -> Any:
    """A valid value that differs from the one that is there."""
    value = cell.read(optimizer.param_groups[0])
    if rule.dtype == "bool":
        return not value
    if rule.dtype == "choice":
        assert rule.choices is not None
        return next(each for each in rule.choices if each != value)
    if rule.dtype == "int":
        return value + 1
    if rule.max is not None and rule.max < 1.0 and rule.max > 0.5 and value < 0.9:
        return 0.5 * (value + 0.9)
    if cell.key == "ns_coefficients":
        return value * 1.01
    low, high = rule.min, rule.max
    for each in (value * 0.7, value * 1.3, 0.01, -0.5):
        inside = (low is None or each >= low) and (high is None or each <= high)
        if inside and each != value:
            return each
    raise AssertionError(f"no other value for {cell.name}")


def settings_of(name: str) -> list[tuple[Cell, rules.Rule]]:
    optimizer = make(name)
    found = []
    for cell in rules.cells(optimizer):
        rule = rules.rule_for(optimizer, cell)
        assert rule is not None
        found.append((cell, rule))
    return found


ALL = [(name, cell.name) for name in CLASSES for cell, _ in settings_of(name)]


def decay_groups() -> Optimizer:
    return torch.optim.SGD(
        [
            {"params": parameters(), "lr": 0.1, "weight_decay": 0.01},
            {"params": parameters(), "lr": 0.01, "weight_decay": 0.0},
        ]
    )


def both(optimizer: Optimizer, key: str) -> tuple[Any, ...]:
    return tuple(group[key] for group in optimizer.param_groups)
