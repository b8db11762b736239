"""Accelerate, or how to install it. Imported before anything that needs PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from it2nb.core.errors import require

if TYPE_CHECKING:
    from accelerate import Accelerator as Accelerator
else:
    Accelerator = require(
        "accelerate", extra="accelerate", feature="steering Accelerate"
    ).Accelerator
