"""TrainingSession: the paper's way, and the doors to PyTorch."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import it2nb
from it2nb.core.lifetime import KEPT_RUNS
from it2nb.core.session import Session
from tests.core.driving import until


def small() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    return model, torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)


def train_step(model: nn.Module, opt: torch.optim.Optimizer) -> float:
    opt.zero_grad()
    x = torch.ones(2, 4)
    loss = model(x).square().mean()
    loss.backward()
    opt.step()
    return float(loss.detach())


def test_the_papers_loop_runs_with_this_package_in_its_place(tmp_path: Path) -> None:
    model, opt = small()
    config = {"max_grad_norm": 1.0}
    session = it2nb.TrainingSession(
        goal="eval_loss", run_id="paper", context="a demo", seed=42, watch_metrics=["eval_loss"]
    )
    for forbidden in ("load_checkpoint", "note", "set_agent"):
        session.registry.unregister(forbidden)
    session.register_optimizer_lr(opt)
    session.register_knob(
        "weight_decay",
        get=lambda: float(opt.param_groups[0]["weight_decay"]),
        set=lambda value: [g.update(weight_decay=float(value)) for g in opt.param_groups],
        min=0.0,
        max=0.2,
        description="AdamW weight decay",
    )
    session.register_knob(
        "max_grad_norm",
        get=lambda: config["max_grad_norm"],
        set=lambda value: config.__setitem__("max_grad_norm", float(value)),
        min=0.1,
        max=5.0,
    )
    session.bind_model(model)
    assert "lr" in session.knobs and "betas[0]" not in session.knobs
    asked: list[Any] = []
    with session.run():
        for step in range(1, 20):
            loss = train_step(model, opt)
            control = session.step({"loss": loss}, step=step)
            if step == 3:
                asked.append(session.submit(it2nb.Action(type="evaluate", source="human:web")))
                asked.append(
                    session.submit(it2nb.Action(type="save_checkpoint", payload={"tag": "t"}))
                )
                asked.append(session.set("lr", 2e-3))
                asked.append(session.set("weight_decay", 5.0))
            if control.evaluate:
                session.report_eval({"eval_loss": loss})
            if control.save:
                path = tmp_path / "x.pt"
                torch.save(model.state_dict(), path)
                session.checkpoint_saved(str(path), step, tag=control.tag)
            if step == 10:
                session.stop()
            if control.stop:
                break
    assert [each.result(0).status for each in asked] == ["applied", "applied", "applied", "clamped"]
    assert opt.param_groups[0]["lr"] == 2e-3
    assert opt.param_groups[0]["weight_decay"] == 0.2
    assert session.status == "stopped"
    assert session.state().checkpoints[0]["tag"] == "t"
    tree = session.state().model_tree
    assert tree is not None and tree["module_type"] == "Sequential" and tree["children"]
    assert session.state().watch == ["eval_loss"]


def test_a_bound_run_saves_undoes_and_resets_by_itself() -> None:
    model, opt = small()
    session = it2nb.TrainingSession(title="bound")
    session.bind(model, optimizers=[opt])
    kept: list[Any] = []
    session.on_save(lambda: {"kept": 3})
    session.on_load(kept.append)
    with session.run():
        for _ in range(3):
            session.step({"loss": train_step(model, opt)})
        saved = session.submit(it2nb.Action(type="save_checkpoint"), wait=True)
        before = [p.clone() for p in model.parameters()]
        session.step({"loss": train_step(model, opt)})
        loaded = session.submit(
            it2nb.Action(type="load_checkpoint", payload={"path": saved.data["path"]}), wait=True
        )
        assert all(map(torch.equal, before, model.parameters()))
        reset = session.submit(it2nb.Action(type="reset_module", payload={"name": "2"}), wait=True)
        session.step({"loss": train_step(model, opt)})
    assert saved.ok and loaded.ok and reset.ok, (saved, loaded, reset)
    assert Path(saved.data["path"]).is_file() and len(saved.data["sha256"]) == 64
    assert kept == [{"kept": 3}]
    assert session.branch_id == 1


def test_the_loop_wrapper_and_autopatch_count_the_same_steps() -> None:
    model, opt = small()
    session = it2nb.TrainingSession()
    with session.run():
        for _ in session.loop(range(5)):
            session.log(loss=train_step(model, opt))
    assert session.step_count == 5
    assert session.metrics.frame()["loss"].notna().sum() == 5
    other = it2nb.TrainingSession()
    with other.run():
        other.autopatch(opt, lambda: {"loss": 1.0})
        for _ in range(4):
            train_step(model, opt)
    assert other.step_count == 4
    assert len(other.metrics.frame()) == 4


def test_a_figure_has_a_marker_at_each_applied_change() -> None:
    cell = {"x": 1.0}
    session = it2nb.TrainingSession(directory=None)
    session.register_knob("x", lambda: cell["x"], lambda v: cell.__setitem__("x", v))
    with session.run():
        for step in range(10):
            if step == 5:
                session.set("x", 2.0)
            session.step({"loss": 1.0 / (step + 1)})
    figure = session.plot()
    assert {shape.x0 for shape in figure.layout.shapes} == {6}


def test_a_loss_with_its_graph_is_recorded_without_a_warning_and_lets_the_graph_go() -> None:
    session = it2nb.TrainingSession(directory=None)
    weight = torch.ones(1, requires_grad=True)
    with session.run():
        for _ in range(3):
            session.step({"loss": (weight * 2).sum()})
    assert session.metrics.frame()["loss"].tolist() == [2.0, 2.0, 2.0]


def test_a_guard_goes_back_to_the_last_good_state() -> None:
    model, opt = small()
    session = it2nb.TrainingSession(snapshots={"every": 2, "max_share": 1.0})
    session.bind(model, optimizers=[opt])
    session.guard(it2nb.NonFinite(["loss"]), do="go_back")

    def update(step: int) -> dict[str, float]:
        loss = train_step(model, opt)
        if step == 6 and session.branch_id == 0:
            with torch.no_grad():
                next(model.parameters()).fill_(float("nan"))
            return {"loss": float("nan")}
        return {"loss": loss}

    assert session.train(update, 12) == "finished"
    (row,) = session.journal.requests().to_dict("records")
    assert (row["source"], row["type"], row["status"]) == ("guard", "goto", "applied")
    assert session.branch_id == 1 and session.branches[1].step <= 6
    assert all(bool(p.isfinite().all()) for p in model.parameters())


def test_an_evaluation_without_a_bound_model_leaves_random_streams_and_modes_alone() -> None:
    model, _ = small()
    session = it2nb.TrainingSession(directory=None)

    @session.on_evaluate
    def evaluate() -> dict[str, float]:
        model.eval()
        return {"val_loss": float(torch.rand(1))}

    with session.run():
        session.step()
        before = torch.get_rng_state()
        result = session.submit(it2nb.Action(type="evaluate"), wait=True)
        assert result.ok and model.training
        assert torch.equal(before, torch.get_rng_state())


def test_an_opened_run_gives_the_same_frames_and_figure_without_the_run() -> None:
    cell = {"x": 1.0}
    session = it2nb.TrainingSession()
    session.register_knob("x", lambda: cell["x"], lambda v: cell.__setitem__("x", v))
    with session.run():
        for step in range(10):
            if step == 5:
                session.set("x", 2.0)
            session.step({"loss": 1.0 / (step + 1)})
    assert session.path is not None
    record = it2nb.open(session.path)
    assert record.journal.frame().equals(session.journal.frame())
    assert record.requests().equals(session.journal.requests())
    assert record.metrics.frame().equals(session.metrics.frame())
    assert record.plot().to_json() == session.plot().to_json()


def test_an_opened_run_is_reported_and_exported(tmp_path: Path) -> None:
    session = it2nb.TrainingSession(title="recorded")
    with session.run():
        session.step({"loss": 1.0})
    assert session.path is not None
    record = it2nb.open(session.path)
    assert b"recorded" in record.report(tmp_path / "run.html").read_bytes()
    again = it2nb.open(record.export(tmp_path / "run.zip"))
    again.verify()
    assert again.next_seq == record.next_seq


@pytest.mark.parametrize("how", ["ended", "dropped"])
def test_a_run_that_nobody_has_any_more_is_let_go_with_its_threads(how: str) -> None:
    before = set(threading.enumerate())

    def used() -> weakref.ref[it2nb.TrainingSession]:
        model, opt = small()
        session = it2nb.TrainingSession(directory=None)
        if how == "ended":
            session.register_optimizer_lr(opt)
            with session.run():
                for _ in range(3):
                    session.step({"loss": train_step(model, opt)})
        else:
            for _ in range(3):
                session.step({"loss": train_step(model, opt)})
        return weakref.ref(session)

    gone = used()
    for _ in range(KEPT_RUNS):  # the newest ones can be asked for
        Session(directory=None)

    def is_gone() -> bool:
        gc.collect()  # a thread may hold it for the moment of a row
        return gone() is None and set(threading.enumerate()) <= before

    until(is_gone)
