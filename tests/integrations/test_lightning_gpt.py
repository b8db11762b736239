"""A small GPT under Lightning: steered in mid-run, it ends with the bits of a loop by hand."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    # Lightning's own imports and its pytree helper use what PyTorch has deprecated.
    warnings.simplefilter("ignore")
    import lightning as L

from it2nb.lightning_callback import LightningCallback
from it2nb.workflows.gpt import GPT, Shape

from .tiny import new_session, series

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

SHAPE = Shape(vocabulary=32, context=16, width=32, blocks=2, heads=4, kv_heads=2, hidden=64)
RESET, SEED = "gpt.blocks.1", 7


def tokens() -> torch.Tensor:
    """40 batches of four rows, each token one of two that may follow the one before."""
    generator = torch.Generator().manual_seed(1)
    row = torch.randint(SHAPE.vocabulary, (160, 1), generator=generator)
    rows = [row]
    for _ in range(SHAPE.context):
        row = (3 * row + torch.randint(2, row.shape, generator=generator)) % SHAPE.vocabulary
        rows.append(row)
    return torch.cat(rows, 1)


def loss_of(gpt: GPT, batch: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(gpt(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def made() -> tuple[GPT, torch.optim.Optimizer]:
    torch.manual_seed(0)
    gpt = GPT(SHAPE)
    return gpt, torch.optim.AdamW(gpt.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.1)


class Module(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.gpt, self.adam = made()

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return loss_of(self.gpt, batch[0])

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", loss_of(self.gpt, batch[0]))

    def configure_optimizers(self) -> Any:
        return self.adam


class At(L.Callback):
    """Calls functions at the end of certain updates, before the control point there."""

    def __init__(self, calls: Mapping[int, Callable[[], Any]]) -> None:
        self.calls = calls
        self.given: dict[int, Any] = {}

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        if trainer.global_step in self.calls:
            self.given[trainer.global_step] = self.calls[trainer.global_step]()


def by_hand() -> tuple[GPT, torch.optim.Optimizer, list[float]]:
    """The same training without Lightning and without it2nb."""
    gpt, adam = made()
    losses = []
    for at, batch in enumerate(tokens()[: 30 * 4].split(4), 1):
        loss = loss_of(gpt, batch)
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append(loss.item())
        if at == 8:
            adam.param_groups[0].update(lr=0.003, betas=(0.8, 0.95))
        elif at == 16:
            torch.manual_seed(SEED)
            anew(gpt.blocks[1])
            for each in gpt.blocks[1].parameters():
                del adam.state[each]
        elif at == 22:
            adam.param_groups[0]["weight_decay"] = 0.0
    return gpt, adam, losses


def anew(module: torch.nn.Module) -> None:
    """Initialise, inner parts first."""
    for child in module.children():
        anew(child)
    reset: Any = getattr(module, "reset_parameters", None)
    if reset is not None:
        reset()


def test_a_gpt_under_lightning_ends_with_the_bits_of_a_loop_by_hand() -> None:
    session = new_session()
    at = At({
        8: lambda: [session.set("lr", 0.003), session.set("betas[0]", 0.8)],
        12: lambda: [session.evaluate()],
        16: lambda: [session.do("reset_module", name=RESET, seed=SEED)],
        22: lambda: [session.set("weight_decay", 0.0)],
        30: lambda: [session.submit({"type": "stop"})],
    })  # fmt: skip
    module = Module()
    data = TensorDataset(tokens())
    trainer = L.Trainer(
        max_epochs=1, min_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
        limit_val_batches=2, callbacks=[at, LightningCallback(session)],
    )  # fmt: skip
    trainer.fit(module, DataLoader(data, batch_size=4), DataLoader(data, batch_size=4))
    results = [each.result(0) for asked in at.given.values() for each in asked]
    assert {each.status for each in results} == {"applied"}, results
    assert (session.status, session.step_count) == ("stopped", 30)
    assert 0 < series(session, "val_loss")[12] < 10
    gpt, adam, losses = by_hand()
    assert list(series(session, "loss").values()) == losses
    assert losses[-1] < losses[15] - 0.1  # it learns, too
    assert all(map(torch.equal, module.gpt.parameters(), gpt.parameters()))
    for ours, theirs in zip(module.gpt.parameters(), gpt.parameters(), strict=True):
        mine, wanted = module.adam.state[ours], adam.state[theirs]
        assert all(torch.equal(mine[name], wanted[name]) for name in wanted)
