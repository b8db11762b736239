"""Transformers, or how to install it. Imported before anything that needs PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from it2nb.core.errors import require

if TYPE_CHECKING:
    from transformers import TrainerCallback as TrainerCallback
    from transformers.trainer_utils import TrainOutput as TrainOutput
else:
    _FEATURE = "steering a Hugging Face Trainer"
    TrainerCallback = require("transformers", extra="hf", feature=_FEATURE).TrainerCallback
    TrainOutput = require("transformers.trainer_utils", extra="hf", feature=_FEATURE).TrainOutput
