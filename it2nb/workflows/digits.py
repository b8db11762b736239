"""Handwritten digits and a small CNN: the quickstart's training, as a workflow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn
from torch.nn import functional as F

from it2nb.core.errors import require
from it2nb.core.goals import Goal
from it2nb.workflows.base import LoopWorkflow, Scale
from it2nb.workflows.requirements import Requirements
from it2nb.workflows.training import Setting, Training

BATCH = 32
HELD_OUT = 360


class Digits(LoopWorkflow):
    """Classify scikit-learn's 1,797 images of 8 × 8 pixels; see `Workflow`.

    Knobs: the optimizer's (``lr``, ``weight_decay``, ``betas[0]``...), ``shift``, ``dropout``.
    Metrics: ``loss, acc`` at each step, ``val_loss, val_acc`` at each evaluation.
    """

    name: ClassVar[str] = "digits"
    title: ClassVar[str] = "digits, a small CNN"
    goal: ClassVar[Goal] = Goal("val_loss", "min")
    sizes: ClassVar[Mapping[Scale, tuple[int, int]]] = {
        "ci": (60, 20),
        "laptop": (2000, 100),
        "paper": (20_000, 500),
    }

    def requirements(self) -> Requirements:
        """Tell what it needs; the data comes with scikit-learn."""
        minutes = {"ci": 0.05, "laptop": 0.3, "paper": 3.0}[self.scale]
        return Requirements(minutes, packages=("sklearn",), extra="examples")

    def data(self) -> dict[str, torch.Tensor]:
        """Return ``images, labels`` and the indices ``train`` and ``held_out``."""
        return _digits()

    def fresh(self, seed: int) -> Training:
        """Make the CNN and draw the batches' order anew."""
        data = self.data()
        model = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Dropout(0.2), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
        )  # fmt: skip
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
        generator = torch.Generator().manual_seed(seed)
        values: dict[str, Any] = {"shift": 0, "dropout": 0.2}
        images, labels = data["images"], data["labels"]
        train, held_out = data["train"], data["held_out"]

        def update(step: int) -> dict[str, Any]:
            for part in model.modules():
                if isinstance(part, nn.Dropout):
                    part.p = values["dropout"]
            chosen = train[torch.randint(len(train), (BATCH,), generator=generator)]
            far = values["shift"]
            by = torch.randint(-far, far + 1, (2,), generator=generator).tolist()
            logits = model(torch.roll(images[chosen], by, (2, 3)))
            loss = F.cross_entropy(logits, labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            right = (logits.argmax(1) == labels[chosen]).float().mean()
            return {"loss": loss.item(), "acc": right.item()}

        @torch.no_grad()
        def evaluate() -> dict[str, float]:
            model.eval()
            logits = model(images[held_out])
            model.train()
            right = (logits.argmax(1) == labels[held_out]).float().mean()
            loss = F.cross_entropy(logits, labels[held_out])
            return {"val_loss": loss.item(), "val_acc": right.item()}

        return Training(
            model=model,
            optimizers={"opt": optimizer},
            update=update,
            evaluate=evaluate,
            settings=(
                Setting("shift", 0, 0, 2, unit="pixels",
                        description="batches are moved by up to so many pixels, at random"),
                Setting("dropout", 0.2, 0.0, 0.8,
                        description="share of the features before the first linear layer that "
                        "is left out"),
            ),
            values=values,
            generator=generator,
            about={"images": len(labels), "held_out": len(held_out), "batch": BATCH},
        )  # fmt: skip


def _digits() -> dict[str, torch.Tensor]:
    """Images, labels, and a split that is the same for every seed."""
    datasets = require("sklearn.datasets", extra="examples", feature="the digits workflow")
    digits = datasets.load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(0))
    return {
        "images": torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16,
        "labels": torch.tensor(digits.target),
        "train": order[:-HELD_OUT],
        "held_out": order[-HELD_OUT:],
    }
