"""Sentiment with Hugging Face's Trainer: a loop that is not ours, steered by callbacks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from it2nb.core.errors import require
from it2nb.core.goals import Goal
from it2nb.core.session import Session
from it2nb.interactive import make_interactive
from it2nb.workflows.base import Scale, Workflow
from it2nb.workflows.data import HUB, Snippet, Split, snippets
from it2nb.workflows.encoder import BERT, PACKAGE, classifier, tokenizer_of, tokens_of
from it2nb.workflows.requirements import Requirements

#: Sources, snippets for training and for validation, rows of a batch.
SOURCES: dict[Scale, tuple[tuple[str, ...], int | None, int, int]] = {
    "ci": (("films", "products"), 200, 40, 8),
    "laptop": (("films", "products"), None, 240, 16),
    "paper": (("imdb",), 16_000, 1000, 32),
}
#: Tokens that are read of a snippet.
LENGTH: dict[Scale, int] = {"ci": 16, "laptop": 40, "paper": 256}
LR: dict[Scale, float] = {"ci": 5e-4, "laptop": 5e-4, "paper": 2e-5}


class HFSentiment(Workflow):
    """Tell positive snippets from negative ones with the Trainer; see `Workflow`.

    Knobs: the optimizer's (``lr, weight_decay, betas[0], eps``...) and ``max_grad_norm``.
    Metrics: ``loss, grad_norm``; ``eval_loss, eval_accuracy`` at each evaluation.
    """

    name: ClassVar[str] = "hf"
    title: ClassVar[str] = "sentiment with the Trainer"
    goal: ClassVar[Goal] = Goal("eval_loss", "min")
    sizes: ClassVar[Mapping[Scale, tuple[int, int]]] = {
        "ci": (8, 4),
        "laptop": (180, 20),
        "paper": (1000, 50),
    }

    def requirements(self) -> Requirements:
        """Tell what it needs at its scale."""
        packages = ("transformers", "accelerate")
        if self.scale == "paper":
            data = (HUB["imdb"].repo,)
            return Requirements(20, 16, 12, (BERT,), data, (*packages, "datasets"), "workflows,hub")
        return Requirements(0.2 if self.scale == "ci" else 3.0, 2, packages=(*packages, PACKAGE))

    def parts(self, seed: int = 0) -> dict[str, Any]:
        """Return what the Trainer is made of: model, arguments, data, collator, metrics.

        The model's head is drawn from the seed. Checks first what it needs; see `check`.
        """
        self.check()
        transformers = require("transformers", extra="workflows", feature="the Trainer")
        _, train, held_out, _ = SOURCES[self.scale]
        torch.manual_seed(seed)
        return {
            "model": classifier(self.scale, 2),
            "args": self.arguments(seed),
            "train_dataset": dataset(self.scale, "train", train),
            "eval_dataset": dataset(self.scale, "validation", held_out),
            "data_collator": transformers.DataCollatorWithPadding(tokenizer_of(self.scale)),
            "compute_metrics": accuracy_of,
        }

    def arguments(self, seed: int = 0) -> Any:
        """Return the Trainer's arguments; it writes no file by itself."""
        transformers = require("transformers", extra="workflows", feature="the Trainer")
        return transformers.TrainingArguments(
            output_dir="it2runs/trainer",
            max_steps=self.steps,
            per_device_train_batch_size=SOURCES[self.scale][3],
            per_device_eval_batch_size=64,
            learning_rate=LR[self.scale],
            lr_scheduler_type="linear",
            warmup_steps=max(1, self.steps // 20),
            weight_decay=0.01,
            max_grad_norm=1.0,
            eval_strategy="steps",
            eval_steps=self.evaluate_every,
            logging_steps=max(1, self.evaluate_every // 4),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=self.scale != "paper",
            seed=seed,
        )

    def train(self, session: Session, ctx: Any = None) -> None:
        """Train once from fresh weights inside of a run; see `Workflow.train`."""
        transformers = require("transformers", extra="workflows", feature="the Trainer")
        if session.goal is None:
            session.goal = self.goal
        steered = make_interactive(transformers.Trainer)
        trainer = steered(**self.parts(self._seed(session, ctx, 0)), session=session)
        trainer.remove_callback(transformers.PrinterCallback)  # the journal has it
        trainer.train()


class Rows(torch.utils.data.Dataset[dict[str, Any]]):
    """Snippets as the Trainer wants them.

    Parameters
    ----------
    ids : sequence of list of int
        Tokens, without padding.
    labels : sequence of int
    """

    def __init__(self, ids: Sequence[list[int]], labels: Sequence[int]) -> None:
        self.ids, self.labels = ids, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return {"input_ids": self.ids[place], "labels": self.labels[place]}


@functools.cache
def dataset(scale: Scale, split: Split, limit: int | None) -> Rows:
    """Return the snippets that take a side: 0 is negative, 1 positive. The sources in turn."""
    several = [snippets(name, split) for name in SOURCES[scale][0]]
    chosen = [each for each in _in_turn(several) if each.label != 1][:limit]
    tokens = tokens_of(tokenizer_of(scale), chosen, LENGTH[scale])
    ids = [[token for token in row if token] for row in tokens.ids.tolist()]
    return Rows(ids, [each.label // 2 for each in chosen])


def accuracy_of(found: Any) -> dict[str, float]:
    """Return the share of right answers, for the Trainer."""
    logits, labels = found
    return {"accuracy": float((np.argmax(logits, -1) == labels).mean())}


def _in_turn(several: Sequence[Sequence[Snippet]]) -> list[Snippet]:
    """Mix sources evenly: the first of each, the second of each..., then what is left."""
    longest = max(map(len, several))
    return [each[place] for place in range(longest) for each in several if place < len(each)]
