"""Loops with Accelerate: what is prepared is steered, also in launched processes."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState, GradientState
from torch.utils.data import DataLoader, TensorDataset

from it2nb.core.errors import SessionEnded
from it2nb.integrations.accelerate import steer
from it2nb.interactive import make_interactive

from .tiny import new_session, series


@pytest.fixture(autouse=True)
def alone() -> Any:
    """Accelerate keeps its state in the process."""
    yield
    AcceleratorState._reset_state(True)
    GradientState._reset_state()


def parts() -> tuple[Any, Any, Any, Any]:
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 1)
    adam = torch.optim.AdamW(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(adam, 1, 0.5)
    return net, adam, DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=4), schedule


def train(session: Any, accelerator: Any, prepared: Any, calls: Any) -> None:
    """A loop as Accelerate's documentation has it."""
    net, adam, loader, schedule = prepared
    for batch in loader:
        with accelerator.accumulate(net):
            loss = net(batch[0]).square().mean()
            accelerator.backward(loss)
            adam.step()
            schedule.step()
            adam.zero_grad()
        call = calls.pop(session.step_count, None)
        if call is not None:
            call()


@pytest.mark.parametrize("when", ["before", "after"])
def test_steered_before_or_after_prepare_updates_are_steps(when: str) -> None:
    session = new_session()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=3)
    used: list[float] = []
    results: list[Any] = []
    with session.run():
        if when == "before":
            assert make_interactive(accelerator, session=session) is accelerator
        prepared = accelerator.prepare(*parts())
        if when == "after":
            make_interactive(accelerator, session=session)
        prepared[1].optimizer.register_step_pre_hook(
            lambda optimizer, args, kwargs: used.append(optimizer.param_groups[0]["lr"])
        )
        train(
            session, accelerator, prepared,
            {1: lambda: results.append(session.set("lr", 1e-3, mode="hold")),
             3: lambda: results.append(session.save_checkpoint("three"))},
        )  # fmt: skip
    assert (session.step_count, session.status) == (4, "finished")
    assert [each.result(0).status for each in results] == ["applied", "applied"]
    assert used[0] == 0.1
    assert used[2:] == [1e-3, 1e-3]
    assert "lr" in session.knobs


def test_a_stop_ends_the_loop() -> None:
    session = new_session()
    accelerator = Accelerator(cpu=True)
    with session.run():
        steer(accelerator, session, new_session, metrics_fn=lambda: {"loss": 1.0})
        train(session, accelerator, accelerator.prepare(*parts()), {3: session.stop})
    assert session.status == "stopped"
    assert list(series(session, "loss")) == [1, 2, 3, 4]


def test_a_session_that_is_over_is_refused() -> None:
    session = new_session()
    session.end()
    with pytest.raises(SessionEnded, match="give this training a new session"):
        steer(Accelerator(cpu=True), session, new_session)


LAUNCH = """
import sys, torch, it2nb
from accelerate import Accelerator, notebook_launcher

def loop(session, accelerator):
    net = torch.nn.Linear(4, 1)
    net, adam = accelerator.prepare(net, torch.optim.SGD(net.parameters(), lr=0.1))
    for _ in range(5):
        accelerator.backward(net(torch.ones(2, 4)).mean())
        adam.step(); adam.zero_grad()

def of_the_parent():
    accelerator = Accelerator(cpu=True)
    it2nb.make_interactive(accelerator, session=parent)
    loop(parent, accelerator)

def of_its_own():
    accelerator = Accelerator(cpu=True)
    session = it2nb.TrainingSession(directory=None, resources_every_s=0)
    with session.run():
        it2nb.make_interactive(accelerator, session=session)
        loop(session, accelerator)
    if accelerator.is_main_process:
        print("rank 0", session.status, session.step_count)

if __name__ == "__main__":
    parent = it2nb.TrainingSession(directory=None, resources_every_s=0)
    parent.start()
    assert not torch.cuda.is_initialized()
    notebook_launcher(globals()[sys.argv[1]], num_processes=2, use_port=sys.argv[2])
"""


@pytest.mark.parametrize("which", ["of_its_own", "of_the_parent"])
def test_launched_processes_work_or_say_what_to_do_and_never_hang(
    which: str, tmp_path: Any
) -> None:
    script = tmp_path / "launched.py"
    script.write_text(LAUNCH)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = subprocess.run(
        [sys.executable, script, which, port], capture_output=True, text=True, timeout=170
    )
    if which == "of_its_own":
        assert done.returncode == 0, done.stderr
        assert "rank 0 finished 5" in done.stdout
    else:
        assert done.returncode != 0
        assert "make the TrainingSession inside of the launched function" in done.stderr
