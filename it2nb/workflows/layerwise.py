"""A GPT with a learning rate for each of its parts: blocks, embedding, head, norms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from it2nb.core.goals import Goal
from it2nb.workflows.base import LoopWorkflow, Scale
from it2nb.workflows.gpt import GPT, Shape
from it2nb.workflows.requirements import Requirements
from it2nb.workflows.text import device_of, loss_of, text_of, text_requirements
from it2nb.workflows.training import CLIP, Training, gradient_norm

#: (context, width, blocks, heads, kv_heads, hidden), rows of a batch, held-out rows.
SHAPES: dict[Scale, tuple[tuple[int, int, int, int, int, int], int, int]] = {
    "ci": ((32, 32, 2, 2, 1, 64), 8, 16),
    "laptop": ((64, 96, 6, 4, 2, 256), 12, 128),
    "paper": ((512, 512, 24, 8, 4, 1536), 32, 256),
}


class LayerwiseGPT(LoopWorkflow):
    """Train a GPT from scratch with one learning rate per part; see `Workflow`.

    Knobs: ``lr`` scales all rates and keeps their ratios, ``lr[block.0]``... set one each,
    ``lr[embedding]``, ``lr[head]`` and ``lr[rest]`` (the last norm) the others; ``clip``. A
    linear warm-up over a twentieth of the steps drives the rates at first.
    Metrics: ``loss``, and at each tenth step ``grad/PART`` and ``lr/PART``, the gradient's norm
    and the rate in force; ``val_loss`` (nats a token) at each evaluation.
    """

    name: ClassVar[str] = "layerwise"
    title: ClassVar[str] = "a GPT, one lr per block"
    goal: ClassVar[Goal] = Goal("val_loss", "min")
    sizes: ClassVar[Mapping[Scale, tuple[int, int]]] = {
        "ci": (30, 10),
        "laptop": (500, 25),
        "paper": (3000, 100),
    }
    #: Of the largest rate.
    lr: ClassVar[float] = 1e-3

    def requirements(self) -> Requirements:
        """Tell what it needs at its scale."""
        minutes = {"ci": 0.1, "laptop": 3.0, "paper": 90.0}[self.scale]
        return text_requirements(self.scale, minutes, 24)

    def fresh(self, seed: int) -> Training:
        """Make the GPT and its groups anew."""
        sizes, rows, held_out = SHAPES[self.scale]
        text, device = text_of(self.scale), device_of(self.scale)
        model = GPT(Shape(text.vocabulary, *sizes)).to(device)
        groups = parts_of(model)
        optimizer = torch.optim.AdamW(
            [{"name": name, "params": list(part.parameters())} for name, part in groups.items()],
            lr=self.lr, betas=(0.9, 0.95), weight_decay=0.1,
        )  # fmt: skip
        warmup = max(1, self.steps // 20)
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / warmup)
        )
        generator = torch.Generator().manual_seed(seed)
        values: dict[str, Any] = {"clip": 1.0}

        def update(step: int) -> dict[str, Any]:
            x, y = (each.to(device) for each in text.batch(generator, rows, sizes[0]))
            loss = loss_of(model, x, y)
            optimizer.zero_grad()
            loss.backward()
            told: dict[str, float] = {}
            if step % 10 == 0:
                told = {f"grad/{k}": gradient_norm(v.parameters()) for k, v in groups.items()}
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), values["clip"])
            optimizer.step()
            if step % 10 == 0:
                told |= {f"lr/{g['name']}": g["lr"] for g in optimizer.param_groups}
            scheduler.step()
            return {"loss": loss.item(), "grad_norm": norm.item(), **told}

        return Training(
            model=model,
            optimizers={"opt": optimizer},
            schedulers=[scheduler],
            update=update,
            evaluate=text.evaluator(model, held_out, sizes[0]),
            settings=[CLIP],
            values=values,
            hyper=("lr",),
            generator=generator,
            about={"shape": sizes, "parameters": sum(p.numel() for p in model.parameters())},
        )


def parts_of(model: GPT) -> dict[str, nn.Module]:
    """Return the parts that have a learning rate of their own, by name."""
    blocks = {f"block.{number}": block for number, block in enumerate(model.blocks)}
    return {"embedding": model.embedding, **blocks, "head": model.head, "rest": model.norm}
