"""How much slower a steered trainer is than the untouched one.

    python -m scripts.bench_trainers            # both, 7 pairs

Pairs of trainings of the same model on the same data, one untouched and one steered, in turns;
the median of their ratios. The processor's time of the training thread is taken beside the wall
clock's: on a machine with other things to do it is the steadier of the two.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from it2nb.interactive import make_interactive
from it2nb.session import TrainingSession


class Tokens(Dataset[dict[str, torch.Tensor]]):
    """Sequences of 64 tokens."""

    def __init__(self, size: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(5, 1000, (size, 64), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index].sum() % 2}


def _bert() -> Any:
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(0)
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=1000, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
            intermediate_size=512,
        )
    )  # fmt: skip


def hf_training(folder: Path, steps: int, steered: bool) -> Callable[[], Any]:
    """Make one training with Hugging Face's Trainer; calling it trains."""
    from transformers import PrinterCallback, Trainer, TrainingArguments

    args = TrainingArguments(
        str(folder / "out"), per_device_train_batch_size=8, max_steps=steps, logging_steps=20,
        report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    options: dict[str, Any] = {"model": _bert(), "args": args, "train_dataset": Tokens(8 * steps)}
    if steered:
        session = TrainingSession(title="bench", directory=folder)
        trainer = make_interactive(Trainer)(**options, session=session)
    else:
        trainer = Trainer(**options)
    trainer.remove_callback(PrinterCallback)
    return trainer.train  # type: ignore[no-any-return]


def lightning_training(folder: Path, steps: int, steered: bool) -> Callable[[], Any]:
    """Make one training with Lightning; calling it trains."""
    import lightning as L

    from it2nb.lightning_callback import LightningCallback

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.bert = _bert()

        def training_step(self, batch: Any, index: int) -> Any:
            return self.bert(**batch).loss

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-4)

    own: list[Any] = (
        [LightningCallback(TrainingSession(title="bench", directory=folder))] if steered else []
    )
    trainer = L.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=own,
    )  # fmt: skip
    loader = DataLoader(Tokens(8 * steps), batch_size=8)
    return lambda: trainer.fit(Module(), loader)


def inside(steps: int = 100) -> dict[str, Any]:
    """Return the processor's time that Hugging Face's callbacks of ours take, by itself.

    Returns
    -------
    dict
        ``update_us``, the median of the control points (the loss included, hooks of the optimizer
        not), and ``begin_ms`` of the first one.
    """
    spent: dict[str, list[float]] = {"on_step_end": [], "saw_loss": [], "on_train_begin": []}
    with tempfile.TemporaryDirectory() as folder:
        train = hf_training(Path(folder), steps, True)
        callback = train.__self__.it2nb_callback  # type: ignore[attr-defined]
        for name, into in spent.items():
            setattr(callback, name, _timed(getattr(callback, name), into))
        train()
    update = statistics.median(spent["on_step_end"]) + statistics.median(spent["saw_loss"])
    begin = sum(spent["on_train_begin"])
    return {"update_us": round(update * 1e6, 1), "begin_ms": round(begin * 1e3, 1)}


def _timed(call: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
    def timed(*args: Any, **kwargs: Any) -> Any:
        began = time.thread_time()
        result = call(*args, **kwargs)
        into.append(time.thread_time() - began)
        return result

    return timed


TRAININGS = {"hf": hf_training, "lightning": lightning_training}


def measure(which: str = "hf", pairs: int = 7, steps: int = 60) -> dict[str, Any]:
    """Return what steering costs a training of `steps` updates.

    Parameters
    ----------
    which : {"hf", "lightning"}
    pairs : int
        Trainings of each kind, in turns; one more pair warms up.
    steps : int

    Returns
    -------
    dict
        ``step_ms`` of the untouched one; ``slowdown_wall`` and ``slowdown_cpu``, medians of the
        pairs' ratios less 1 (0.01 is one per cent); the ratios themselves.
    """
    make = TRAININGS[which]
    wall: list[float] = []
    cpu: list[float] = []
    base: list[float] = []
    for pair in range(pairs + 1):
        spent: dict[bool, tuple[float, float]] = {}
        # Which one goes first alternates: what the first one leaves behind is nobody's gain.
        for steered in (False, True) if pair % 2 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                train = make(Path(folder), steps, steered)
                began, used = time.perf_counter(), time.thread_time()
                train()
                spent[steered] = time.perf_counter() - began, time.thread_time() - used
        if pair:
            wall.append(spent[True][0] / spent[False][0] - 1)
            cpu.append(spent[True][1] / spent[False][1] - 1)
            base.append(spent[False][0] / steps * 1e3)
    return {
        "trainer": which, "pairs": pairs, "steps": steps,
        "step_ms": round(statistics.median(base), 2),
        "slowdown_wall": round(statistics.median(wall), 4),
        "slowdown_cpu": round(statistics.median(cpu), 4),
        "wall": [round(each, 4) for each in wall], "cpu": [round(each, 4) for each in cpu],
    }  # fmt: skip


def main() -> None:
    """Measure and print one line of JSON for each trainer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("which", nargs="*", default=list(TRAININGS))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({"inside": inside()}), flush=True)
    for which in args.which:
        print(json.dumps(measure(which, args.pairs, args.steps)), flush=True)


if __name__ == "__main__":
    main()
