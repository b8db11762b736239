"""A training that takes a millisecond a step and uses every random stream."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from it2nb.pytorch.plain import tensors
from it2nb.pytorch.state import Live


class Net(nn.Module):
    """Dropout, batch statistics, tied weights, a buffer that state_dict leaves out."""

    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)
        self.last = nn.Linear(8, 6)
        self.tied = nn.Linear(6, 8, bias=False)
        self.tied.weight = self.first.weight
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        hidden = self.drop(torch.relu(self.norm(self.first(x))))
        return self.last(hidden + 0.1 * self.tied(x)) * (1 + 1e-3 * self.seen)


def small_run(
    optimizer: str = "adamw", schedule: str = "cosine"
) -> tuple[Live, Callable[[], float]]:
    """Make a training; the function does one update and returns its loss."""
    torch.manual_seed(1)
    np.random.seed(2)
    random.seed(3)
    net = Net()
    optimizers = [_OPTIMIZERS[optimizer](net)]
    if optimizer == "muon":
        flat = [each for each in net.parameters() if each.ndim != 2]
        optimizers.append(torch.optim.SGD(flat, lr=0.01))
    schedulers = [_SCHEDULES[schedule](each) for each in optimizers] if schedule != "none" else []
    own = torch.Generator().manual_seed(4)

    def step() -> float:
        x = torch.randn(5, 6) + random.random() + float(np.random.rand())
        x = x + torch.rand(5, 6, generator=own)
        loss = F.mse_loss(net(x), x)
        for each in optimizers:
            each.zero_grad()
        loss.backward()
        for each in optimizers:
            each.step()
        for scheduler in schedulers:
            scheduler.step()
        return loss.item()

    live = Live(
        {"net": net},
        {f"opt{index}": each for index, each in enumerate(optimizers)},
        {f"sched{index}": each for index, each in enumerate(schedulers)},
        generators={"own": own},
    )
    return live, step


_OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "adamw": lambda net: torch.optim.AdamW(net.parameters(), lr=0.01),
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True),
    "muon": lambda net: torch.optim.Muon([p for p in net.parameters() if p.ndim == 2], lr=0.01),
    "tensor-lr": lambda net: torch.optim.AdamW(net.parameters(), lr=torch.tensor(0.01)),
}
_LR = torch.optim.lr_scheduler
_SCHEDULES: dict[str, Callable[[torch.optim.Optimizer], Any]] = {
    "cosine": lambda opt: _LR.CosineAnnealingLR(opt, 40),
    "onecycle": lambda opt: _LR.OneCycleLR(opt, 0.05, total_steps=60),
    "onecycle-long": lambda opt: _LR.OneCycleLR(opt, 0.05, total_steps=1_000_000),
    "sequential": lambda opt: _LR.SequentialLR(
        opt, [_LR.LinearLR(opt, total_iters=5), _LR.ExponentialLR(opt, 0.9)], [5]
    ),
    "multistep": lambda opt: _LR.MultiStepLR(opt, [4, 8, 12]),
    "lambda": lambda opt: _LR.LambdaLR(opt, lambda e: 1 / (1 + e)),
    "restarts": lambda opt: _LR.CosineAnnealingWarmRestarts(opt, 7),
}


def digest(tree: Any) -> str:
    """Hash every tensor of a plain tree, bit by bit."""
    found = hashlib.sha256()
    for each in tensors(tree):
        found.update(str((each.dtype, tuple(each.shape))).encode())
        found.update(each.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def same(left: Any, right: Any) -> bool:
    """Whether two plain trees are equal to the bit, types and all."""
    if type(left) is not type(right):
        return False
    if isinstance(left, torch.Tensor):
        return (
            left.dtype == right.dtype
            and left.shape == right.shape
            and (digest(left) == digest(right))
        )
    if isinstance(left, Mapping):
        return left.keys() == right.keys() and all(same(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float):
        return left.hex() == right.hex()
    return bool(left == right)
