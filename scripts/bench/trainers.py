"""How much slower Hugging Face's Trainer is when it is steered."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from it2nb.interactive import make_interactive
from it2nb.session import TrainingSession
from scripts.bench.measured import Measured
from scripts.bench.switch import IN_PASSING, WARM_UP, Snapshots, Switch, told

#: all-MiniLM-L6-v2 with its head: 22.7 million weights.
MINILM: dict[str, Any] = {
    "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12,
    "intermediate_size": 1536,
}  # fmt: skip
#: 25 thousand weights: hardly anything but the Trainer itself.
TINY: dict[str, Any] = {
    "vocab_size": 1000, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 32,
}  # fmt: skip


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Sequences of 32 tokens."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(5, 1000, (size, 32), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index].sum() % 2}


class Switching(TrainerCallback):
    """Switches the steering off for every other update.

    What is left of it2nb then are five calls that return at once.
    """

    def __init__(self, snapshots: Snapshots) -> None:
        self.trainer: Any = None
        self.switch: Switch | None = None
        self._snapshots = snapshots
        self._run: Any = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An update begins, and the one before it is over."""
        if self.switch is None:
            names = ("on_step_begin", "on_step_end", "on_log", "saw_loss")
            self.switch = self._snapshots.switch = Switch(
                self.trainer.optimizer, [(self.trainer.it2nb_callback, names)], self._turn
            )
        # Off, on, on, off: what drifts meets both alike.
        self.switch.turn(state.global_step < WARM_UP or state.global_step % 4 in (1, 2))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last update is over."""
        if self.switch is not None:
            self.switch.end()

    def _turn(self, on: bool) -> None:
        callback = self.trainer.it2nb_callback
        self._run, callback._run = callback._run, self._run


def measure(quick: bool) -> list[Measured]:
    """Train a model of MiniLM's size, and a tiny one."""
    torch.set_num_threads(1)
    return [
        *compared("MiniLM's size", MINILM, 24 if quick else 600, 1.0),
        *compared("25 thousand weights", TINY, 80 if quick else 4000, None),
    ]


def compared(what: str, shape: dict[str, Any], updates: int, goal: float | None) -> list[Measured]:
    """Train so many updates, every other one of them steered."""
    with tempfile.TemporaryDirectory() as folder, Snapshots() as snapshots:
        switching = Switching(snapshots)
        _training(Path(folder), shape, WARM_UP + updates, switching)()
    assert switching.switch is not None
    return told(f"Hugging Face's Trainer, {what}", switching.switch, snapshots, goal)


def _training(
    folder: Path, shape: dict[str, Any], updates: int, switching: Switching
) -> Callable[[], Any]:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**shape))
    args = TrainingArguments(
        str(folder / "out"), per_device_train_batch_size=8, max_steps=updates, logging_steps=20,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = make_interactive(Trainer)(
        model=model, args=args, train_dataset=Tokens(8 * updates), callbacks=[switching],
        session=TrainingSession(title="bench", directory=folder, snapshots=IN_PASSING),
    )  # fmt: skip
    switching.trainer = trainer
    trainer.remove_callback(PrinterCallback)
    return trainer.train  # type: ignore[no-any-return]
