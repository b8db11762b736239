"""What tests of the hooks stand on."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch.optim.optimizer as torch_optimizer
from torch.amp.grad_scaler import GradScaler

from it2nb.core.lifetime import runs

from .hooked import torch_hooks


@pytest.fixture
def nothing_is_left() -> Any:
    """Every test ends as if we had never been there."""
    for session in runs():
        session.finish()  # those of other tests that were never started
    board = vars(torch_optimizer).get("_it2nb_switchboard")
    if board is not None:  # of tests that never detached
        board.attachments.clear()
        for steered in list(board.steered.values()):
            board.leave(steered)
        board.sessions.clear()
        board._disconnect_if_idle()
    assert torch_hooks() == (0, 0)
    scaler_step = GradScaler._maybe_opt_step
    yield
    if torch_hooks() != (0, 0):
        gc.collect()  # optimizers of sessions that a test never ended
    assert torch_hooks() == (0, 0)
    assert GradScaler._maybe_opt_step is scaler_step
    board = vars(torch_optimizer).get("_it2nb_switchboard")
    assert board is None or not (board.attachments or board.steered)
