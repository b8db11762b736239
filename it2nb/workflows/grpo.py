"""GRPO: groups of answers to a prompt, each judged against the others of its group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from it2nb.workflows.policy import Answers, Logits, Speaker, likelihood, sample
from it2nb.workflows.puzzles import Checked, Puzzle, verify


@dataclass(frozen=True)
class Rollout:
    """Answers to prompts of one length, and what they were worth.

    Attributes
    ----------
    answers : Answers
    advantages : torch.Tensor, shape (answers,)
    old, reference : torch.Tensor, shape (answers, answer)
        Log-probabilities of the tokens when they were written, and by the reference.
    """

    answers: Answers
    advantages: torch.Tensor
    old: torch.Tensor
    reference: torch.Tensor


@dataclass(frozen=True)
class Judged:
    """How a batch of groups did.

    Attributes
    ----------
    rollouts : list of Rollout
    checked : list of (Puzzle, Checked)
        One an answer.
    metrics : dict of str to float
        ``reward, correct, formed`` (shares of the answers), ``flat`` (share of groups without
        an advantage) and ``length`` (tokens an answer).
    """

    rollouts: list[Rollout]
    checked: list[tuple[Puzzle, Checked]]
    metrics: dict[str, float]

    def right_at(self, level: int) -> float:
        """Return the share of right answers to puzzles of a level; NaN without any."""
        said = [each.verdict == "right" for puzzle, each in self.checked if puzzle.level == level]
        return sum(said) / len(said) if said else float("nan")


def advantages(rewards: torch.Tensor) -> torch.Tensor:
    """Return how much better each answer is than its group, in standard deviations.

    Parameters
    ----------
    rewards : torch.Tensor, shape (groups, samples)

    Notes
    -----
    Shao et al. (2024), arXiv:2402.03300, section 4.1. A group whose rewards are all the same
    has none.
    """
    centred = rewards - rewards.mean(1, keepdim=True)
    return centred / (rewards.std(1, keepdim=True, correction=0) + 1e-4)


def roll_out(
    puzzles: Sequence[Puzzle],
    samples: int,
    logits: Logits,
    reference: Logits,
    speaker: Speaker,
    *,
    temperature: float,
    generator: torch.Generator,
    device: torch.device,
) -> Judged:
    """Write `samples` answers to each puzzle and judge them."""
    rollouts: list[Rollout] = []
    judged: list[tuple[Puzzle, Checked]] = []
    flat = tokens = 0
    for several, prompts in _by_length(puzzles, speaker):
        rows = torch.tensor(prompts, device=device).repeat_interleave(samples, 0)
        answers = sample(logits, speaker, rows, temperature=temperature, generator=generator)
        texts = answers.texts(speaker)
        asked = [puzzle for puzzle in several for _ in range(samples)]
        said = [verify(puzzle, text) for puzzle, text in zip(asked, texts, strict=True)]
        rewards = torch.tensor([each.reward for each in said]).view(-1, samples)
        flat += int((rewards.std(1, correction=0) < 1e-6).sum())
        tokens += int(answers.counts.sum())
        with torch.no_grad():
            old, _ = likelihood(logits, answers, temperature)
            known, _ = likelihood(reference, answers, temperature)
        worth = advantages(rewards).view(-1).to(device)
        rollouts.append(Rollout(answers, worth, old, known))
        judged += zip(asked, said, strict=True)
    checked = [each for _, each in judged]
    verdicts = [each.verdict for each in checked]
    return Judged(
        rollouts,
        judged,
        {
            "reward": sum(each.reward for each in checked) / len(checked),
            "correct": verdicts.count("right") / len(checked),
            "formed": (verdicts.count("right") + verdicts.count("wrong")) / len(checked),
            "flat": flat / len(puzzles),
            "length": tokens / len(checked),
        },
    )


def loss_of(
    rollouts: Sequence[Rollout], logits: Logits, values: Mapping[str, Any]
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the loss, a mean over all written tokens, and its parts.

    Parameters
    ----------
    values : mapping
        ``temperature``; ``clip_low, clip_high``, how far the ratio of new to old probability
        may move; ``kl, entropy``, the weights of the two.

    Notes
    -----
    Separate clip bounds as in Yu et al. (2025), arXiv:2503.14476; the estimate of the
    divergence as in Schulman (2020), ``exp(d) - d - 1``.
    """
    total: Any = 0.0
    sums = {"kl_now": 0.0, "entropy_now": 0.0, "clipped": 0.0}
    count = sum(float(each.answers.counts.sum()) for each in rollouts)
    for each in rollouts:
        logs, entropy = likelihood(logits, each.answers, values["temperature"])
        written = each.answers.counts
        ratio = (logs - each.old).exp()
        held = ratio.clamp(1 - values["clip_low"], 1 + values["clip_high"])
        worth = each.advantages[:, None]
        gain = torch.minimum(ratio * worth, held * worth)
        apart = each.reference - logs
        kl = apart.exp() - apart - 1
        per_token = -gain + values["kl"] * kl - values["entropy"] * entropy
        total = total + (per_token * written).sum() / count
        for name, what in (("kl_now", kl), ("entropy_now", entropy),
                           ("clipped", (gain < ratio * worth).float())):  # fmt: skip
            sums[name] += float((what.detach() * written).sum()) / count
    return total, sums


def accuracy(
    puzzles: Mapping[int, Sequence[Puzzle]],
    logits: Logits,
    speaker: Speaker,
    device: torch.device,
) -> dict[str, float]:
    """Return the share of puzzles that are solved at temperature 1, by level and over all.

    The random stream is the same each time: two policies differ, not two evaluations.
    """
    generator = torch.Generator().manual_seed(0)
    found: dict[str, float] = {}
    for level, several in puzzles.items():
        right = 0
        for alike, prompts in _by_length(several, speaker):
            rows = torch.tensor(prompts, device=device)
            answers = sample(logits, speaker, rows, temperature=1.0, generator=generator)
            texts = answers.texts(speaker)
            said = [verify(puzzle, text) for puzzle, text in zip(alike, texts, strict=True)]
            right += sum(each.verdict == "right" for each in said)
        found[f"accuracy/{level}"] = right / len(several)
    return {"accuracy": sum(found.values()) / len(found), **found}


def _by_length(
    puzzles: Sequence[Puzzle], speaker: Speaker
) -> list[tuple[list[Puzzle], list[list[int]]]]:
    """Put puzzles together whose prompts are equally long: no row is padded."""
    found: dict[int, tuple[list[Puzzle], list[list[int]]]] = {}
    for puzzle in puzzles:
        tokens = speaker.encode(puzzle.prompt)
        several, prompts = found.setdefault(len(tokens), ([], []))
        several.append(puzzle)
        prompts.append(tokens)
    return list(found.values())


def logits_of(model: Callable[..., Any]) -> Logits:
    """Return a function from tokens to logits, for our models and the hub's."""

    def logits(rows: torch.Tensor) -> torch.Tensor:
        found = model(rows)
        return found if isinstance(found, torch.Tensor) else found.logits

    return logits
