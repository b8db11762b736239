"""A GPT with two optimizers: Muon for its matrices, AdamW for the rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from it2nb.core.errors import WorkflowUnavailable
from it2nb.core.goals import Goal
from it2nb.workflows.base import LoopWorkflow, Scale
from it2nb.workflows.gpt import GPT, Shape
from it2nb.workflows.requirements import Requirements
from it2nb.workflows.text import device_of, loss_of, text_of, text_requirements
from it2nb.workflows.training import CLIP, Training, gradient_norm

#: (context, width, blocks, heads, kv_heads, hidden), rows of a batch, held-out rows.
SHAPES: dict[Scale, tuple[tuple[int, int, int, int, int, int], int, int]] = {
    "ci": ((32, 32, 2, 2, 1, 64), 8, 16),
    "laptop": ((64, 96, 4, 4, 2, 256), 12, 128),
    "paper": ((1024, 768, 12, 12, 4, 2304), 32, 256),
}


class MuonGPT(LoopWorkflow):
    """Train a GPT from scratch with Muon and AdamW; see `Workflow`.

    Knobs: ``muon.lr, muon.momentum, muon.weight_decay`` of the matrices inside of the blocks,
    ``adam.lr, adam.weight_decay`` of embedding, head and norms; ``clip``.
    Metrics: ``loss``; at each tenth step ``grad/muon, grad/adam`` (norms) and ``rms/muon,
    rms/adam`` (of the weights); ``val_loss`` (nats a token) at each evaluation.
    """

    name: ClassVar[str] = "muon"
    title: ClassVar[str] = "a GPT, Muon and AdamW"
    goal: ClassVar[Goal] = Goal("val_loss", "min")
    sizes: ClassVar[Mapping[Scale, tuple[int, int]]] = {
        "ci": (30, 10),
        "laptop": (400, 25),
        "paper": (3000, 100),
    }
    muon_lr: ClassVar[float] = 2e-2
    adam_lr: ClassVar[float] = 1e-3

    def requirements(self) -> Requirements:
        """Tell what it needs at its scale."""
        minutes = {"ci": 0.1, "laptop": 2.0, "paper": 150.0}[self.scale]
        return text_requirements(self.scale, minutes, 40)

    def check(self) -> None:
        """Check what it needs, PyTorch's own Muon too."""
        super().check()
        if not hasattr(torch.optim, "Muon"):
            raise WorkflowUnavailable(
                f"torch.optim.Muon came with PyTorch 2.9, and this is {torch.__version__}: "
                f"pip install 'torch>=2.9'"
            )

    def fresh(self, seed: int) -> Training:
        """Make the GPT and both optimizers anew."""
        sizes, rows, held_out = SHAPES[self.scale]
        text, device = text_of(self.scale), device_of(self.scale)
        model = GPT(Shape(text.vocabulary, *sizes)).to(device)
        matrices = [each for each in model.blocks.parameters() if each.dim() == 2]
        known = {id(each) for each in matrices}
        rest = [each for each in model.parameters() if id(each) not in known]
        muon = torch.optim.Muon(matrices, lr=self.muon_lr, weight_decay=0.1, momentum=0.95)
        adam = torch.optim.AdamW(rest, lr=self.adam_lr, betas=(0.9, 0.95), weight_decay=0.0)
        warmup = max(1, self.steps // 20)
        schedulers = [
            torch.optim.lr_scheduler.LambdaLR(each, lambda step: min(1.0, (step + 1) / warmup))
            for each in (muon, adam)
        ]
        generator = torch.Generator().manual_seed(seed)
        values: dict[str, Any] = {"clip": 1.0}

        def update(step: int) -> dict[str, Any]:
            x, y = (each.to(device) for each in text.batch(generator, rows, sizes[0]))
            loss = loss_of(model, x, y)
            model.zero_grad()
            loss.backward()
            told: dict[str, float] = {}
            if step % 10 == 0:
                for name, part in (("muon", matrices), ("adam", rest)):
                    told |= {f"grad/{name}": gradient_norm(part), f"rms/{name}": rms_of(part)}
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), values["clip"])
            for optimizer, scheduler in zip((muon, adam), schedulers, strict=True):
                optimizer.step()
                scheduler.step()
            return {"loss": loss.item(), "grad_norm": norm.item(), **told}

        return Training(
            model=model,
            optimizers={"muon": muon, "adam": adam},
            schedulers=schedulers,
            update=update,
            evaluate=text.evaluator(model, held_out, sizes[0]),
            settings=[CLIP],
            values=values,
            hyper=("lr", "momentum", "weight_decay"),
            generator=generator,
            about={"shape": sizes, "matrices": len(matrices), "rest": len(rest)},
        )


@torch.no_grad()
def rms_of(tensors: Iterable[torch.Tensor]) -> float:
    """Return the root mean square of all numbers in some tensors."""
    several = list(tensors)
    squares = sum(float(each.square().sum()) for each in several)
    return float((squares / sum(each.numel() for each in several)) ** 0.5)
