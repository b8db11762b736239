"""Save, load, undo, go to: in place, on a new branch, with every change in the journal."""

from __future__ import annotations

import gc
import os
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.pytorch import checkpoints
from it2nb.pytorch.past import DATA_GOES_ON
from it2nb.pytorch.rewind import install, of

from .rewinding import Run
from .small import digest, same


def test_load_goes_back_in_place_and_on_to_the_bit(tmp_path: Path) -> None:
    run = Run(schedule="onecycle", directory=tmp_path)
    run.steps(10)
    path = run.ask("save_checkpoint").data["path"]
    before = run.state()
    weight = run.net.first.weight
    straight = run.steps(20)
    result = run.ask("load_checkpoint", path=path)
    assert result.status == "applied"
    assert result.step == run.session.step_count == 10
    assert (result.branch_id, result.data["parent"], result.data["from_step"]) == (1, 0, 30)
    assert run.net.first.weight is weight
    assert same(run.state(), before)
    assert run.steps(20) == straight
    assert run.steps_of(0) == list(range(1, 31))
    assert run.steps_of(1) == list(range(11, 31))
    assert [e.model_dump(include={"id", "parent", "step"}) for e in run.session.branches] == [
        {"id": 0, "parent": None, "step": 0},
        {"id": 1, "parent": 0, "step": 10},
    ]


def test_after_a_step_number_went_back_no_metric_is_lost(tmp_path: Path) -> None:
    """C13: 60 rows, (branch, step) unique, seq unique and monotone."""
    run = Run(directory=tmp_path)
    run.steps(10)
    path = run.ask("save_checkpoint").data["path"]
    run.steps(20)
    run.ask("load_checkpoint", path=path)
    run.steps(30)
    frame = run.session.metrics.frame()
    assert len(frame) == 60
    assert not frame.duplicated(["branch_id", "step"]).any()
    assert run.steps_of(1) == list(range(11, 41))
    seqs = [event.seq for event in run.session.journal.since(0)]
    assert seqs == list(range(len(seqs)))


def test_an_edit_after_going_back_is_in_force() -> None:
    """C11: nothing of ours holds a group that load_state_dict would replace."""
    weight = torch.nn.Parameter(torch.zeros(1))
    opt = torch.optim.SGD([weight], lr=0.1)
    session = Session(directory=None)
    session.bind(optimizers=[opt])
    session.register_knob(
        "lr",
        lambda: opt.param_groups[0]["lr"],
        lambda value: opt.param_groups[0].__setitem__("lr", value),
    )
    install(session)

    def step() -> None:
        weight.grad = torch.ones(1)
        opt.step()
        session.step()

    def ask(action: str, **payload: Any) -> None:
        assert session.do(action, timeout=0, **payload) is not None
        session.pump()

    step()
    saved = session.submit(Action(type="save_checkpoint"))
    session.pump()
    for _ in range(5):
        step()
    ask("load_checkpoint", path=saved.result(0).data["path"])
    ask("set_knob", name="lr", value=0.05)
    before = weight.item()
    step()
    assert opt.param_groups[0]["lr"] == 0.05
    assert weight.item() == pytest.approx(before - 0.05, abs=1e-7)
    opt.load_state_dict(opt.state_dict())  # by the user's own hand
    ask("set_knob", name="lr", value=0.5)
    before = weight.item()
    step()
    assert weight.item() == pytest.approx(before - 0.5, abs=1e-7)


@pytest.mark.parametrize("keep_knobs", [False, True])
def test_knobs_come_back_or_stay_and_the_row_says_which(keep_knobs: bool, tmp_path: Path) -> None:
    config = {"clip": 1.0, "augment": True}
    run = Run(directory=tmp_path)
    for name, kind in (("clip", float), ("augment", bool)):
        run.session.register_knob(
            name, partial(config.get, name), partial(config.__setitem__, name), dtype=kind
        )
    run.steps(2)
    path = run.ask("save_checkpoint").data["path"]
    run.ask("set_knob", name="clip", value=5.0)
    run.ask("set_knob", name="lr", value=0.5)
    run.steps(2)
    result = run.ask("load_checkpoint", path=path, keep_knobs=keep_knobs)
    assert config == {"clip": 5.0 if keep_knobs else 1.0, "augment": True}
    assert run.opt.param_groups[0]["lr"] == (0.5 if keep_knobs else 0.01)
    changed = (
        {}
        if keep_knobs
        else {"lr": {"before": 0.5, "after": 0.01}, "clip": {"before": 5.0, "after": 1.0}}
    )
    assert result.data["knobs"] == changed
    row = run.rows("checkpoint_loaded")[0]
    assert (row["knobs"], row["keep_knobs"], row["path"]) == (changed, keep_knobs, path)


def test_a_plain_loop_is_told_that_its_data_goes_on() -> None:
    run = Run()
    run.steps(10)
    run.steps(3)
    notes = run.ask("goto", step=10).data["notes"]
    assert notes == [DATA_GOES_ON.format(step=10)]
    assert "session.loop(loader)" in notes[0]


def test_a_snapshot_stays_as_it_was() -> None:
    """C08: hash at step 10 and at step 30."""
    run = Run(schedule="onecycle")
    run.steps(10)
    kept = run.rewind.past.ring.newest
    assert kept is not None
    assert kept.step == 10
    before, state = digest(kept.tree), run.state()
    run.steps(20)
    assert digest(kept.tree) == before
    run.ask("goto", step=10)
    assert same(run.state(), state)
    assert digest(kept.tree) == before


def test_what_does_not_fit_is_rejected_and_nothing_is_touched(tmp_path: Path) -> None:
    other = Run(directory=tmp_path)
    other.steps(1)
    path = other.ask("save_checkpoint").data["path"]
    run = Run(directory=tmp_path, schedule="cosine")
    run.steps(2)
    before = run.state()
    result = run.ask("load_checkpoint", path=path)
    assert result.status == "rejected"
    assert "the saved state has the schedulers [] and the run has ['scheduler']" in str(
        result.reason
    )
    assert same(run.state(), before)
    assert (run.session.step_count, run.session.branch_id) == (2, 0)
    assert run.rows("checkpoint_loaded") == []


def test_a_strangers_checkpoint_is_rejected_and_training_goes_on(tmp_path: Path) -> None:
    """C64."""
    canary = tmp_path / "canary"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (os.mkdir, (str(canary),))

    folder = tmp_path / "given"
    folder.mkdir()
    torch.save({"format": checkpoints.FORMAT, "models": Evil()}, folder / "step-000009.pt")
    run = Run()
    run.steps(2)
    result = run.ask("load_checkpoint", path=str(folder))
    assert result.status == "rejected"
    assert "nothing in it was run" in str(result.reason)
    assert not canary.exists()
    run.steps(1)


def test_a_restore_that_breaks_in_the_middle_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run()
    run.steps(10)
    run.steps(3)
    before = run.state()

    class Broken:
        fail = False

        def state_dict(self) -> dict[str, int]:
            return {"n": 1}

        def load_state_dict(self, state: dict[str, int]) -> None:
            if self.fail:
                self.fail = False
                raise ValueError("no such thing")

    broken = Broken()
    run.session.bound.stateful["broken"] = broken
    run.ask("set_knob", name="lr", value=0.3)
    run.ask("set_knob", name="lr", value=0.01)
    broken.fail = True
    result = run.ask("goto", step=13)
    assert result.status == "failed"
    assert "ValueError: no such thing; all was put back" in str(result.reason)
    assert same(run.state()["models"], before["models"])
    assert (run.session.step_count, run.session.branch_id) == (13, 0)
    run.steps(2)


def test_the_users_own_data_goes_along(tmp_path: Path) -> None:
    best: dict[str, Any] = {"loss": 1.0, "weights": torch.ones(2)}
    run = Run(directory=tmp_path)
    run.session.bound.on_save.append(lambda: dict(best))
    run.session.bound.on_load.append(best.update)
    run.steps(1)
    path = run.ask("save_checkpoint").data["path"]
    run.ask("set_knob", name="lr", value=0.2)
    best["loss"] = 0.5
    best["weights"] += 1
    run.ask("undo")
    assert best["loss"] == 1.0
    assert best["weights"].tolist() == [1.0, 1.0]
    best["loss"] = 0.1
    run.ask("load_checkpoint", path=path)
    assert best["loss"] == 1.0


def test_an_ended_session_keeps_no_tensor() -> None:
    """C77."""
    run = Run()
    run.steps(12)
    run.ask("set_knob", name="lr", value=0.2)
    session = run.session
    kept = run.rewind.past.ring.newest
    assert kept is not None
    watched = [
        weakref.ref(run.net.first.weight),
        weakref.ref(kept.tree["models"]["model"]["state"]["last.weight"]),
    ]
    session.knobs.unregister("lr")  # its getter is a method of the test's own run
    session.end()
    del run, kept
    gc.collect()
    assert [ref() for ref in watched] == [None, None]
    assert session.step_count == 12


def test_without_a_model_the_reason_is_the_same_everywhere() -> None:
    session = Session(directory=None)
    session.honours_control = False
    install(session)
    session.step({"loss": 1.0})
    reason = "no model was found or bound; call session.bind(model=..., optimizers=...)"
    handle = session.submit(Action(type="save_checkpoint"))
    session.pump()
    said = handle.result(0).reason or ""
    assert said.startswith(reason[:-1])
    shown = {each.name: each for each in session.state().actions}
    assert shown["save_checkpoint"].enabled is False
    assert shown["save_checkpoint"].reason == shown["load_checkpoint"].reason == said


def test_install_is_idempotent() -> None:
    run = Run()
    assert install(run.session) is run.rewind is of(run.session)
    assert of(Session(directory=None)) is None
