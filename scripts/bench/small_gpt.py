"""A small GPT: the one of the layerwise workflow at the scale of a laptop, on random bytes."""

from __future__ import annotations

import torch

from it2nb.workflows.gpt import GPT, Shape
from it2nb.workflows.layerwise import SHAPES
from it2nb.workflows.text import loss_of

SIZES, ROWS, _ = SHAPES["laptop"]
#: What an update costs does not depend on which bytes they are.
VOCABULARY = 256
WHAT = "a GPT of 0.7 million weights"


def gpt() -> GPT:
    """Make it anew."""
    torch.manual_seed(0)
    return GPT(Shape(VOCABULARY, *SIZES))


def adamw(model: torch.nn.Module) -> torch.optim.Optimizer:
    """Make the workflow's optimizer for it."""
    return torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)


def windows(count: int, seed: int = 0) -> torch.Tensor:
    """Draw so many windows of bytes, one longer than the context."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCABULARY, (count, SIZES[0] + 1), generator=generator)


def loss(model: torch.nn.Module, window: torch.Tensor) -> torch.Tensor:
    """Return the loss on windows."""
    return loss_of(model, window[:, :-1], window[:, 1:])
