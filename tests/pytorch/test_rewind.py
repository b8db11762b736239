"""Save, load, undo, go to: in place, on a new branch, with every change in the journal."""

from __future__ import annotations

import errno
import gc
import hashlib
import math
import os
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from it2nb.core.control import StopTraining
from it2nb.core.errors import It2nbError
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.pytorch import checkpoints
from it2nb.pytorch.past import DATA_GOES_ON
from it2nb.pytorch.rewind import install, of
from it2nb.pytorch.snapshots import size_of_live
from it2nb.session import TrainingSession

from .rewinding import Clock, Run
from .small import Net, digest, same


def test_save_gives_the_path_and_hash_of_a_whole_file(tmp_path: Path) -> None:
    run = Run(schedule="cosine", directory=tmp_path)
    run.steps(3)
    result = run.ask("save_checkpoint", tag="first")
    assert result.status == "applied"
    path = Path(result.data["path"])
    assert path == tmp_path / run.session.run_id / "checkpoints" / "step-000003-first.pt"
    content = path.read_bytes()
    assert result.data["sha256"] == hashlib.sha256(content).hexdigest()
    assert result.data["size_bytes"] == len(content)
    loaded = torch.load(path, weights_only=True)
    assert loaded["meta"]["knobs"]["lr"]["value"] == run.opt.param_groups[0]["lr"]
    assert set(loaded["models"]) == {"model"}
    assert run.rows("checkpoint_saved") == [result.data]
    assert run.session.checkpoints == [result.data]


def test_a_file_whose_hash_was_told_is_never_replaced(tmp_path: Path) -> None:
    run = Run(directory=tmp_path)
    run.steps(3)
    results = [run.ask("save_checkpoint") for _ in range(3)]
    results += [run.ask("save_checkpoint", tag="x") for _ in range(2)]
    names = [Path(each.data["path"]).name for each in results]
    assert names == [
        "step-000003.pt",
        "step-000003_2.pt",
        "step-000003_3.pt",
        "step-000003-x.pt",
        "step-000003_2-x.pt",
    ]
    for each in results:
        content = Path(each.data["path"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == each.data["sha256"]
    listed = checkpoints.list_checkpoints(run.rewind.saving.folder)
    assert sorted(each.path.name for each in listed) == sorted(names)
    assert [each.step for each in listed] == [3] * 5


def test_objects_are_saved_under_the_users_names(tmp_path: Path) -> None:
    run = Run(directory=tmp_path)
    run.session.bound.names[id(run.net)] = "net"
    run.steps(1)
    loaded = torch.load(run.ask("save_checkpoint").data["path"], weights_only=True)
    assert set(loaded["models"]) == {"net"}
    assert set(loaded["optimizers"]) == {"optimizer"}


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


def test_undo_goes_back_to_before_the_last_intervention() -> None:
    run = Run("adamw", "none")
    run.steps(7)
    before = run.state()
    straight = run.steps(0)
    run.ask("set_knob", name="lr", value=0.5)
    run.steps(5)
    result = run.ask("undo")
    assert result.status == "applied"
    assert result.data["undone"] == "set_knob lr"
    assert result.data["knobs"] == {"lr": {"before": 0.5, "after": 0.01}}
    assert (run.session.step_count, run.session.branch_id) == (7, 1)
    assert same(run.state(), before)
    assert straight == []
    assert run.rows("knob_changed")[-1] == {"name": "lr", "value": 0.01, "before": 0.5}
    # Beside the knob nothing claims any more that 0.5 is in force.
    assert run.session.knobs["lr"].last is None


def test_undo_again_undoes_the_one_before_and_then_there_is_nothing() -> None:
    run = Run()
    run.steps(2)
    states = []
    for value in (0.1, 0.2, 0.3):
        states.append(run.state())
        run.ask("set_knob", name="lr", value=value)
        run.steps(2)
    for step, wanted in ((6, 0.2), (4, 0.1), (2, 0.01)):
        run.ask("undo")
        assert run.session.step_count == step
        assert run.opt.param_groups[0]["lr"] == wanted
        assert same(run.state(), states.pop())
    result = run.ask("undo")
    assert result.status == "rejected"
    assert result.reason == "nothing was changed yet"
    assert [each.parent for each in run.session.branches] == [None, 0, 0, 0]


def test_undo_takes_a_whole_drag_back() -> None:
    run = Run()
    run.steps(1)
    for value in (0.1, 0.15, 0.2, 0.25):
        handle = run.session.submit(
            {"type": "set_knob", "payload": {"name": "lr", "value": value}}, source="panel"
        )
        run.clock.now += 0.3
        run.session.pump()
        assert handle.result(0).ok
    run.clock.now += 5.0
    run.ask("set_knob", name="lr", value=0.7, source="panel")
    run.ask("undo")
    assert run.opt.param_groups[0]["lr"] == 0.25
    run.ask("undo")
    assert run.opt.param_groups[0]["lr"] == 0.01


def test_refused_requests_leave_nothing_to_undo() -> None:
    run = Run()
    run.steps(1)
    assert run.ask("set_knob", name="lr", value="much").status == "rejected"
    assert run.ask("set_knob", name="nothing", value=1.0).status == "rejected"
    run.ask("note", text="hello")
    assert run.ask("undo").reason == "nothing was changed yet"


def test_undo_without_snapshots_says_so_instead_of_that_nothing_was_changed() -> None:
    run = Run(snapshots=False)
    run.steps(1)
    assert run.ask("set_knob", name="lr", value=0.1).status == "applied"
    result = run.ask("undo")
    assert result.status == "rejected"
    assert result.reason is not None
    assert "keep no snapshots" in result.reason and "set the knob back" in result.reason


def test_undo_of_a_going_back_returns() -> None:
    run = Run()
    run.steps(10)
    run.steps(5)
    there = run.state()
    run.ask("goto", step=10)
    run.steps(3)
    result = run.ask("undo")
    assert (run.session.step_count, result.data["parent"]) == (15, 0)
    assert same(run.state(), there)


def test_undo_of_a_users_own_action() -> None:
    run = Run()

    @run.session.action("zero")
    def zero() -> None:
        with torch.no_grad():
            run.net.first.weight.zero_()

    run.steps(2)
    before = run.state()
    run.ask("zero")
    assert not run.net.first.weight.any()
    run.ask("undo")
    assert same(run.state(), before)


def test_undo_of_knobs_alone_keeps_the_training() -> None:
    run = Run()
    run.steps(2)
    run.ask("set_knob", name="lr", value=0.5)
    run.steps(2)
    before = run.state()["models"]
    result = run.ask("undo", knobs_only=True)
    assert result.data["undone"] == "set_knob lr"
    assert result.data["knobs"] == {"lr": {"before": 0.5, "after": 0.01}}
    assert result.data["notes"] == []
    assert same(run.state()["models"], before)
    assert (run.session.step_count, run.session.branch_id) == (4, 0)


def test_without_a_model_undo_puts_the_knobs_back_and_says_so() -> None:
    run = Run(bound=False)
    run.steps(2)
    run.ask("set_knob", name="lr", value=0.5)
    result = run.ask("undo")
    assert run.opt.param_groups[0]["lr"] == 0.01
    assert "only knobs can be put back" in result.data["notes"][0]


def test_undo_of_a_knob_that_does_not_go_back_with_the_weights() -> None:
    box = {"x": 1}
    run = Run()
    run.session.register_knob("x", lambda: box["x"], lambda v: box.update(x=v), dtype=int)
    run.steps(1)
    run.ask("set_knob", name="x", value=9)
    run.ask("undo")
    assert box == {"x": 1}


def test_goto_takes_the_snapshot_or_the_nearest_before_it() -> None:
    run = Run()
    run.steps(10)
    at_ten = run.state()
    run.steps(25)
    result = run.ask("goto", step=17)
    assert result.data["step"] == run.session.step_count == 10
    assert "no snapshot of step 17 is kept; this is step 10" in result.data["notes"]
    assert same(run.state(), at_ten)
    assert run.ask("goto", step=17, exact=True).status == "rejected"


def test_a_goto_that_finds_nothing_lists_the_steps_that_are_kept() -> None:
    run = Run()
    run.steps(35)
    assert run.ask("goto", step=3).reason == (
        "step 3 can't be gone back to; on branch 0 these steps are kept: 10, 20, 30, 35"
    )
    run.ask("goto", step=20)
    run.steps(12)
    # The new branch begins at step 20: what the old one has after that is not on its way.
    assert str(run.ask("goto", step=25, exact=True).reason).endswith(
        "on branch 1 these steps are kept: 10, 20, 30, 32"
    )
    assert run.ask("goto", step=5, branch_id=7).reason == "there is no branch 7; there are 0, 1"


def test_of_many_kept_steps_the_first_and_the_last_are_listed() -> None:
    run = Run(snapshots={"every": 1, "max_share": 1e9})
    run.steps(40)
    said = str(run.ask("goto", step=0).reason)
    assert "kept: 2, 3, 4" in said and "12, 13, ... (15 more) ..., 29, 30" in said
    assert said.endswith("39, 40")


def test_goto_follows_the_line_of_branches() -> None:
    run = Run()
    run.steps(30)
    run.ask("goto", step=10)
    run.steps(5)  # branch 1 is at 15; 20 and 30 are on the branch that was left
    assert run.ask("goto", step=25).reason == "step 25 is not there yet: this is step 15"
    result = run.ask("goto", step=14)
    assert (result.data["step"], result.data["parent"]) == (10, 0)
    back = run.ask("goto", step=25, branch_id=0)
    assert (back.data["step"], back.data["parent"]) == (20, 0)
    assert [(e.id, e.parent, e.step) for e in run.session.branches] == [
        (0, None, 0),
        (1, 0, 10),
        (2, 0, 10),
        (3, 0, 20),
    ]


def test_goto_also_takes_a_file(tmp_path: Path) -> None:
    run = Run(directory=tmp_path, snapshots=False)
    run.steps(4)
    run.ask("save_checkpoint")
    run.steps(4)
    result = run.ask("goto", step=6)
    assert result.data["path"].endswith("step-000004.pt")
    assert run.session.step_count == 4
    assert run.ask("goto", step=3).reason == (
        "step 3 can't be gone back to; on branch 1 these steps are kept: 4"
    )


def test_c44_a_run_that_goes_wrong_in_its_first_steps_can_go_back() -> None:
    run = Run(snapshots={})
    run.steps(2)
    good = run.state()
    run.steps(1)
    with torch.no_grad():
        run.net.first.weight.fill_(math.nan)
    assert math.isnan(run.steps(2)[-1])
    result = run.ask("goto", step=2)
    assert result.status == "applied", result.error
    assert (run.session.step_count, run.session.branch_id) == (2, 1)
    assert same(run.state(), good)


def test_of_the_first_steps_a_few_are_kept_and_then_each_fiftieth() -> None:
    run = Run(snapshots={})
    run.steps(120)
    assert [each.step for each in run.rewind.past.ring] == [2, 4, 8, 16, 32, 50, 100]
    assert not [each for each in run.session.turns._turns if each.name.endswith("first steps")]


def test_goto_the_last_good_state() -> None:
    run = Run()
    run.steps(20)
    with torch.no_grad():
        run.net.last.weight[0, 0] = float("nan")
    run.steps(15)
    assert not torch.isfinite(run.net.last.weight).all()
    result = run.ask("goto", good=True)
    assert run.session.step_count == 20
    assert result.data["good"] is True
    assert all(p.isfinite().all() for p in run.net.parameters())


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


def test_a_full_disk_fails_the_request_and_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(directory=tmp_path)
    run.steps(1)
    old = run.ask("save_checkpoint")
    run.steps(1)

    def full(file: Any, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints._Hashed, "write", full)
        result = run.ask("save_checkpoint")
    assert result.status == "failed"
    path = tmp_path / run.session.run_id / "checkpoints" / "step-000002.pt"
    assert str(result.reason) == (
        f"the checkpoint {str(path)!r} could not be written (No space left on device), and "
        f"nothing of it was left; earlier ones are whole: make room there and save again"
    )
    run.steps(1)
    listed = run.ask("list_checkpoints").data
    assert [each["name"] for each in listed["files"]] == ["step-000001.pt"]
    assert run.ask("save_checkpoint").ok
    assert run.ask("load_checkpoint", path=old.data["path"]).ok


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


def test_paused_save_undo_and_load_work_and_stop_adds_no_step() -> None:
    """C04: all of it while paused, and not one update after the stop."""
    run = Run()
    run.steps(5)
    asked = [
        run.session.submit({"type": name, "payload": payload})
        for name, payload in (
            ("pause", {}),
            ("set_knob", {"name": "lr", "value": 0.5}),
            ("save_checkpoint", {}),
            ("undo", {}),
            ("load_checkpoint", {}),
            ("stop", {}),
        )
    ]
    before = run.state()["models"]
    with pytest.raises(StopTraining):
        run.session.pump()
    assert [each.result(0).status for each in asked] == ["applied"] * 6
    assert same(run.state()["models"], before)
    assert run.session.step_count == 5


def test_snapshots_keep_within_their_bound_and_say_when_one_does_not_fit() -> None:
    run = Run(snapshots={"every": 1, "max_bytes": 100})
    run.steps(5)
    ring = run.rewind.past.ring
    assert len(ring) == 0
    result = run.ask("goto", step=3)
    assert result.status == "rejected"
    assert "raise it with snapshots={'max_bytes': ...}" in str(result.reason)
    run.ask("set_knob", name="lr", value=0.3)
    undone = run.ask("undo")
    assert undone.ok
    assert "one snapshot takes" in undone.data["notes"][0]
    assert run.opt.param_groups[0]["lr"] == 0.01


def test_a_change_does_not_keep_a_snapshot_that_had_to_go() -> None:
    run = Run(snapshots={"every": 1000, "max_count": 2})
    run.steps(1)
    run.ask("set_knob", name="lr", value=0.1)
    ring = run.rewind.past.ring
    assert ring.newest is not None
    watched = weakref.ref(ring.newest.tree["models"]["model"]["state"]["last.weight"])
    for value in (0.2, 0.3, 0.4):
        run.steps(1)
        run.ask("set_knob", name="lr", value=value)
    # The oldest stays beside the newest; of the others nothing may be left.
    assert len(ring) == 2
    kept = [change.snapshot for change in run.rewind.past._changes]
    assert [each is not None for each in kept] == [each in ring for each in kept]
    del kept
    ring.max_count = 1
    run.steps(1)
    run.ask("set_knob", name="lr", value=0.5)
    gc.collect()
    assert watched() is None
    for _ in range(5):
        assert run.ask("undo").ok
    assert run.opt.param_groups[0]["lr"] == 0.01


def test_a_program_that_asks_at_each_step_does_not_get_a_snapshot_each_time() -> None:
    run = Run(snapshots={"every": 1000, "max_share": 0.01})
    past = run.rewind.past
    run.steps(1)
    for _ in range(5):
        run.clock.now += 0.001
        run.session.submit(
            {"type": "set_knob", "payload": {"name": "lr", "value": 0.1}}, source="rule"
        )
        past._cost_s = 1.0  # as if copying took a second
        run.session.pump()
    assert len(past.ring) == 1
    run.ask("undo")


def test_the_first_snapshot_in_passing_waits_until_the_run_is_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(snapshots={"every": 5, "max_share": 0.01})
    past = run.rewind.past
    run.steps(1)
    monkeypatch.setattr("it2nb.pytorch.past.COPIED_PER_S", size_of_live(past.live()) / 2.0)
    run.steps(19)
    assert not past.ring
    run.steps(10)
    # Two seconds are a hundredth of 200, and a step takes 10: from the 21st on.
    assert min(each.step for each in past.ring) == 25


def test_c67_a_run_is_saved_by_itself_where_nobody_said_so(tmp_path: Path) -> None:
    def saved(folder: Path | None, **options: Any) -> list[int]:
        net = Net()
        clock = Clock()
        session = TrainingSession(directory=folder, clock=clock, resources_every_s=0, **options)
        session.bind(net, optimizers=[torch.optim.SGD(net.parameters(), lr=0.1)])
        with session.run():
            for _ in range(200):
                clock.now += 10.0
                session.step({"loss": 1.0})
        return [each["step"] for each in session.checkpoints]

    # Every ten minutes, and the last two stay.
    assert saved(tmp_path) == [120, 180]
    assert saved(tmp_path, autosave_s=300) == [150, 180]
    assert saved(tmp_path, autosave_s=None) == []
    assert saved(tmp_path, autosave_s=0) == []
    assert saved(None) == []


def test_c67_a_checkpoint_that_nobody_asked_for_leaves_the_disk_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(directory=tmp_path, autosave_s="auto")
    size = size_of_live(run.live)
    monkeypatch.setattr("it2nb.pytorch.saving.AUTOSAVE_BYTES", size)
    run.steps(100)
    assert run.session.checkpoints == []
    monkeypatch.setattr("it2nb.pytorch.saving.AUTOSAVE_BYTES", 100 * size)
    run.steps(100)
    assert [each["step"] for each in run.session.checkpoints] == [120, 180]


@pytest.mark.parametrize("wrong", [-1, "often", math.nan, math.inf, True, [600]])
def test_how_often_a_run_is_saved_has_to_be_a_number(wrong: Any) -> None:
    with pytest.raises(It2nbError, match="autosave_s"):
        TrainingSession(directory=None, autosave_s=wrong)


def test_autosave_leaves_the_last_two(tmp_path: Path) -> None:
    """C67: whatever happens to the kernel, a checkpoint is at most so many seconds old."""
    run = Run(directory=tmp_path, autosave_s=25.0)
    run.steps(30)
    folder = run.rewind.saving.folder
    listed = checkpoints.list_checkpoints(folder)
    assert [each.tag for each in listed] == ["auto", "auto"]
    old, new = (each.step for each in listed)
    assert new - old == 3, "a step takes 10 s here"
    assert 30 - new < 3
    names = [each.path.name for each in listed]
    assert [Path(each["path"]).name for each in run.session.checkpoints] == names


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


def test_a_loop_that_saves_itself_is_left_to_do_it() -> None:
    """The paper's way: bind_model for resets, ``control.save`` in the loop."""
    session = Session(directory=None)
    session.bind_model(Net())
    install(session)
    session.step({"loss": 1.0})
    handle = session.submit(Action(type="save_checkpoint", payload={"tag": "mine"}))
    control = session.step({"loss": 1.0})
    assert (control.save, control.tag) == (True, "mine")
    session.checkpoint_saved("mine.pt")
    assert handle.result(0).data["path"] == "mine.pt"
    loading = session.submit(Action(type="load_checkpoint", payload={"path": "mine.pt"}))
    assert session.step({"loss": 1.0}).load == "mine.pt"
    session.checkpoint_loaded("mine.pt")
    assert loading.result(0).ok


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
