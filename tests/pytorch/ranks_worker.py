"""What two ranks do in tests/pytorch/test_distributed.py; each writes down what it saw."""

from __future__ import annotations

import json
import os
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import it2nb

PG_TIMEOUT_S = 4.0
CHECK_EVERY = 3


def look(model: nn.Module) -> float:
    return float(sum(each.detach().double().abs().sum() for each in model.parameters()))


def steer(session: it2nb.TrainingSession, asked: dict[str, Any], turn: int) -> None:
    """Rank 0 asks for something now and then; nobody waits for a result in the loop."""

    def ask(label: str, type: str, /, **payload: Any) -> None:
        asked[label] = session.submit({"type": type, "payload": payload})

    if turn == 4:
        ask("lr", "set_knob", name="lr", value=0.02)
    elif turn == 10:
        ask("fragile", "set_knob", name="fragile", value=2.0)
    elif turn == 13:
        ask("parts", "set_knob", name="parts", value=2.0)
    elif turn == 16:
        ask("kick", "kick", by=0.1)
    elif turn == 22:
        ask("reset", "reset_module", name="2")
    elif turn == 28:
        ask("pause", "pause")

        def resume() -> None:
            asked["pause"].result(60)
            threading.Event().wait(PG_TIMEOUT_S + 1.0)  # the pause itself, longer than the timeout
            ask("resume", "resume")

        threading.Thread(target=resume, daemon=True).start()
    elif turn == 34:
        ask("save", "save_checkpoint", tag="here")
    elif turn == 38:
        ask("later", "set_knob", name="lr", value=0.001)
    elif turn == 44:
        ask("load", "load_checkpoint")
    elif turn == 50:
        ask("before_undo", "set_knob", name="lr", value=0.005)
    elif turn == 56:
        ask("undo", "undo")
    elif turn == 60:
        ask("fork", "fork", steps=2)
    elif turn == 62:
        ask("evaluate", "evaluate")
    elif turn == 68:
        ask("broken", "broken")
    elif turn == 74:
        ask("batch", "batch", set={"lr": 0.03, "fragile": 3.0})
    elif turn == 80:
        # Of a file, which rank 0 alone has written.
        ask("saved", "save_checkpoint", tag="there")
    elif turn == 86:
        ask("after", "set_knob", name="lr", value=0.5)
    elif turn == 92:
        ask("goto_file", "goto", step=asked["saved"].result(0).step, exact=True)
    elif turn == 98:
        ask("goto", "goto", good=True)
    elif turn == 104:
        ask("nowhere", "goto", step=10_000)
    elif turn == 110:
        ask("stop", "stop")


def together(out: Path) -> dict[str, Any]:
    """A DDP training on two ranks that rank 0 steers."""
    rank = dist.get_rank()
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 1))
    model = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(100 + rank)
    session = it2nb.TrainingSession(
        run_id="both", directory=out, distributed={"check_every": CHECK_EVERY}
    )
    session.bind(net, optimizers=[optimizer])
    values = {"fragile": 1.0, "parts": 1.0}

    def set_fragile(value: float) -> None:
        values["fragile"] = value
        if rank == 1 and value == 2.0:
            raise RuntimeError("no room here")

    session.register_knob("fragile", lambda: values["fragile"], set_fragile)
    session.register_knob(
        "parts", lambda: values["parts"], lambda v: values.update(parts=min(v, 2.0 - 0.5 * rank))
    )

    @session.action("kick")
    def kick(by: float) -> dict[str, float]:
        with torch.no_grad():
            for each in net.parameters():
                each.add_(by * torch.randn_like(each))
        return {"by": by}

    @session.action("broken")
    def broken() -> None:
        with torch.no_grad():
            next(net.parameters()).zero_()
        if rank == 1:
            raise ValueError("not on this one")

    asked: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    refused = None
    with session.run():
        for turn in range(200):
            x = torch.randn(4, 4)
            loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if rank == 0:
                steer(session, asked, turn)
            elif turn == 4:
                refused = session.set("lr", 0.5).reason
            control = session.step({"loss": loss})
            if control.evaluate:
                session.report_eval({"val": 1.0 + rank})
            drawn = torch.get_rng_state().sum().item()
            rows.append(
                {
                    "turn": turn, "step": session.step_count, "branch": session.branch_id,
                    "lr": optimizer.param_groups[0]["lr"], "weights": look(net), **values,
                    "status": session.status, "applied": [each.type for each in control.applied],
                    "rng": drawn,
                }
            )  # fmt: skip
            if control.stop:
                break
    return {
        "rank": rank, "rows": rows, "refused": refused, "path": str(session.path),
        "run_id": session.run_id, "title": session.title,
        "results": {
            name: each.result(0).model_dump() for name, each in asked.items() if each.done()
        },
        "joined": [
            row.payload for row in session.journal.since(0) if row.type == "ranks_joined"
        ],
    }  # fmt: skip


def documented() -> None:
    """The example of docs/ranks.md as it stands there; it makes the process group."""
    page = (Path(__file__).parents[2] / "docs" / "ranks.md").read_text()
    block = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(compile(block, "docs/ranks.md", "exec"), names)
    session = names["session"]
    if session.ranks.leads:
        frame = session.journal.requests()
        assert list(frame["status"]) == ["applied"], frame
    assert names["optimizer"].param_groups[0]["lr"] == 0.01
    assert session.step_count == 40 and session.status == "finished"


def apart(out: Path) -> dict[str, Any]:
    """Rank 1 goes away in the midst of it; rank 0 hears of it and goes on."""
    rank = dist.get_rank()
    session = it2nb.TrainingSession(
        run_id="apart", directory=out, distributed={"check_every": 2, "lost_after_s": 1.5}
    )
    values = {"x": 1.0}
    session.register_knob("x", lambda: values["x"], lambda v: values.update(x=v))
    handles = []
    with session.run():
        for turn in range(60):
            if rank == 0 and turn in (10, 30):
                handles.append(
                    session.submit({"type": "set_knob", "payload": {"name": "x", "value": 2.0}})
                )
            if rank == 0 and turn == 40:
                handles.append(session.submit({"type": "stop"}))
            if session.step().stop:
                break
            if rank == 1 and turn == 5:
                os._exit(0)
    return {
        "results": [each.result(0).model_dump() for each in handles],
        "x": values["x"], "steps": session.step_count, "status": session.status,
        "types": [row.type for row in session.journal.since(0)],
    }  # fmt: skip


def unlooked() -> list[str]:
    """Rank 0 asks in vain, in a loop that looks at nothing; whom the ranks would warn of it."""
    session = it2nb.TrainingSession(directory=None, distributed={"check_every": 2})
    session.register_knob("x", lambda: 1.0, lambda value: None)
    with session.run():
        for turn in range(10):
            if dist.get_rank() == 0 and turn == 2:
                session.set("x", float("nan"))
            session.step()
        return [each.type for each in session.queue.unread()]


def main() -> None:
    out = Path(sys.argv[1])
    os.chdir(out)
    documented()
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=PG_TIMEOUT_S))
    rank = dist.get_rank()
    (out / f"together-{rank}.json").write_text(json.dumps(together(out)))
    (out / f"unlooked-{rank}.json").write_text(json.dumps(unlooked()))
    (out / f"apart-{rank}.json").write_text(json.dumps(apart(out)))
    os._exit(0)  # the other one is gone: nobody is there to take the process group down with


if __name__ == "__main__":
    main()
