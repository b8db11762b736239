"""Checkpoints in files: what is told of them, what the disk refuses, what is saved by itself."""

from __future__ import annotations

import errno
import hashlib
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from it2nb.core.errors import It2nbError
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.pytorch import checkpoints
from it2nb.pytorch.rewind import install
from it2nb.pytorch.snapshots import size_of_live
from it2nb.session import TrainingSession

from .rewinding import Clock, Run
from .small import Net


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
