"""A small GPT in the manner of Qwen3: RMSNorm, rotary positions, grouped queries, SwiGLU."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of a GPT.

    Attributes
    ----------
    vocabulary, context : int, tokens
    width, hidden : int
        Of the stream and of the feed-forward layer.
    blocks, heads, kv_heads : int
        `kv_heads` divides `heads`, which divides `width`.
    """

    vocabulary: int
    context: int
    width: int
    blocks: int
    heads: int
    kv_heads: int
    hidden: int


class RMSNorm(nn.Module):
    """Scale to a root mean square of one, then by a learned weight (Zhang & Sennrich, 2019)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def reset_parameters(self) -> None:
        """Set the weight to one."""
        nn.init.ones_(self.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-6)


class Attention(nn.Module):
    """Causal attention with grouped keys and values, normalised queries and keys."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.size = shape.width // shape.heads
        self.q = nn.Linear(shape.width, shape.heads * self.size, bias=False)
        self.k = nn.Linear(shape.width, shape.kv_heads * self.size, bias=False)
        self.v = nn.Linear(shape.width, shape.kv_heads * self.size, bias=False)
        self.o = nn.Linear(shape.heads * self.size, shape.width, bias=False)
        self.q_norm, self.k_norm = RMSNorm(self.size), RMSNorm(self.size)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Attend; `turn` are the cosines and sines of the positions."""
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size)
        k = self.k(x).view(batch, length, self.kv_heads, self.size)
        v = self.v(x).view(batch, length, self.kv_heads, self.size)
        q, k = rotate(self.q_norm(q), turn), rotate(self.k_norm(k), turn)
        share = self.heads // self.kv_heads
        k, v = k.repeat_interleave(share, 2), v.repeat_interleave(share, 2)
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )
        out: torch.Tensor = self.o(y.transpose(1, 2).reshape(batch, length, -1))
        return out


class Block(nn.Module):
    """Attention and a SwiGLU feed-forward layer, each normalised before and added."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = RMSNorm(shape.width), RMSNorm(shape.width)
        self.attention = Attention(shape)
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        """Pass the stream through."""
        x = x + self.attention(self.attention_norm(x), turn)
        y = self.feed_norm(x)
        out: torch.Tensor = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return out


class GPT(nn.Module):
    """A decoder over tokens; returns the logits of each next one."""

    cosines: torch.Tensor
    sines: torch.Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.blocks)])
        self.norm = RMSNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        cosines, sines = turns(shape.context, shape.width // shape.heads)
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)
        self.apply(self._init_weights)
        for block in self.blocks:  # the stream keeps its size, however deep it is
            assert isinstance(block, Block)
            for last in (block.attention.o, block.down):
                nn.init.normal_(last.weight, std=0.02 / (2 * shape.blocks) ** 0.5)

    @staticmethod
    def _init_weights(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits, shape (batch, length, vocabulary)."""
        length = tokens.shape[1]
        turn = (self.cosines[:length], self.sines[:length])
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, turn)
        out: torch.Tensor = self.head(self.norm(x))
        return out


def turns(context: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines, shape (context, 1, size / 2) (Su et al., 2021)."""
    rates = 10_000.0 ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(context), rates).unsqueeze(1)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turn the two halves of each head by their positions' angles."""
    one, two = x.chunk(2, -1)
    cosines, sines = turn
    return torch.cat((one * cosines - two * sines, two * cosines + one * sines), -1)
