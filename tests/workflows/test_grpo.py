"""GRPO on answers whose likelihood is known."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch

from it2nb.workflows.grpo import advantages, loss_of, roll_out
from it2nb.workflows.policy import Answers, Letters, likelihood, sample
from it2nb.workflows.puzzles import Puzzle, several, verify
from it2nb.workflows.warmup import solved, warm_policy, warm_up

LETTERS = Letters()
VALUES = {"temperature": 1.0, "clip_low": 0.2, "clip_high": 0.3, "kl": 0.0, "entropy": 0.0}


def reads(text: str) -> Any:
    """A model that writes `text` after any prompt that ends in a colon, with certainty."""
    tokens = torch.tensor(LETTERS.encode(text))

    def logits(rows: torch.Tensor) -> torch.Tensor:
        found = torch.full((*rows.shape, LETTERS.vocabulary), -30.0)
        start = int((rows[0] == LETTERS.alphabet.index(":")).nonzero()[0]) + 1
        for place in range(start - 1, rows.shape[1]):
            found[:, place, tokens[min(place - start + 1, len(tokens) - 1)]] = 30.0
        return found

    return logits


def test_advantages_are_against_the_own_group() -> None:
    found = advantages(torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]))
    assert found[0].tolist() == pytest.approx([1.7317, -0.5772, -0.5772, -0.5772], abs=1e-3)
    assert found[1].tolist() == [0, 0, 0, 0]


def test_an_answer_ends_where_its_writer_ended_it() -> None:
    prompts = torch.tensor([LETTERS.encode("3 4=07:")] * 2)
    answers = sample(reads("3+4\n"), LETTERS, prompts, temperature=0)
    assert answers.texts(LETTERS) == ["3+4", "3+4"]
    assert answers.counts.sum(1).tolist() == [4, 4]
    endless = sample(reads("1111"), LETTERS, prompts, temperature=1.0)
    assert endless.counts.shape == (2, LETTERS.longest_answer)


def test_likelihoods_are_of_the_written_tokens() -> None:
    logits = torch.zeros(1, 5, LETTERS.vocabulary)
    logits[0, :, 3] = 1.0
    answers = Answers(torch.tensor([[1, 2, 3, 4, 3]]), 2, torch.ones(1, 3, dtype=torch.bool))
    logs, entropy = likelihood(lambda rows: logits[:, : rows.shape[1]], answers, 1.0)
    total = torch.tensor(1.0).exp() + LETTERS.vocabulary - 1
    assert logs[0].tolist() == pytest.approx(
        [float(1 - total.log()), float(-total.log()), float(1 - total.log())]
    )
    assert entropy.shape == (1, 3)


def test_groups_are_judged_and_flat_ones_counted() -> None:
    puzzles = [Puzzle(1, (3, 4), 7, "3+4"), Puzzle(1, (1, 2), 3, "1+2")]
    model = reads("3+4\n")
    judged = roll_out(
        puzzles, 3, model, model, LETTERS,
        temperature=1.0, generator=torch.Generator(), device=torch.device("cpu"),
    )  # fmt: skip
    assert judged.metrics == {
        "reward": 0.5, "correct": 0.5, "formed": 0.5, "flat": 1.0, "length": 4.0,
    }  # fmt: skip
    assert judged.right_at(1) == 0.5
    assert math.isnan(judged.right_at(2))
    loss, told = loss_of(judged.rollouts, model, VALUES)
    assert float(loss) == 0
    assert told["kl_now"] == told["clipped"] == 0


def test_the_loss_raises_what_was_right_within_the_clip_bounds() -> None:
    puzzles = several(2, 4, random.Random(0))
    weights = torch.zeros(LETTERS.vocabulary, requires_grad=True)

    def model(rows: torch.Tensor) -> torch.Tensor:
        return weights.expand(*rows.shape, -1)

    judged = roll_out(
        puzzles, 64, model, model, LETTERS,
        temperature=1.0, generator=torch.Generator().manual_seed(0), device=torch.device("cpu"),
    )  # fmt: skip
    worth = judged.rollouts[0].advantages
    judged.rollouts[0].advantages.copy_(torch.zeros_like(worth))
    judged.rollouts[0].advantages[0] = 1.0
    loss, _ = loss_of(judged.rollouts, model, VALUES)
    loss.backward()
    written = set(judged.rollouts[0].answers.rows[0, judged.rollouts[0].answers.start :].tolist())
    assert weights.grad is not None
    assert all(weights.grad[token] < 0 for token in written)
    with torch.no_grad():
        weights[next(iter(written))] += 5.0
    _, told = loss_of(judged.rollouts, model, VALUES)
    assert told["clipped"] > 0 and told["kl_now"] > 0


def test_the_policy_that_comes_along_solves_the_easy_levels() -> None:
    puzzles = several(1, 40, random.Random(3), held_out=True)
    rows = torch.tensor([LETTERS.encode(each.prompt) for each in puzzles])
    texts = sample(warm_policy(), LETTERS, rows, temperature=0).texts(LETTERS)
    right = [verify(puzzle, text).reward for puzzle, text in zip(puzzles, texts, strict=True)]
    assert right.count(1.0) > 30


def test_warming_up_repeats_itself_and_leaves_the_random_streams_alone() -> None:
    before = torch.get_rng_state()
    one, other = warm_up("ci"), warm_up("ci")
    assert torch.equal(before, torch.get_rng_state())
    for left, right in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.equal(left, right)
    tokens, masks = solved(50)
    row = LETTERS.decode(tokens[0].tolist())
    assert int(masks[0].sum()) == len(row.partition(":")[2]) + 1
