"""Trains until it is killed. Started once, imports once, forks a child for each run.

Reads one JSON object a line: ``{"run", "folder", "seed", "kill_at"}``. Writes ``RUN pid N`` when
there is a child, ``RUN training 0`` when that has made its first step, and ``RUN gone STATUS``
after it. The child appends a line to ``folder/told`` for each result that it was given: what
stands there was acknowledged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from it2nb.core.session import Session
from it2nb.core.wire import Action, ActionResult

#: Where the test listens.
SAID = 1


def main(kind: str) -> None:
    make = {"light": light, "torch": torch_run}[kind]
    if kind == "torch":
        warm_up()
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                child(asked, make)
            except BaseException:  # noqa: BLE001  # a forked child has nobody above it
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        say(asked["run"], "pid", pid)
        _, status = os.waitpid(pid, 0)
        say(asked["run"], "gone", status)


def say(run: int, word: str, number: int) -> None:
    # One write: parent and child have the same pipe.
    os.write(SAID, f"{run} {word} {number}\n".encode())


def warm_up() -> None:
    """Import all that a step needs; PyTorch fetches the half of it at the first one."""
    import torch

    import it2nb.pytorch.rewind  # noqa: F401
    from tests.pytorch.small import small_run

    torch.set_num_threads(1)
    live, _ = small_run("adamw", "onecycle-long")
    # No backward: it may start threads, and a fork would bring along their locks without them.
    for weight in live.models["net"].parameters():
        weight.grad = torch.zeros_like(weight)
    live.optimizers["opt0"].step()


def child(asked: dict[str, Any], make: Callable[..., tuple[Session, Callable[[], float]]]) -> None:
    signal.alarm(120)  # nobody is left to kill it: its files would grow for ever
    folder = Path(asked["folder"])
    told = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if asked["kill_at"] is not None:
        kill_at_byte(asked["kill_at"], told)
    session, step = make(folder, asked["seed"])
    for number in range(2):
        asker = threading.Thread(
            target=ask, args=(session, told, random.Random(asked["seed"] * 2 + number)), daemon=True
        )
        asker.start()
    with session.run():
        session.step({"loss": step(), "acc": 0.5})
        say(asked["run"], "training", 0)
        while not session.step({"loss": step(), "acc": 0.5}).stop:
            pass


def ask(session: Session, told: int, rng: random.Random) -> None:
    """Ask for this and that, and note down each result once it is there."""
    while not session.is_ended:
        action = draw(session, rng)
        if rng.random() < 0.5:
            results = [session.submit(action, wait=True, timeout=60)]
        else:  # several under way at once
            handles = [session.submit(action), session.submit(draw(session, rng))]
            results = [handle.result(60) for handle in handles]
        for result in results:
            os.write(told, acknowledged(result))


def draw(session: Session, rng: random.Random) -> Action:
    knob = {"name": "lr", "value": rng.choice([rng.random(), 5.0, "much", float("nan")])}
    choices: list[tuple[str, dict[str, Any]]] = [
        ("set_knob", knob),
        ("note", {"text": "x" * rng.randrange(300)}),
        ("nothing", {}),
    ]
    if "undo" in session.actions:
        choices += [("save_checkpoint", {}), ("undo", {}), ("load_checkpoint", {})]
        choices += [("save_checkpoint", {})] * 3
    kind, payload = rng.choice(choices)
    return Action(type=kind, payload=payload)


def acknowledged(result: ActionResult) -> bytes:
    fields = result.model_dump(include={"id", "status", "after", "step", "durable", "data"})
    return json.dumps(fields).encode() + b"\n"


def kill_at_byte(at: int, told: int) -> None:
    """Die in the middle of a write, `at` bytes after the start, with a part of it written."""
    left = at
    lock = threading.Lock()

    def deadly(inner: Callable[[Any, Any], int]) -> Callable[[Any, Any], int]:
        def write(where: Any, data: Any) -> int:
            nonlocal left
            if where in (told, SAID):
                return inner(where, data)
            view = memoryview(data).cast("B")
            with lock:
                if left < len(view):
                    inner(where, bytes(view[:left]))
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= len(view)
            return inner(where, data)

        return write

    os.write = deadly(os.write)
    if "torch" in sys.modules:
        from it2nb.pytorch import checkpoints

        setattr(checkpoints._Hashed, "write", deadly(checkpoints._Hashed.write))  # noqa: B010


def light(folder: Path, seed: int) -> tuple[Session, Callable[[], float]]:
    """Make a session without PyTorch."""
    values = {"lr": 0.1}
    session = Session(run_id="run", directory=folder)
    session.register_knob(
        "lr", lambda: values["lr"], lambda value: values.update(lr=value), min=0.0, max=1.0
    )
    return session, lambda: values["lr"]


def torch_run(folder: Path, seed: int) -> tuple[Session, Callable[[], float]]:
    """Make a real training with checkpoints."""
    from it2nb.pytorch.rewind import install
    from tests.pytorch.small import small_run

    live, step = small_run("adamw", "onecycle-long")
    opt = live.optimizers["opt0"]
    session = Session(run_id="run", directory=folder)
    session.bind(
        live.models["net"],
        optimizers=list(live.optimizers.values()),
        schedulers=list(live.schedulers.values()),
    )
    session.register_knob(
        "lr",
        lambda: opt.param_groups[0]["lr"],
        lambda value: opt.param_groups[0].update(lr=value),
        min=0.0,
        max=1.0,
    )
    install(session, autosave_s=0.05, snapshots={"every": 5})
    return session, step


if __name__ == "__main__":
    main(sys.argv[1])
