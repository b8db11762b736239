"""How many hooks of ours torch has."""

from __future__ import annotations

import torch.optim.optimizer as torch_optimizer


def torch_hooks() -> tuple[int, int]:
    return (
        len(torch_optimizer._global_optimizer_pre_hooks),
        len(torch_optimizer._global_optimizer_post_hooks),
    )
