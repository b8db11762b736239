"""Lightning, or how to install it. Imported before anything that needs PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from it2nb.core.errors import require

if TYPE_CHECKING:
    from lightning.pytorch.callbacks import Callback as Callback
else:
    Callback = require(
        "lightning.pytorch.callbacks", extra="lightning", feature="steering Lightning"
    ).Callback
