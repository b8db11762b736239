"""Lightning's fit under a session: updates, stops, evaluation, threads."""

from __future__ import annotations

import logging
import math
import signal
import threading
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

with warnings.catch_warnings():
    # Lightning's own imports and its pytree helper use what PyTorch has deprecated.
    warnings.simplefilter("ignore")
    import lightning as L
    from lightning.pytorch.callbacks import ModelCheckpoint

from it2nb.core.errors import It2nbError
from it2nb.interactive import make_interactive
from it2nb.lightning_callback import LightningCallback
from it2nb.pytorch.sources import SourceSampler

from .tiny import new_session, series

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning:lightning"),
    pytest.mark.filterwarnings("ignore::FutureWarning:lightning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:lightning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Tiny(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Linear(4, 1)
        self.batches = 0
        self.used: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.batches += 1
        loss = self.net(batch[0]).square().mean()
        self.log("shown", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("val_loss", self.net(batch[0]).square().mean())

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.used.append(optimizer.param_groups[0]["lr"])

    def configure_optimizers(self) -> Any:
        adam = torch.optim.AdamW(self.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(adam, 1, 0.9)
        return [adam], [{"scheduler": schedule, "interval": "step"}]


class Manual(Tiny):
    """Two optimizers, each with a step in every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.batches += 1
        for optimizer in self.optimizers():  # type: ignore[union-attr]
            loss = self.net(batch[0]).square().mean()
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        weights = list(self.parameters())
        return [torch.optim.SGD([each], lr=0.1) for each in weights]

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        """Nothing to look at."""


class At(L.Callback):
    def __init__(self, calls: Mapping[int, Callable[[], Any]]) -> None:
        self.calls = dict(calls)
        self.given: dict[int, Any] = {}
        self.validations = 0

    def on_train_batch_end(self, trainer: Any, *args: Any) -> None:
        call = self.calls.pop(trainer.global_step, None)
        if call is not None:
            self.given[trainer.global_step] = call()

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        self.validations += not trainer.sanity_checking


def batches(size: int = 10) -> Any:
    generator = torch.Generator().manual_seed(1)
    return DataLoader(TensorDataset(torch.randn(4 * size, 4, generator=generator)), batch_size=4)


def trainer_of(
    session: Any, calls: Mapping[int, Callable[[], Any]] | None = None, **more: Any
) -> Any:
    at = At(calls or {})
    own = [] if session is False else [LightningCallback(session)]
    options = {
        "max_epochs": 1, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False, "callbacks": [at, *own],
    }  # fmt: skip
    trainer = L.Trainer(**{**options, **more})
    trainer.at = at  # type: ignore[attr-defined]
    return trainer


def test_without_requests_it_trains_as_the_bare_trainer_does_to_the_bit() -> None:
    bare, ours = Tiny(), Tiny()
    trainer_of(False).fit(bare, batches())
    session = new_session()
    trainer_of(session).fit(ours, batches())
    assert all(map(torch.equal, bare.parameters(), ours.parameters()))
    assert (session.status, session.step_count, session.total_steps) == ("finished", 10, 10)
    assert series(session, "loss") == series(session, "shown")
    assert list(series(session, "lr").values()) == ours.used


def test_changes_hold_from_the_next_update_and_undo_takes_them_back() -> None:
    session = new_session()
    module = Tiny()
    trainer = trainer_of(
        session, {3: lambda: session.set("lr", 1e-3, mode="hold"), 6: session.undo}
    )
    trainer.fit(module, batches())
    assert module.used[:3] == pytest.approx([0.1, 0.09, 0.081])
    assert module.used[3:6] == [1e-3] * 3
    assert module.used[6:] == pytest.approx([0.0729 * 0.9**at for at in range(4)])
    undone = trainer.at.given[6].result(0)
    assert any("Lightning counts on" in each for each in undone.data["notes"])
    assert list(series(session, "loss", 1)) == [4, 5, 6, 7]


def test_steps_are_updates_when_gradients_are_accumulated() -> None:
    session = new_session()
    module = Tiny()
    trainer_of(session, accumulate_grad_batches=4).fit(module, batches())
    assert (module.batches, session.step_count, session.total_steps) == (10, 3, 3)
    assert list(series(session, "loss")) == [1, 2, 3]


def test_a_stop_within_min_epochs_ends_it_at_once_and_says_what_was_set_aside() -> None:
    session = new_session()
    module = Tiny()
    trainer = trainer_of(session, {3: session.stop}, min_epochs=2, max_epochs=5)
    trainer.fit(module, batches())
    assert (module.batches, session.step_count, session.status) == (3, 3, "stopped")
    assert trainer.fit_loop.min_epochs == 2
    notes = [e.payload["text"] for e in session.journal.since(0) if e.type == "note"]
    assert notes == ["stop: min_epochs=2 was set aside, the run ends after this update"]


@pytest.mark.parametrize(("every", "wanted"), [(1.0, 10), (3, 3)])
def test_a_stop_during_the_validation_lets_no_further_update_through_c52(
    every: float, wanted: int
) -> None:
    session = new_session()

    class Asks(Tiny):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            super().validation_step(batch, batch_idx)
            if not self.trainer.sanity_checking:
                session.submit({"type": "stop"})

    module = Asks()
    trainer = trainer_of(session, max_epochs=3, min_epochs=3, val_check_interval=every)
    trainer.fit(module, batches(), batches(2))
    assert (module.batches, session.step_count, session.status) == (wanted, wanted, "stopped")
    assert (trainer.global_step, trainer.state.status) == (wanted, "finished")


def test_a_stop_that_was_asked_for_before_means_no_update_at_all() -> None:
    session = new_session()
    session.stop()
    module = Tiny()
    trainer_of(session, min_epochs=2).fit(module, batches())
    assert (module.batches, session.status) == (0, "stopped")


def test_manual_optimization_counts_every_optimizers_step() -> None:
    session = new_session()
    module = Manual()
    trainer = trainer_of(
        session, {4: lambda: [session.set("optimizer.lr", 0.01), session.set("max_grad_norm", 1)]}
    )
    trainer.fit(module, batches())
    changed, clipped = (each.result(0) for each in trainer.at.given[4])
    assert (session.step_count, trainer.global_step, changed.status) == (20, 20, "applied")
    assert list(series(session, "lr_0").values())[:3] == [0.1, 0.1, 0.01]
    assert set(series(session, "lr_1").values()) == {0.1}
    assert (clipped.status, "module clips" in clipped.reason) == ("rejected", True)


def test_clipping_is_a_knob() -> None:
    session = new_session()
    module = Tiny()
    norms: list[float] = []
    clip = module.configure_gradient_clipping

    def look(optimizer: Any, *args: Any, **kwargs: Any) -> None:
        clip(optimizer, *args, **kwargs)
        norms.append(float(torch.stack([p.grad.norm() for p in module.parameters()]).norm()))  # type: ignore[union-attr]

    module.configure_gradient_clipping = look  # type: ignore[method-assign]
    trainer_of(session, {5: lambda: session.set("max_grad_norm", 1e-4)}).fit(module, batches())
    assert min(norms[:5]) > 2e-4
    assert norms[5:] == pytest.approx([1e-4] * 5, rel=1e-2)


def test_evaluate_validates_in_the_middle_and_nobody_else_counts_it() -> None:
    def run(ask: bool) -> Any:
        session = new_session()
        module = Tiny()
        trainer = trainer_of(session, {3: session.evaluate} if ask else {})
        trainer.fit(module, batches(), batches(3))
        return session, module, trainer

    _, bare, before = run(False)
    session, asked, trainer = run(True)
    result = trainer.at.given[3].result(0)
    assert result.status == "applied"
    values = series(session, "val_loss")
    assert values[3] == result.data["val_loss"]
    assert list(values) == [3, 10]
    assert trainer.at.validations == before.at.validations == 1
    assert all(map(torch.equal, bare.parameters(), asked.parameters()))
    assert list(series(session, "shown")) == list(range(1, 11))


def test_without_validation_evaluate_says_why_not() -> None:
    session = new_session()
    trainer = trainer_of(session, {3: session.evaluate})
    trainer.fit(Tiny(), batches())
    result = trainer.at.given[3].result(0)
    assert (result.status, "no validation here" in result.reason) == ("rejected", True)


def test_a_loss_of_nan_is_told() -> None:
    session = new_session()

    class Breaks(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            return loss * float("nan") if batch_idx == 2 else loss

    trainer_of(session, {3: lambda: session.stop()}).fit(Breaks(), batches())
    assert math.isnan(series(session, "loss")[3])
    assert any("non-finite loss at step 3" in each for each in session.warnings)


@pytest.mark.parametrize("error, seen", [(ValueError, ValueError), (KeyboardInterrupt, SystemExit)])
def test_the_session_ends_as_failed_when_fit_breaks_off(error: Any, seen: Any) -> None:
    session = new_session()

    def fail() -> None:
        raise error("mine")

    before = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(seen):
            trainer_of(session, {2: fail}).fit(Tiny(), batches())
    finally:
        signal.signal(signal.SIGINT, before)  # Lightning ignores it from here on
    assert session.status == "failed"
    assert session.error == f"{error.__name__}: mine"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_the_session_ends_in_a_thread_too(error: Any) -> None:
    # C51: there Lightning trips over its own signal handler, and tells no callback.
    session = new_session()
    raised: list[BaseException] = []

    def fail() -> None:
        raise error("mine")

    def fit() -> None:
        try:
            trainer_of(session, {2: fail}).fit(Tiny(), batches())
        except BaseException as caught:  # noqa: BLE001 - whatever fit raises, the run is over
            raised.append(caught)

    thread = threading.Thread(target=fit)
    thread.start()
    thread.join(120)
    assert len(raised) == 1
    assert (session.status, session.error) == ("failed", f"{error.__name__}: mine")


def test_a_resumed_fit_counts_on(tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, filename="four", every_n_train_steps=4, save_top_k=1)
    trainer_of(False, callbacks=[keep], enable_checkpointing=True, max_steps=6).fit(
        Tiny(), batches()
    )
    path = tmp_path / "four.ckpt"
    session = new_session()
    trainer = trainer_of(session)
    trainer.fit(Tiny(), batches(), ckpt_path=path)
    assert (session.step_count, session.total_steps) == (trainer.global_step, 10)
    assert list(series(session, "loss")) == [5, 6, 7, 8, 9, 10]


def test_what_a_later_callback_asks_for_holds_from_the_next_update() -> None:
    # C52: whichever place our callback has among those of the Trainer.
    session = new_session()
    at = At({3: lambda: session.set("lr", 0.01), 5: session.stop})
    module = Tiny()
    trainer = trainer_of(False, callbacks=[LightningCallback(session), at], min_epochs=2)
    trainer.fit(module, batches())
    assert (module.batches, session.status) == (5, "stopped")
    assert module.used[3] == 0.01


def test_fit_in_a_thread_leaves_signal_handlers_alone() -> None:
    session = new_session()
    module = Tiny()
    trainer = trainer_of(session)
    watched = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
    before = [signal.getsignal(each) for each in watched]
    errors: list[BaseException] = []

    def fit() -> None:
        try:
            trainer.fit(module, batches())
        except BaseException as error:  # noqa: BLE001 - what fit raised is what the test looks at
            errors.append(error)

    thread = threading.Thread(target=fit)
    thread.start()
    thread.join(120)
    assert errors == []
    assert (module.batches, session.status) == (10, "finished")
    assert [signal.getsignal(each) for each in watched] == before


def test_classes_and_instances_are_made_interactive() -> None:
    first, second = new_session(), new_session()
    options: Any = {
        "max_steps": 2, "accelerator": "cpu", "logger": False, "enable_checkpointing": False,
        "enable_progress_bar": False, "enable_model_summary": False,
    }  # fmt: skip
    made = make_interactive(L.Trainer)(**options, session=first)
    assert isinstance(made, L.Trainer)
    made.fit(Tiny(), batches())
    plain = L.Trainer(**options)
    assert make_interactive(plain, session=second) is plain
    plain.fit(Tiny(), batches())
    assert [each.step_count for each in (first, second)] == [2, 2]


def test_weights_of_sources_are_knobs() -> None:
    session = new_session()
    mix = SourceSampler({"a": batches().dataset, "b": batches().dataset}, {"b": 0.0})
    trainer = trainer_of(session, {3: lambda: session.set("weight[b]", 1.0)}, max_steps=6)
    trainer.fit(Tiny(), DataLoader(mix.dataset, sampler=mix, batch_size=4))
    assert "in force from batch 3 of this pass on" in trainer.at.given[3].result(0).reason


def test_two_callbacks_for_one_session_are_refused() -> None:
    session = new_session()
    trainer = L.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
        callbacks=[LightningCallback(session), LightningCallback(session)],
    )  # fmt: skip
    with pytest.raises(It2nbError, match="count twice"):
        trainer.fit(Tiny(), DataLoader(TensorDataset(torch.ones(4, 4)), batch_size=2))
    assert not session.is_ended


def test_what_is_no_session_is_said() -> None:
    with pytest.raises(It2nbError, match="session=5 has to be"):
        LightningCallback(5)  # type: ignore[arg-type]
