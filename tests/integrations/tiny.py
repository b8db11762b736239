"""A Trainer of a few hundred weights: a step takes some milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from it2nb.core.session import Session
from it2nb.interactive import make_interactive
from it2nb.session import TrainingSession


class Parity(Dataset[dict[str, torch.Tensor]]):
    """Eight tokens, and whether their sum is odd."""

    def __init__(self, size: int = 32) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        tokens = torch.randint(5, 50, (8,), generator=generator)
        return {"input_ids": tokens, "labels": (tokens.sum() % 2).long()}


def tiny_bert() -> BertForSequenceClassification:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32,
    )  # fmt: skip
    return BertForSequenceClassification(config)


def arguments(**more: Any) -> TrainingArguments:
    """Eight updates of four items by default."""
    options: dict[str, Any] = {
        "output_dir": "out", "per_device_train_batch_size": 4, "num_train_epochs": 1,
        "learning_rate": 1e-2, "logging_steps": 1, "save_strategy": "no", "report_to": [],
        "disable_tqdm": True, "use_cpu": True, "seed": 1,
    }  # fmt: skip
    return TrainingArguments(**{**options, **more})


class At(TrainerCallback):
    """Calls functions at the end of certain updates, before the control point there."""

    def __init__(self, calls: Mapping[int, Callable[[], Any]]) -> None:
        self.calls = dict(calls)
        self.given: dict[int, Any] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        call = self.calls.pop(state.global_step, None)
        if call is not None:
            self.given[state.global_step] = call()


def new_session(**more: Any) -> TrainingSession:
    return TrainingSession(directory=None, resources_every_s=0, **more)


def trainer_of(
    session: Any,
    calls: Mapping[int, Callable[[], Any]] | None = None,
    *,
    kind: type = Trainer,
    args: TrainingArguments | None = None,
    callbacks: Any = (),
    **more: Any,
) -> Any:
    """Make a steered Trainer; `calls` are made at the end of these updates."""
    at = At(calls or {})
    options: dict[str, Any] = {"train_dataset": Parity(), **more}
    made = make_interactive(kind)(
        model=options.pop("model", None) or tiny_bert(), args=args or arguments(),
        session=session, callbacks=[at, *callbacks], **options,
    )  # fmt: skip
    made.at = at
    return made


def series(session: Session, name: str, branch: int | None = None) -> dict[int, float]:
    steps, values = session.metrics.series(name, branch)
    return dict(zip(steps.astype(int).tolist(), values.tolist(), strict=True))
