"""Sentiment from several sources, mixed as one likes, measured on a source that is held out."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.nn import functional as F

from it2nb.core.goals import Goal
from it2nb.workflows.base import LoopWorkflow, Scale
from it2nb.workflows.data import CLASSES, HUB, snippets
from it2nb.workflows.encoder import (
    BERT,
    LENGTH,
    PACKAGE,
    Tokens,
    classifier,
    tokenizer_of,
    tokens_of,
)
from it2nb.workflows.requirements import Requirements
from it2nb.workflows.text import device_of
from it2nb.workflows.training import CLIP, Setting, Training

#: Sources to train on, and the one that is held out.
MIX: dict[Scale, tuple[tuple[str, ...], str]] = {
    "ci": (("tweets", "films", "editorials"), "products"),
    "laptop": (("tweets", "films", "editorials"), "products"),
    "paper": (("hub-tweets", "hub-finance", "hub-products"), "hub-yelp"),
}
ROWS: dict[Scale, int] = {"ci": 8, "laptop": 12, "paper": 32}
#: Snippets of each source that are read for training, and of the held-out one.
LIMITS: dict[Scale, tuple[int | None, int]] = {
    "ci": (300, 60), "laptop": (None, 240), "paper": (50_000, 5_000),
}  # fmt: skip


class SentimentMixing(LoopWorkflow):
    """Tell negative, neutral and positive apart on a source that was never trained on.

    See `Workflow`. Knobs: ``weight/SOURCE``, in proportion to which each row of a batch is
    drawn from a source; ``class/CLASS``, the weight of a class in the loss; ``lr``,
    ``weight_decay``, ``clip``.
    Metrics: ``loss, acc``, the batch's rows from each source ``rows/SOURCE``; at each
    evaluation ``macro_f1, val_loss, f1/CLASS`` on the held-out source.
    """

    name: ClassVar[str] = "mixing"
    title: ClassVar[str] = "sentiment, four sources"
    goal: ClassVar[Goal] = Goal("macro_f1", "max")
    sizes: ClassVar[Mapping[Scale, tuple[int, int]]] = {
        "ci": (12, 6),
        "laptop": (160, 20),
        "paper": (2000, 100),
    }

    def requirements(self) -> Requirements:
        """Tell what it needs at its scale."""
        if self.scale == "paper":
            train, held_out = MIX["paper"]
            data = tuple(HUB[each].repo for each in (*train, held_out))
            return Requirements(
                40, 16, 8, (BERT,), data, ("transformers", "datasets"), "workflows,hub"
            )
        minutes = 0.2 if self.scale == "ci" else 3.0
        return Requirements(minutes, 2, packages=("transformers", PACKAGE))

    def fresh(self, seed: int) -> Training:
        """Load the encoder, draw its head and the batches anew."""
        device, rows = device_of(self.scale), ROWS[self.scale]
        sources, held_out = MIX[self.scale]
        texts = _texts(self.scale)
        model = classifier(self.scale, len(CLASSES)).to(device)
        model.train()
        trained = [each for each in model.parameters() if each.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=5e-4, weight_decay=0.01)
        generator = torch.Generator().manual_seed(seed)
        settings = [*_weights(sources), CLIP]
        values: dict[str, Any] = {each.name: each.value for each in settings}

        def update(step: int) -> dict[str, Any]:
            shares = torch.tensor([values[f"weight/{name}"] for name in sources])
            if not shares.any():  # nothing weighs anything: all weigh the same
                shares = torch.ones(len(sources))
            picked = torch.multinomial(shares, rows, replacement=True, generator=generator)
            ids, labels = _draw([texts[name] for name in sources], picked, generator)
            balance = torch.tensor([values[f"class/{name}"] for name in CLASSES], device=device)
            logits = model(**{k: v.to(device) for k, v in ids.items()})["logits"]
            labels = labels.to(device)
            # Not divided by the weights of the batch: a class of weight 0 costs nothing.
            loss = (F.cross_entropy(logits, labels, reduction="none") * balance[labels]).mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, values["clip"])
            optimizer.step()
            counts = torch.bincount(picked, minlength=len(sources)).tolist()
            right = (logits.argmax(1) == labels).float().mean()
            return {"loss": loss.item(), "acc": right.item()} | {
                f"rows/{name}": count for name, count in zip(sources, counts, strict=True)
            }

        return Training(
            model=model,
            optimizers={"opt": optimizer},
            update=update,
            evaluate=lambda: _measure(model, texts[held_out], device),
            settings=settings,
            values=values,
            hyper=("lr", "weight_decay"),
            generator=generator,
            about={"held_out": held_out, **{name: len(texts[name]) for name in texts}},
        )


def macro_f1(predicted: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Return the F1 of each class, and their mean; a class that nobody names counts 0."""
    found: dict[str, float] = {}
    for number, name in enumerate(CLASSES):
        ours, theirs = predicted == number, labels == number
        both = int((ours & theirs).sum())
        total = int(ours.sum()) + int(theirs.sum())
        found[f"f1/{name}"] = 2 * both / total if total else 0.0
    return {"macro_f1": sum(found.values()) / len(found), **found}


def _weights(sources: Sequence[str]) -> list[Setting]:
    of_sources = [
        Setting(f"weight/{name}", 1.0, 0.0, 10.0, group="sources",
                description=f"how often a row is drawn from {name}, in proportion to the others")
        for name in sources
    ]  # fmt: skip
    of_classes = [
        Setting(f"class/{name}", 1.0, 0.0, 5.0, group="classes",
                description=f"weight of {name} snippets in the loss")
        for name in CLASSES
    ]  # fmt: skip
    return [*of_sources, *of_classes]


def _draw(
    texts: Sequence[Tokens], picked: torch.Tensor, generator: torch.Generator
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Draw one snippet of each picked source."""
    widest = max(each.ids.shape[1] for each in texts)
    ids = torch.zeros(len(picked), widest, dtype=torch.long)
    labels = torch.zeros(len(picked), dtype=torch.long)
    for row, number in enumerate(picked.tolist()):
        source = texts[number]
        place = int(torch.randint(len(source), (1,), generator=generator))
        ids[row, : source.ids.shape[1]] = source.ids[place]
        labels[row] = source.labels[place]
    drawn = Tokens(ids, labels)
    return drawn.rows(torch.arange(len(picked))), labels


@torch.no_grad()
def _measure(model: torch.nn.Module, held_out: Tokens, device: torch.device) -> dict[str, float]:
    model.eval()
    logits = torch.cat([
        model(**{k: v.to(device) for k, v in held_out.rows(part).items()})["logits"].cpu()
        for part in torch.arange(len(held_out)).split(64)
    ])  # fmt: skip
    model.train()
    loss = F.cross_entropy(logits, held_out.labels)
    return {"val_loss": loss.item(), **macro_f1(logits.argmax(1), held_out.labels)}


@functools.cache
def _texts(scale: Scale) -> Mapping[str, Tokens]:
    """Tokens of all sources; of the held-out one those of the validation split."""
    tokenizer, length = tokenizer_of(scale), LENGTH[scale]
    (sources, held_out), (limit, held_out_limit) = MIX[scale], LIMITS[scale]
    found = {
        name: tokens_of(tokenizer, snippets(name, "train", limit=limit), length) for name in sources
    }
    tested = snippets(held_out, "validation", limit=held_out_limit)
    return {**found, held_out: tokens_of(tokenizer, tested, length)}
