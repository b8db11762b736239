"""Cells that are steered, and the plain programs that they become."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from it2nb.core.control import StopTraining
from it2nb.core.recording import cell_row
from it2nb.notebook.discover import variable_knob
from it2nb.notebook.options import KnobSpec
from it2nb.pytorch import fingerprints, rewind
from it2nb.pytorch.code import Code, to_code
from it2nb.pytorch.hooks import attach
from it2nb.session import TrainingSession

from .steered import Script

SEED = 3

#: Of each cell here.
UPDATES = 40


def namespace(setup: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(setup, space)
    return space


def run_cell(
    setup: str,
    cell: str,
    script: Script,
    variables: Sequence[str] = (),
    *,
    options: str = "",
    seed: int | None = SEED,
) -> tuple[TrainingSession, dict[str, Any]]:
    """Run a cell as ``%%it2`` runs it, and ask for things at the steps of a script."""
    space = namespace(setup)
    session = TrainingSession(title="cell", seed=seed, resources_every_s=3600)
    session.source_cell = cell
    session.honours_control = False
    _bind(session, space)
    for each in variables:
        session.add_knob(variable_knob(KnobSpec(each), space))
    rewind.install(session, snapshots={"every": 5, "max_share": 1.0})
    session.emit("source_cell", cell_row(cell, options))
    todo = {step: list(asked) for step, asked in script.items()}

    def person(session: Any) -> None:
        if len(session.metrics) >= UPDATES:
            return  # an edit that no update uses is in no program
        for action in todo.pop(session.step_count, []):
            session.submit(action, source="panel")

    session.every(1, person)
    with session.run():
        if seed is not None:
            seed_all(seed)
        session.emit("environment", {"seed": seed})
        fingerprints.begin(session)
        attach(session, metrics_fn=lambda: {"loss": space["loss"].item()})
        try:
            exec(cell, space)
        except StopTraining:
            session.finish("stopped")
    return session, space


def _bind(session: TrainingSession, space: dict[str, Any]) -> None:
    schedulers = torch.optim.lr_scheduler.LRScheduler
    for name, each in space.items():
        kinds = (nn.Module, torch.optim.Optimizer, schedulers)
        if not isinstance(each, kinds) or name.startswith(("_", "part")):
            continue
        session.bound.names[id(each)] = name
        if isinstance(each, nn.Module):
            session.bind(each)
        elif isinstance(each, torch.optim.Optimizer):
            session.bind(optimizers=[each])
        else:
            session.bind(schedulers=[each])


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def run_code(setup: str, code: str) -> dict[str, Any]:
    """Run the program in a fresh namespace, in which there is no it2nb."""
    assert "it2nb" not in code
    space = namespace(setup)
    seed_all(99)  # the program seeds by itself
    exec(compile(code, "<the program>", "exec"), space)
    return space


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether all weights, optimizer states and schedules are equal to the bit.

    Parameter groups are not compared: an edit after the last update is in them, and in nothing.
    """
    found = []
    for name, each in one.items():
        if isinstance(each, (nn.Module, torch.optim.Optimizer)):
            state, twin = each.state_dict(), other[name].state_dict()
            tensors = [each.get("state", each) for each in (state, twin)]
            found.append(fingerprints.digest(tensors[0]) == fingerprints.digest(tensors[1]))
        elif isinstance(each, torch.optim.lr_scheduler.LRScheduler):
            found.append(each.get_last_lr() == other[name].get_last_lr())
    assert found
    return all(found)


def check(
    setup: str, cell: str, script: Script, variables: Sequence[str] = (), **more: Any
) -> Code:
    session, space = run_cell(setup, cell, script, variables, **more)
    code = to_code(session.journal)
    assert code.left_out == (), code
    assert same(space, run_code(setup, code)), code
    # Without the changes it would not have been the same.
    assert not same(space, run_code(setup, plain(session, cell)))
    return code


def plain(session: TrainingSession, cell: str) -> str:
    return f"import random, numpy, torch\nrandom.seed({SEED})\nnumpy.random.seed({SEED})\n" + (
        f"torch.manual_seed({SEED})\n{cell}"
    )


QUICKSTART = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
images, labels = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 10)
)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=40)
shift = 0
cfg = {"scale": 1.0}
"""

LOOP = '''\
for epoch in range(10):
    for x, y in loader:
        dx, dy = torch.randint(-shift, shift + 1, (2,)).tolist()
        logits = model(torch.roll(x, (dx, dy), (2, 3)))
        loss = F.cross_entropy(logits, y) * cfg["scale"]
        note = """a text
  over lines, not to be indented"""
        loss.backward()
        opt.step()  # one update
        sched.step()
        opt.zero_grad()
'''

TWO = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(
    [{"params": model[0].parameters(), "lr": 0.02}, {"params": model[2].parameters()}],
    lr=0.05, momentum=0.9,
)
L = torch.optim.lr_scheduler
"""

TWO_LOOP = """
for i in range(40):
    x = torch.randn(8, 4)
    loss = F.mse_loss(model(x), x[:, :2])
    loss.backward(); opt.step(); warm.step(); cosine.step(); opt.zero_grad()
"""
