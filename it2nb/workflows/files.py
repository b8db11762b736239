"""Checkpoints and resets by the loop itself, where the session leaves them to it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from it2nb.core.errors import It2nbError
from it2nb.pytorch.module_tree import find_module
from it2nb.pytorch.reset import reset_module

if TYPE_CHECKING:
    from it2nb.core.session import Session
    from it2nb.workflows.training import Training


def save(session: Session, training: Training, tag: str | None) -> Path:
    """Write weights, optimizers, settings and the batches' random stream to one file."""
    folder = (session.path or Path("it2runs") / session.run_id / "x").parent / "checkpoints"
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "-", tag or "").strip("-.")[:60]
    path = folder / f"step_{session.step_count}{f'_{name}' if name else ''}.pt"
    torch.save(
        {
            "model": training.model.state_dict(),
            "optimizers": {k: v.state_dict() for k, v in training.optimizers.items()},
            "schedulers": [each.state_dict() for each in training.schedulers],
            "values": dict(training.values),
            "generator": training.generator.get_state(),
        },
        path,
    )
    return path


def load(path: Path, training: Training) -> None:
    """Take the state back from a file that `save` wrote.

    Raises
    ------
    It2nbError
        If there is no such file.
    """
    if not path.is_file():
        raise It2nbError(f"there is no checkpoint {str(path)!r}; ask with the path that was saved")
    state = torch.load(path, weights_only=True)
    training.model.load_state_dict(state["model"])
    for name, optimizer in training.optimizers.items():
        optimizer.load_state_dict(state["optimizers"][name])
    for scheduler, kept in zip(training.schedulers, state["schedulers"], strict=True):
        scheduler.load_state_dict(kept)
    training.values.update(state["values"])
    training.generator.set_state(state["generator"])


def reset(name: str, training: Training) -> None:
    """Initialise a module of the model anew, seeded by its name."""
    module = find_module([training.model], name, ("*",))
    seed = int.from_bytes(name.encode()[-4:].rjust(4, b"\0")) >> 1
    reset_module(module, training.optimizers.values(), seed=seed, root=training.model)
