"""The policy that Countdown begins with: a small GPT that has read solved puzzles."""

from __future__ import annotations

import functools
import random
from pathlib import Path

import torch
from torch.nn import functional as F

from it2nb.core.errors import require
from it2nb.workflows.base import Scale
from it2nb.workflows.gpt import GPT, Shape
from it2nb.workflows.policy import Letters
from it2nb.workflows.puzzles import LEVELS, Puzzle, several

#: Tokens of the longest prompt and answer together.
CONTEXT = 32
#: (width, blocks, heads, hidden), supervised steps, rows of a batch, solved puzzles.
SIZES: dict[str, tuple[tuple[int, int, int, int], int, int, int]] = {
    "ci": ((32, 1, 2, 64), 20, 16, 100),
    "laptop": ((64, 2, 4, 176), 1200, 64, 4000),
}
#: How often a level is read, in proportion: the hard ones are left to the rewards.
SHARES = (4, 4, 3, 1, 1, 1)
#: The result at ``laptop`` size, in half precision; scripts/countdown_policy.py makes it.
FILE = Path(__file__).resolve().parent.parent / "assets" / "countdown.safetensors"


@functools.cache
def warm_policy() -> GPT:
    """Return the warmed-up policy; the same at each call, so copy it before you train it.

    Its weights come from a file, since the supervised steps take minutes.
    """
    load = require("safetensors.torch", extra="workflows", feature="the warmed-up policy")
    with torch.random.fork_rng(devices=[]):  # the first call has to leave no trace
        model = blank("laptop")
    model.load_state_dict({k: v.float() for k, v in load.load_file(FILE).items()})
    return model.eval()


def blank(scale: Scale) -> GPT:
    """Return the policy with random weights."""
    width, blocks, heads, hidden = SIZES[scale][0]
    return GPT(Shape(Letters.vocabulary, CONTEXT, width, blocks, heads, heads // 2, hidden))


def warm_up(scale: Scale) -> GPT:
    """Do the supervised steps: read solved puzzles, be graded on their answers alone.

    The global random streams are where they were afterwards.
    """
    _, steps, rows, pool = SIZES[scale]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        generator = torch.Generator().manual_seed(0)
        model = blank(scale)
        tokens, masks = solved(pool)
        optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps)
        for _ in range(steps):
            chosen = torch.randint(len(tokens), (rows,), generator=generator)
            batch, counts = tokens[chosen], masks[chosen][:, 1:]
            logits = model(batch[:, :-1])
            losses = F.cross_entropy(logits.transpose(1, 2), batch[:, 1:], reduction="none")
            loss = (losses * counts).sum() / counts.sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
    return model.eval()


def solved(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return solved puzzles as rows of tokens, and which of them are the answer's."""
    draw, letters = random.Random(0), Letters()
    puzzles: list[Puzzle] = []
    for level, share in zip(range(1, len(LEVELS) + 1), SHARES, strict=True):
        puzzles += several(level, max(1, count * share // sum(SHARES)), draw)
    rows = torch.full((len(puzzles), CONTEXT), letters.end)
    masks = torch.zeros(len(puzzles), CONTEXT)
    for place, puzzle in enumerate(puzzles):
        prompt, answer = (letters.encode(t) for t in (puzzle.prompt, puzzle.solution + "\n"))
        rows[place, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        masks[place, len(prompt) : len(prompt) + len(answer)] = 1
    return rows, masks
