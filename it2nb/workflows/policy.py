"""A policy that writes answers to prompts: how it reads, samples, and how likely an answer is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn import functional as F

#: Returns the logits of each next token for rows of tokens, shape (rows, length, vocabulary).
Logits = Callable[[torch.Tensor], torch.Tensor]


class Speaker(Protocol):
    """Turns text into tokens and back."""

    end: int
    longest_answer: int

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        ...

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, up to the end."""
        ...


class Letters:
    """One token a character, of those that a puzzle and its answer need."""

    alphabet = "0123456789+-*/()= :\n"
    end = alphabet.index("\n")
    vocabulary = len(alphabet)

    def __init__(self, longest_answer: int = 14) -> None:
        self.longest_answer = longest_answer

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text."""
        return [self.alphabet.index(letter) for letter in text]

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, up to the end."""
        return "".join(self.alphabet[each] for each in tokens).partition("\n")[0]


class Words:
    """A tokenizer of the hub's, asked in words, for a model that was taught to follow them."""

    def __init__(self, tokenizer: Any, longest_answer: int = 64) -> None:
        self._tokenizer = tokenizer
        self.end: int = tokenizer.eos_token_id
        self.longest_answer = longest_answer

    def encode(self, text: str) -> list[int]:
        """Return the tokens of the request; an answer is encoded as it is."""
        if not text.endswith(":"):
            return list(self._tokenizer(text)["input_ids"])
        numbers, target = text.rstrip(":").split("=")
        asked = (
            f"Use each of the numbers {numbers.replace(' ', ', ')} exactly once, with + - * / and "
            f"brackets, to make {int(target)}. Answer with the expression alone."
        )
        tokens: list[int] = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": asked}], add_generation_prompt=True,
            enable_thinking=False, return_dict=False,
        )  # fmt: skip
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of tokens, up to the end."""
        several = list(tokens)
        if self.end in several:
            several = several[: several.index(self.end)]
        return str(self._tokenizer.decode(several)).strip().replace(" ", "")


@dataclass(frozen=True)
class Answers:
    """Answers to prompts of one length.

    Attributes
    ----------
    rows : torch.Tensor of int64, shape (answers, prompt + answer)
    start : int
        Where the answers begin.
    counts : torch.Tensor of bool, shape (answers, answer)
        Which of their tokens were written: up to and with the end.
    """

    rows: torch.Tensor
    start: int
    counts: torch.Tensor

    def texts(self, speaker: Speaker) -> list[str]:
        """Return the answers as text."""
        return [speaker.decode(each) for each in self.rows[:, self.start :].tolist()]


@torch.no_grad()
def sample(
    logits: Logits,
    speaker: Speaker,
    prompts: torch.Tensor,
    *,
    temperature: float,
    generator: torch.Generator | None = None,
) -> Answers:
    """Write one answer to each prompt of one length, token by token.

    Parameters
    ----------
    temperature : float
        0 takes the likeliest token each time.
    """
    rows, start = prompts, prompts.shape[1]
    over = torch.zeros(len(prompts), dtype=torch.bool, device=prompts.device)
    counts = []
    for _ in range(speaker.longest_answer):
        last = logits(rows)[:, -1].float()
        if temperature > 0:
            odds = (last / temperature).softmax(-1).cpu()
            picked = torch.multinomial(odds, 1, generator=generator)[:, 0].to(rows.device)
        else:
            picked = last.argmax(-1)
        picked = torch.where(over, speaker.end, picked)
        rows = torch.cat((rows, picked[:, None]), 1)
        counts.append(~over)
        over = over | (picked == speaker.end)
        if bool(over.all()):
            break
    return Answers(rows, start, torch.stack(counts, 1))


def likelihood(
    logits: Logits, answers: Answers, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the log-probability of each written token, and the entropy at its place.

    Returns
    -------
    tuple of torch.Tensor, both of shape (answers, answer)
    """
    scores = logits(answers.rows[:, :-1])[:, answers.start - 1 :].float() / temperature
    logs = F.log_softmax(scores, -1)
    written = answers.rows[:, answers.start :]
    entropy = -(logs.exp() * logs).sum(-1)
    return logs.gather(-1, written.unsqueeze(-1)).squeeze(-1), entropy
