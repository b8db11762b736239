"""Hugging Face's Trainer on two ranks; see tests/integrations/test_hf_ranks.py."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from transformers import TrainerCallback

import it2nb
from it2nb.core.errors import It2nbError
from tests.integrations.tiny import Parity, arguments, series, trainer_of

CHECK_EVERY = 2


class Lrs(TrainerCallback):
    """The learning rate of each update, as the optimizer has it."""

    def __init__(self) -> None:
        self.used: list[float] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        optimizer = kwargs["optimizer"].optimizer
        optimizer.register_step_pre_hook(
            lambda each, args, kwargs: self.used.append(each.param_groups[0]["lr"])
        )


def sums(model: Any) -> list[float]:
    return [each.detach().double().sum().item() for each in model.parameters()]


def steered(out: Path) -> dict[str, Any]:
    args = arguments(max_steps=16, per_device_train_batch_size=2)  # it makes the process group
    session = it2nb.TrainingSession(
        run_id="hf", directory=out, resources_every_s=0,
        snapshots={"every": 1, "max_share": 1.0}, distributed={"check_every": CHECK_EVERY},
    )  # fmt: skip
    assert session.ranks is not None
    calls: dict[int, Callable[[], Any]] = {
        3: lambda: session.set("lr", 1e-3, mode="hold"),
        5: session.evaluate,
        7: lambda: session.goto(5),
        11: lambda: session.submit({"type": "stop"}),
    }
    lrs = Lrs()
    trainer = trainer_of(
        session, calls if session.ranks.leads else {}, args=args, eval_dataset=Parity(8),
        callbacks=[lrs],
    )  # fmt: skip
    output = trainer.train()
    return {
        "updates": output.global_step, "status": session.status, "lrs": lrs.used,
        "steps": session.step_count, "branch": session.branch_id,
        "losses": list(series(session, "loss").values()), "weights": sums(trainer.model),
        "eval": series(session, "eval_loss"), "path": str(session.path),
        "results": {at: each.result(0).model_dump() for at, each in trainer.at.given.items()},
    }  # fmt: skip


def too_early(session: it2nb.TrainingSession) -> str:
    """Train under a session that was made before the process group."""
    try:
        trainer_of(session, args=arguments(max_steps=2)).train()
    except It2nbError as error:
        return str(error)
    return ""


def main() -> None:
    out = Path(sys.argv[1])
    os.chdir(out)
    early = it2nb.TrainingSession(directory=None, resources_every_s=0)
    told = steered(out)
    told["early"] = too_early(early)
    (out / f"hf-{dist.get_rank()}.json").write_text(json.dumps(told))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
