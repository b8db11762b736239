"""A small GPT on two ranks, steered and by hand; see tests/pytorch/test_ranks_gpt.py."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import it2nb
from it2nb.workflows.gpt import GPT, Shape

SHAPE = Shape(vocabulary=32, context=16, width=32, blocks=2, heads=4, kv_heads=2, hidden=64)
UPDATES = 24
CHECK_EVERY = 2
RESET, SEED = "blocks.1", 5
PAUSE_S = 0.5


def made() -> tuple[GPT, nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    gpt = GPT(SHAPE)
    model = nn.parallel.DistributedDataParallel(gpt)
    return gpt, model, torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95))


def update(model: nn.Module, optimizer: torch.optim.Optimizer, at: int) -> torch.Tensor:
    """Update number `at`, on this rank's own tokens."""
    generator = torch.Generator().manual_seed(1000 * at + dist.get_rank())
    tokens = torch.randint(SHAPE.vocabulary, (4, SHAPE.context + 1), generator=generator)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def steered(out: Path) -> dict[str, Any]:
    """Rank 0 asks; returns how each request went."""
    gpt, model, optimizer = made()
    session = it2nb.TrainingSession(
        run_id="gpt", directory=out, distributed={"check_every": CHECK_EVERY}
    )
    session.bind(gpt, optimizers=[optimizer])
    asked: dict[str, Any] = {}

    def ask(label: str, type: str, /, **payload: Any) -> None:
        asked[label] = session.submit({"type": type, "payload": payload})

    def resume() -> None:
        asked["pause"].result(60)
        time.sleep(PAUSE_S)
        ask("resume", "resume")

    def pause() -> None:
        ask("pause", "pause")
        threading.Thread(target=resume, daemon=True).start()

    asks: dict[int, Callable[[], Any]] = {
        3: lambda: ask("lr", "set_knob", name="lr", value=0.003),
        7: lambda: ask("betas", "set_knob", name="betas[0]", value=0.8),
        11: pause,
        15: lambda: ask("reset", "reset_module", name=RESET, seed=SEED),
    }
    began = time.monotonic()
    with session.run():
        for at in range(1, UPDATES + 1):
            loss = update(model, optimizer, at)
            if session.ranks is not None and session.ranks.leads and at in asks:
                asks[at]()
            session.step({"loss": loss})
    keep(out, "steered", gpt, optimizer)
    return {
        "took_s": time.monotonic() - began,
        "results": {name: each.result(0).model_dump() for name, each in asked.items()},
    }


def by_hand(out: Path, changes: Mapping[str, int]) -> None:
    """The same training without it2nb; `changes` are after these updates."""
    gpt, model, optimizer = made()
    for at in range(1, UPDATES + 1):
        update(model, optimizer, at)
        if at == changes["lr"]:
            optimizer.param_groups[0]["lr"] = 0.003
        if at == changes["betas"]:
            optimizer.param_groups[0]["betas"] = (0.8, 0.95)
        if at == changes["reset"]:
            module = gpt.get_submodule(RESET)
            torch.manual_seed(SEED)
            anew(module)
            for each in module.parameters():
                del optimizer.state[each]
    keep(out, "by_hand", gpt, optimizer)


def anew(module: nn.Module) -> None:
    """Initialise, inner parts first."""
    for child in module.children():
        anew(child)
    reset = getattr(module, "reset_parameters", None)
    if reset is not None:
        reset()


def keep(out: Path, name: str, gpt: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    moments = optimizer.state_dict()["state"]
    torch.save(
        {"weights": gpt.state_dict(), "moments": moments}, out / f"{name}-{dist.get_rank()}.pt"
    )


def main() -> None:
    out = Path(sys.argv[1])
    os.chdir(out)
    dist.init_process_group("gloo")
    told = steered(out)
    shared = [{name: each["step"] for name, each in told["results"].items()}]
    dist.broadcast_object_list(shared)
    by_hand(out, shared[0])
    (out / f"gpt-{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
