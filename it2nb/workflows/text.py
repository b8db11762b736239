"""Bytes of text in batches, and how well a language model knows the held-out ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from it2nb.core.errors import require
from it2nb.workflows.base import Scale
from it2nb.workflows.data import FINEWEB, corpus
from it2nb.workflows.requirements import Requirements, as_allowed

#: The tokenizer at ``paper`` scale.
TOKENIZER = "Qwen/Qwen3-0.6B"


@dataclass(frozen=True)
class Text:
    """Tokens for training and held-out ones.

    Attributes
    ----------
    train, held_out : torch.Tensor of int64, one dimension
    vocabulary : int
    """

    train: torch.Tensor
    held_out: torch.Tensor
    vocabulary: int

    def batch(
        self, generator: torch.Generator, rows: int, context: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Draw rows of tokens, and the same moved by one."""
        starts = torch.randint(len(self.train) - context - 1, (rows, 1), generator=generator)
        window = self.train[starts + torch.arange(context + 1)]
        return window[:, :-1], window[:, 1:]

    def evaluator(
        self, model: nn.Module, rows: int, context: int
    ) -> Callable[[], dict[str, float]]:
        """Return a function that measures `model` on the same held-out windows each time."""
        last = len(self.held_out) - context - 1
        starts = torch.linspace(0, last, rows).long().unsqueeze(1)
        windows = self.held_out[starts + torch.arange(context + 1)]

        @torch.no_grad()
        def evaluate() -> dict[str, float]:
            model.eval()
            losses = [
                loss_of(model, part[:, :-1], part[:, 1:]).item() * len(part)
                for part in windows.split(32)
            ]
            model.train()
            return {"val_loss": sum(losses) / len(windows)}

        return evaluate


def loss_of(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of the next tokens, in nats a token."""
    logits = model(x)
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), y.reshape(-1))


@functools.cache
def text_of(scale: Scale) -> Text:
    """Return the text at a scale: bytes of what is at hand, or the hub's pages in Qwen's tokens."""
    if scale == "paper":
        return _pages()
    limit = 200_000 if scale == "ci" else None
    train, held_out = (
        torch.frombuffer(bytearray(corpus(split, limit_bytes=limit)), dtype=torch.uint8).long()
        for split in ("train", "validation")
    )
    return Text(train, held_out, 256)


def _pages() -> Text:
    transformers: Any = require("transformers", extra="workflows", feature="Qwen's tokenizer")
    with as_allowed():
        tokenizer = transformers.AutoTokenizer.from_pretrained(TOKENIZER)
    pages = {
        "train": corpus("train", source="fineweb-edu", limit_bytes=400_000_000),
        "validation": corpus("validation", source="fineweb-edu", limit_bytes=4_000_000),
    }
    tokens = {
        split: torch.tensor(tokenizer(text.decode(errors="ignore"))["input_ids"])
        for split, text in pages.items()
    }
    return Text(tokens["train"], tokens["validation"], len(tokenizer))


def text_requirements(scale: Scale, minutes: float, gpu_gib: float) -> Requirements:
    """Return what a language model needs at a scale."""
    if scale == "paper":
        return Requirements(
            minutes, 16, gpu_gib, (TOKENIZER,), (FINEWEB,),
            ("transformers", "datasets"), extra="workflows,hub",
        )  # fmt: skip
    return Requirements(minutes, memory_gib=2)


def device_of(scale: Scale) -> torch.device:
    """Return where a workflow trains: the GPU at ``paper`` scale, else the CPU."""
    return torch.device("cuda" if scale == "paper" else "cpu")
