"""TRL's trainers, steered as any other Trainer: a tiny model with random weights."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import pytest
import torch

with warnings.catch_warnings():
    # TRL and its libraries use what others have deprecated.
    warnings.simplefilter("ignore")
    from datasets import Dataset, disable_progress_bars
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    trl: Any = importlib.import_module("trl")  # its types don't name what it exports

from .tiny import new_session, series, trainer_of

disable_progress_bars()
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore::FutureWarning:trl"),
    pytest.mark.filterwarnings("ignore::UserWarning:trl"),
]
WORDS = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(30))]
COMMON: dict[str, Any] = {
    "output_dir": "out", "per_device_train_batch_size": 4, "max_steps": 4, "logging_steps": 1,
    "report_to": [], "save_strategy": "no", "disable_tqdm": True, "use_cpu": True,
    "learning_rate": 1e-2, "bf16": False,
}  # fmt: skip


def tokenizer() -> PreTrainedTokenizerFast:
    words = models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="<unk>")
    made = Tokenizer(words)
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def tiny_gpt() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(WORDS), n_positions=64, n_embd=16, n_layer=2, n_head=2, bos_token_id=1,
        eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def longest(completions: list[str], **kwargs: Any) -> list[float]:
    return [float(len(each)) for each in completions]


def test_sft_is_steered_and_stopped() -> None:
    session = new_session()
    texts = [f"w{at % 30} w{(at + 1) % 30} w{(at + 2) % 30}" for at in range(16)]
    trainer = trainer_of(
        session, {1: lambda: session.set("lr", 1e-3, mode="hold"), 3: session.stop},
        kind=trl.SFTTrainer, model=tiny_gpt(), args=trl.SFTConfig(**COMMON, max_length=16),
        train_dataset=Dataset.from_dict({"text": texts}), processing_class=tokenizer(),
    )  # fmt: skip
    out = trainer.train()
    assert (out.global_step, session.status) == (3, "stopped")
    assert series(session, "lr") == {1: 0.01, 2: 0.001, 3: 0.001}
    assert set(series(session, "mean_token_accuracy")) == {1, 2, 3}


def test_grpo_is_steered_and_its_rewards_are_recorded() -> None:
    session = new_session()
    prompts = [f"w{at % 30} w{(at + 1) % 30}" for at in range(16)]
    trainer = trainer_of(
        session, {2: lambda: session.set("lr", 1e-3, mode="hold")}, kind=trl.GRPOTrainer,
        model=tiny_gpt(), reward_funcs=longest,
        args=trl.GRPOConfig(**COMMON, num_generations=2, max_completion_length=4),
        train_dataset=Dataset.from_dict({"prompt": prompts}), processing_class=tokenizer(),
    )  # fmt: skip
    trainer.train()
    logged = {
        each["step"]: each["reward"] for each in trainer.state.log_history if "reward" in each
    }
    assert series(session, "reward") == logged
    assert list(series(session, "lr").values())[2:] == [0.001, 0.001]
    assert list(series(session, "loss")) == [1, 2, 3, 4]
