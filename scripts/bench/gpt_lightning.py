"""How much slower a small GPT trains under Lightning when it is steered."""

from __future__ import annotations

import logging
import tempfile
import warnings
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    # Lightning's own imports use what PyTorch has deprecated.
    warnings.simplefilter("ignore")
    import lightning as L

from it2nb.lightning_callback import LightningCallback
from it2nb.session import TrainingSession
from scripts.bench import small_gpt
from scripts.bench.measured import Measured
from scripts.bench.switch import IN_PASSING, WARM_UP, Snapshots, Switch, told

#: Updates of a pass over the data.
EPOCH = 250


class Module(L.LightningModule):
    """The GPT as Lightning trains it; it logs its loss as most do."""

    def __init__(self) -> None:
        super().__init__()
        self.gpt = small_gpt.gpt()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        """Return the loss of a batch."""
        loss = small_gpt.loss(self.gpt, batch[0])
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """Return AdamW."""
        return small_gpt.adamw(self.gpt)


class Switching(L.Callback):
    """Takes it2nb's callback and hooks away for every other update."""

    def __init__(self, callback: LightningCallback, snapshots: Snapshots) -> None:
        self.switch: Switch | None = None
        self._callback = callback
        self._snapshots = snapshots

    def on_train_batch_start(self, trainer: Any, *args: Any) -> None:
        """An update begins, and the one before it is over."""
        if self.switch is None:
            # The last one: this loop over the callbacks may lose it.
            assert trainer.callbacks[-1] is self._callback

            def sides(on: bool) -> None:
                (trainer.callbacks.append if on else trainer.callbacks.remove)(self._callback)

            self.switch = self._snapshots.switch = Switch(
                trainer.optimizers[0], [(self._callback, ["on_train_batch_end"])], sides
            )
        # Off, on, on, off: what drifts meets both alike.
        self.switch.turn(trainer.global_step < WARM_UP or trainer.global_step % 4 in (1, 2))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """What Lightning does between two passes is in no update."""
        if self.switch is not None:
            self.switch.end()


def measure(quick: bool) -> list[Measured]:
    """Train, every other update steered."""
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    updates = WARM_UP + (80 if quick else 1500)
    data = TensorDataset(small_gpt.windows(small_gpt.ROWS * EPOCH))
    with tempfile.TemporaryDirectory() as folder, Snapshots() as snapshots:
        session = TrainingSession(title="bench", directory=folder, snapshots=IN_PASSING)
        callback = LightningCallback(session)
        switching = Switching(callback, snapshots)
        trainer = L.Trainer(
            max_steps=updates, accelerator="cpu", logger=False, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False,
            callbacks=[switching, callback],
        )  # fmt: skip
        trainer.fit(Module(), DataLoader(data, batch_size=small_gpt.ROWS, shuffle=True))
    assert switching.switch is not None
    return told(f"Lightning, {small_gpt.WHAT}", switching.switch, snapshots, 1.0)
