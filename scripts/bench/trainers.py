"""How much slower Hugging Face's Trainer is when it is steered.

One training, in which the steering is switched off for every other update: two trainings differ
by more than one per cent before anything is steered, by where their weights lie in memory.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.optim.optimizer as home
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
from it2nb.pytorch.past import Past
from it2nb.pytorch.schedulers import unwrapped
from it2nb.pytorch.switchboard import switchboard
from it2nb.session import TrainingSession
from scripts.bench.measured import Measured, middle, of_the_median

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
WARM_UP = 8


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Sequences of 32 tokens."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(5, 1000, (size, 32), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index].sum() % 2}


class Switch(TrainerCallback):
    """Times each update of a training, and switches the steering off for every other one.

    Off are the control point, the look at the loss and all hooks of the optimizer: what is left
    of it2nb are five calls that return at once.

    Attributes
    ----------
    steered, plain : list of (float, float)
        Seconds of each update, from its beginning to that of the next one: processor time of
        the training thread, and by the wall clock.
    """

    def __init__(self) -> None:
        self.steered: list[tuple[float, float]] = []
        self.plain: list[tuple[float, float]] = []
        self.trainer: Any = None
        #: Seconds inside of it2nb in each steered update; timing them takes some more.
        self.inside: list[float] = []
        self._inside_s = 0.0
        #: Seconds of this update that are counted elsewhere.
        self.aside_s = 0.0
        self._run: Any = None
        self._off: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._began: tuple[float, float] | None = None

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock, switch, start it."""
        self._stop()
        if self._began is None:
            self._time_calls()
        # Off, on, on, off: what drifts meets both alike.
        self._switch(state.global_step < WARM_UP or state.global_step % 4 in (1, 2))
        self.aside_s = self._inside_s = 0.0
        self._began = time.thread_time(), time.perf_counter()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The last update is over."""
        self._stop()
        self._switch(True)

    def _stop(self) -> None:
        cpu, wall = time.thread_time(), time.perf_counter()
        if self._began is not None:
            spent = cpu - self._began[0] - self.aside_s, wall - self._began[1] - self.aside_s
            (self.plain if self._off else self.steered).append(spent)
            if not self._off:
                self.inside.append(self._inside_s - self.aside_s)

    def _time_calls(self) -> None:
        """Add up what is spent in each call of it2nb from now on."""

        def timed(call: Any) -> Any:
            def in_time(*args: Any, **kwargs: Any) -> Any:
                began = time.perf_counter()
                found = call(*args, **kwargs)
                self._inside_s += time.perf_counter() - began
                return found

            return in_time

        callback, board = self.trainer.it2nb_callback, switchboard()
        for owner, names in (
            (callback, ("on_step_begin", "on_step_end", "on_log", "saw_loss")),
            (board, ("before", "after")),
        ):
            for name in names:
                setattr(owner, name, timed(getattr(owner, name)))
        own = unwrapped(self.trainer.optimizer, "optimizer")._optimizer_step_pre_hooks
        for key, hook in own.items():
            own[key] = timed(hook)

    def _switch(self, on: bool) -> None:
        callback = self.trainer.it2nb_callback
        if on == (not self._off):
            return
        if on:
            callback._run = self._run
            for hooks, kept in self._off:
                hooks.update(kept)
            self._off = []
            return
        self._run, callback._run = callback._run, None
        own = unwrapped(self.trainer.optimizer, "optimizer")._optimizer_step_pre_hooks
        for hooks in (home._global_optimizer_pre_hooks, home._global_optimizer_post_hooks, own):
            self._off.append((hooks, dict(hooks)))
            hooks.clear()


def measure(quick: bool) -> list[Measured]:
    """Train a model of MiniLM's size, and a tiny one."""
    torch.set_num_threads(1)
    return [
        *compared("MiniLM's size", MINILM, 24 if quick else 600, 1.0),
        *compared("25 thousand weights", TINY, 80 if quick else 4000, None),
    ]


def compared(what: str, shape: dict[str, Any], updates: int, goal: float | None) -> list[Measured]:
    """Train so many updates, every other one of them steered."""
    switch = Switch()
    with tempfile.TemporaryDirectory() as folder, _Snapshots(switch) as snapshots:
        began = time.perf_counter()
        _training(Path(folder), shape, WARM_UP + updates, switch)()
        took = time.perf_counter() - began
    ours, theirs = switch.steered[WARM_UP:], switch.plain
    pairs = list(zip(ours, theirs, strict=False))
    more = [mine[0] - bare[0] for mine, bare in pairs]
    base = median(bare[0] for bare in theirs)
    share = 100 * sum(snapshots.cpu) / took
    value, low, high = (100 * each / base + share for each in of_the_median(more))
    wall = 100 * median(mine[1] - bare[1] for mine, bare in pairs) / base
    inside, first, last = middle([1e6 * each for each in switch.inside[WARM_UP:]])
    trainer = f"Hugging Face's Trainer, {what}, {base * 1e3:.3g} ms an update"
    return [
        Measured(
            f"{trainer}: slow-down", value, "%", goal, low, high,
            note=f"every other update steered, {len(pairs)} pairs, processor time, interval of the "
            f"median; by the wall clock {wall:.2g} %; of it snapshots in passing {share:.2g} %",
        ),
        Measured(
            f"{trainer}: spent inside of it2nb in one", inside, "us", None, first, last,
            note=f"without snapshots; {inside / base / 1e4:.2g} % of the update",
        ),
    ]  # fmt: skip


def _training(
    folder: Path, shape: dict[str, Any], updates: int, switch: Switch
) -> Callable[[], Any]:
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(**shape))
    args = TrainingArguments(
        str(folder / "out"), per_device_train_batch_size=8, max_steps=updates, logging_steps=20,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    trainer = make_interactive(Trainer)(
        model=model, args=args, train_dataset=Tokens(8 * updates), callbacks=[switch],
        session=TrainingSession(title="bench", directory=folder),
    )  # fmt: skip
    switch.trainer = trainer
    trainer.remove_callback(PrinterCallback)
    return trainer.train  # type: ignore[no-any-return]


class _Snapshots:
    """Times the snapshots that nobody asked for: few are taken, whose mean is what counts."""

    def __init__(self, switch: Switch) -> None:
        self.cpu: list[float] = []
        self._switch = switch
        self._take = Past.take

    def __enter__(self) -> _Snapshots:
        def take(past: Past, *args: Any, **kwargs: Any) -> Any:
            began = time.thread_time()
            kept = self._take(past, *args, **kwargs)
            spent = time.thread_time() - began
            self._switch.aside_s += spent
            self.cpu.append(spent)
            return kept

        Past.take = take  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *args: object) -> None:
        Past.take = self._take  # type: ignore[method-assign]
