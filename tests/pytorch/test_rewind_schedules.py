"""Going back to before an edit of lr under a schedule: as if it had never been made."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from it2nb.pytorch.hooks import attach
from it2nb.pytorch.rewind import install
from it2nb.session import TrainingSession

_LR = torch.optim.lr_scheduler
SCHEDULES: dict[str, Any] = {
    "none": lambda opt: None,
    "lambda": lambda opt: _LR.LambdaLR(opt, lambda e: 1 - e / 40),
    "cosine": lambda opt: _LR.CosineAnnealingLR(opt, 40),
    "onecycle": lambda opt: _LR.OneCycleLR(opt, 0.1, total_steps=40),
    "step": lambda opt: _LR.StepLR(opt, 7),
    "sequential": lambda opt: _LR.SequentialLR(
        opt, [_LR.LinearLR(opt, total_iters=5), _LR.ExponentialLR(opt, 0.9)], [5]
    ),
}


FEW = ["none", "cosine", "onecycle"]


class Run:
    """Trains over ``session.loop``; `asks` maps the number of a turn to requests."""

    def __init__(self, schedule: str) -> None:
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.Linear(6, 4))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=0.02)
        self.sched = SCHEDULES[schedule](self.opt)
        self.session = TrainingSession(directory=None)
        install(self.session, snapshots={"every": 1, "max_share": 1e9})
        schedulers = [] if self.sched is None else [self.sched]
        self.session.bind(self.net, optimizers=[self.opt], schedulers=schedulers)
        attach(self.session)
        self.used: list[tuple[int, int, float, float]] = []
        self.results: list[Any] = []

    def run(self, asks: dict[int, list[tuple[str, dict[str, Any]]]]) -> None:
        data = [torch.randn(5, 4) for _ in range(24)]
        session, handles, turns = self.session, [], 0
        seen: list[float] = []
        hook = self.opt.register_step_pre_hook(lambda o, *_: seen.append(o.param_groups[0]["lr"]))
        with session.run():
            for x in session.loop(data):
                turns += 1
                loss = F.mse_loss(self.net(x), x)
                self.opt.zero_grad()
                loss.backward()
                where = (session.branch_id, session.step_count + 1)
                for kind, payload in asks.get(turns, []):
                    handles.append(session.submit({"type": kind, "payload": payload}))
                self.opt.step()
                if self.sched is not None:
                    self.sched.step()
                self.used.append((*where, float(seen[-1]), loss.item()))
        hook.remove()
        self.results = [each.result(0) for each in handles]
        for each in self.results:
            assert each.ok, each

    def after(self, branch: int) -> dict[int, tuple[float, float]]:
        return {step: (lr, loss) for b, step, lr, loss in self.used if b == branch}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("mode", ["rescale", "hold"])
def test_undo_of_an_edit_under_a_schedule(schedule: str, mode: str) -> None:
    straight = Run(schedule)
    straight.run({})
    run = Run(schedule)
    edit = ("set_knob", {"name": "lr", "value": 0.003, "mode": mode})
    run.run({6: [edit], 11: [("undo", {})]})
    assert run.results[1].data["step"] == 6
    never = straight.after(0)
    assert run.after(0)[7][0] == 0.003
    assert run.after(1) == {step: never[step] for step in range(7, 25)}
    assert torch.equal(run.net.state_dict()["0.weight"], straight.net.state_dict()["0.weight"])


@pytest.mark.parametrize("schedule", FEW)
@pytest.mark.parametrize("mode", ["rescale", "hold"])
def test_an_edit_and_its_undo_at_one_control_point_leave_no_trace(schedule: str, mode: str) -> None:
    straight = Run(schedule)
    straight.run({})
    run = Run(schedule)
    edit = ("set_knob", {"name": "lr", "value": 0.003, "mode": mode})
    run.run({6: [edit, ("undo", {})]})
    never = straight.after(0)
    assert run.after(1) == {step: never[step] for step in range(7, 25)}


@pytest.mark.parametrize("schedule", FEW)
@pytest.mark.parametrize("mode", ["rescale", "hold"])
def test_going_back_to_a_state_under_an_edit_keeps_the_edit(schedule: str, mode: str) -> None:
    edit = ("set_knob", {"name": "lr", "value": 0.003, "mode": mode})
    straight = Run(schedule)
    straight.run({6: [edit]})
    run = Run(schedule)
    # Set at step 6 and in force from 7; the state of step 9 has it, whatever came later.
    later = ("set_knob", {"name": "lr", "value": 0.05, "mode": mode})
    run.run({6: [edit], 12: [later], 15: [("goto", {"step": 9})]})
    edited = straight.after(0)
    assert run.after(1) == {step: edited[step] for step in range(10, 25)}


@pytest.mark.parametrize("mode", ["rescale", "hold"])
def test_a_checkpoint_saved_with_a_pending_edit_has_it(mode: str, tmp_path: Any) -> None:
    edit = ("set_knob", {"name": "lr", "value": 0.003, "mode": mode})
    straight = Run("cosine")
    straight.run({6: [edit]})
    run = Run("cosine")
    run.run({6: [edit, ("save_checkpoint", {})], 10: [("load_checkpoint", {})]})
    edited = straight.after(0)
    assert run.after(1) == {step: edited[step] for step in range(7, 25)}


def test_release_after_an_undo_is_exact() -> None:
    straight = Run("cosine")
    straight.run({})
    run = Run("cosine")
    edit = ("set_knob", {"name": "lr", "value": 0.003, "mode": "rescale"})
    release = ("set_mode", {"name": "lr", "mode": "release"})
    run.run({6: [edit], 9: [("undo", {})], 11: [release]})
    never = straight.after(0)
    assert run.after(1) == {step: never[step] for step in range(7, 25)}
