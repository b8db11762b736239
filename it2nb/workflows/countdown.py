"""Countdown by rewards: a small policy, a verifier, GRPO with LoRA."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch

from it2nb.core.errors import require
from it2nb.core.goals import Goal
from it2nb.workflows.base import LoopWorkflow, Scale
from it2nb.workflows.grpo import accuracy, logits_of, loss_of, roll_out
from it2nb.workflows.policy import Letters, Speaker, Words
from it2nb.workflows.puzzles import LEVELS, Puzzle, several
from it2nb.workflows.requirements import Requirements, as_allowed
from it2nb.workflows.text import device_of
from it2nb.workflows.training import CLIP, Setting, Training
from it2nb.workflows.warmup import warm_policy

#: The policy at ``paper`` scale.
QWEN = "Qwen/Qwen3-0.6B"
#: (prompts, answers to each, held-out puzzles of each level).
BATCHES: dict[Scale, tuple[int, int, int]] = {
    "ci": (3, 4, 3), "laptop": (12, 8, 30), "paper": (16, 8, 50),
}  # fmt: skip
#: (rank of LoRA, lr) at each scale.
LORA: dict[Scale, tuple[int, float]] = {"ci": (2, 1e-3), "laptop": (16, 5e-4), "paper": (16, 1e-5)}
#: Matrices that get a LoRA: ours and Qwen's.
TARGETS = {
    "ours": ["q", "k", "v", "o", "gate", "up", "down"],
    "qwen": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
}
#: Optimizer updates on each batch of answers.
UPDATES = 2

SETTINGS = (
    Setting("difficulty", 3, 1, len(LEVELS), unit="level", group="task",
            description="level of half of the puzzles that are trained on; the rest are of any"),
    Setting("temperature", 1.0, 0.2, 2.0, group="sampling",
            description="of the answers that are trained on; evaluation is always at 1"),
    Setting("kl", 0.05, 0.0, 1.0, group="objective",
            description="weight of the divergence from the policy it began with"),
    Setting("entropy", 0.0, 0.0, 0.1, group="objective", unit="per nat",
            description="bonus for undecided answers"),
    Setting("clip_low", 0.2, 0.0, 1.0, group="objective",
            description="how far a token's probability may fall in one iteration, as a share"),
    Setting("clip_high", 0.28, 0.0, 1.0, group="objective",
            description="how far it may grow"),
    CLIP,
)  # fmt: skip


class Countdown(LoopWorkflow):
    """Reinforce right answers to Countdown puzzles; see `Workflow`.

    A step is one iteration: answers are written and judged, then come two optimizer updates.

    Knobs: ``lr``; ``difficulty, temperature, kl, entropy, clip_low, clip_high, clip``.
    Metrics: ``reward, correct, formed, flat, length, kl_now, entropy_now, clipped``, ``learned``
    (the share of right answers at the level ``difficulty``); at each evaluation ``accuracy`` over
    all levels and ``accuracy/1``... of answers to held-out puzzles, written at temperature 1.
    """

    name: ClassVar[str] = "countdown"
    title: ClassVar[str] = "Countdown by rewards"
    goal: ClassVar[Goal] = Goal("accuracy", "max")
    sizes: ClassVar[Mapping[Scale, tuple[int, int]]] = {
        "ci": (6, 3),
        "laptop": (80, 10),
        "paper": (100, 10),
    }

    def requirements(self) -> Requirements:
        """Tell what it needs at its scale."""
        if self.scale == "paper":
            return Requirements(180, 16, 40, (QWEN,), packages=("transformers", "peft"))
        return Requirements(0.1 if self.scale == "ci" else 3.0, 2, packages=("peft", "safetensors"))

    def fresh(self, seed: int) -> Training:
        """Put fresh LoRAs on the policy and draw the puzzles anew."""
        prompts, samples, held_out = BATCHES[self.scale]
        device = device_of(self.scale)
        model, speaker = _policy(self.scale)
        model.to(device)
        trained = [each for each in model.parameters() if each.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=LORA[self.scale][1], weight_decay=0.0)
        generator = torch.Generator().manual_seed(seed)
        values: dict[str, Any] = {each.name: each.value for each in SETTINGS}
        logits = logits_of(model)

        @torch.no_grad()
        def reference(rows: torch.Tensor) -> torch.Tensor:
            with model.disable_adapter():
                return logits(rows)

        def update(step: int) -> dict[str, Any]:
            # A stream of its own a step, from the one that snapshots keep.
            draw = random.Random(int(torch.randint(2**31, (1,), generator=generator)))
            level = values["difficulty"]
            puzzles = several(level, prompts - prompts // 2, draw)
            for _ in range(prompts // 2):  # all levels, so that none is forgotten
                puzzles += several(draw.randint(1, len(LEVELS)), 1, draw)
            judged = roll_out(
                puzzles, samples, logits, reference, speaker,
                temperature=values["temperature"], generator=generator, device=device,
            )  # fmt: skip
            told: dict[str, float] = {}
            for _ in range(UPDATES):
                loss, told = loss_of(judged.rollouts, logits, values)
                optimizer.zero_grad()
                loss.backward()
                told["grad_norm"] = float(torch.nn.utils.clip_grad_norm_(trained, values["clip"]))
                optimizer.step()
            return {**judged.metrics, **told, "learned": judged.right_at(level)}

        return Training(
            model=model,
            optimizers={"opt": optimizer},
            update=update,
            evaluate=_evaluator(held_out, logits, speaker, device),
            settings=SETTINGS,
            values=values,
            hyper=("lr",),
            generator=generator,
            about={"prompts": prompts, "samples": samples, "levels": list(LEVELS)},
        )


def _policy(scale: Scale) -> tuple[Any, Speaker]:
    """Return the policy with fresh LoRAs, and its speaker."""
    peft = require("peft", extra="workflows", feature="LoRA")
    rank = LORA[scale][0]
    whose = "qwen" if scale == "paper" else "ours"
    options = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=TARGETS[whose], lora_dropout=0.0
    )
    base, speaker = _qwen() if scale == "paper" else (copy.deepcopy(warm_policy()), Letters())
    # No dropout anywhere: an answer is as likely in training as it was when it was written.
    return peft.get_peft_model(base, options).eval(), speaker


def _qwen() -> tuple[Any, Speaker]:
    transformers: Any = require("transformers", extra="workflows", feature="Qwen")
    with as_allowed():
        model = transformers.AutoModelForCausalLM.from_pretrained(QWEN, dtype=torch.bfloat16)
        return model, Words(transformers.AutoTokenizer.from_pretrained(QWEN))


def _evaluator(
    count: int, logits: Any, speaker: Speaker, device: torch.device
) -> Callable[[], dict[str, float]]:
    puzzles = _held_out(count)

    @torch.no_grad()
    def evaluate() -> dict[str, float]:
        return accuracy(puzzles, logits, speaker, device)

    return evaluate


@functools.cache
def _held_out(count: int) -> dict[int, list[Puzzle]]:
    """The same puzzles each time; an easy level has few of them, and some come twice."""
    draw = random.Random(0)
    return {
        level: several(level, count, draw, held_out=True) for level in range(1, len(LEVELS) + 1)
    }
