"""Checkpoint files: whole or not there, plain, hashed."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from it2nb.core.errors import Rejected
from it2nb.pytorch import checkpoints
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.state import Live, capture, check, restore

from .small import digest, same, small_run


def saved(path: Path, live: Live, **options: Any) -> checkpoints.CheckpointInfo:
    return checkpoints.save_live(path, live, meta={"step": 5}, **options)


def whole(live: Live) -> dict:
    return capture(live, Reducer(portable=False, clone=True))


def test_save_tells_the_hash_and_size_of_a_file_that_loads_without_code(tmp_path: Path) -> None:
    live, step = small_run()
    step()
    info = checkpoints.save(
        tmp_path / "deep" / "step-000001.pt",
        models=live.models["net"],
        optimizers=list(live.optimizers.values()),
        schedulers=live.schedulers,
        meta={"step": 1, "knobs": {"lr": 0.01}},
    )
    content = info.path.read_bytes()
    assert info.sha256 == hashlib.sha256(content).hexdigest()
    assert info.size_bytes == len(content)
    assert info.step == 1
    loaded = torch.load(info.path, weights_only=True)
    assert loaded["meta"]["knobs"] == {"lr": 0.01}
    assert torch.equal(
        loaded["models"]["model"]["state"]["first.weight"],
        live.models["net"].state_dict()["first.weight"],
    )
    assert loaded["optimizers"]["optimizer"]["param_groups"][0]["lr"] < 0.01
    assert loaded["schedulers"]["sched0"]["last_epoch"] == 1


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon", "tensor-lr"])
@pytest.mark.parametrize("schedule", ["none", "onecycle", "lambda", "restarts"])
def test_a_fresh_process_goes_on_to_the_bit(optimizer: str, schedule: str, tmp_path: Path) -> None:
    live, step = small_run(optimizer, schedule)
    for _ in range(5):
        step()
    info = saved(tmp_path / "step-000005.pt", live)
    straight = [step() for _ in range(10)]
    end = whole(live)
    fresh, step = small_run(optimizer, schedule)
    for _ in range(2):
        step()
    content = checkpoints.read(info.path)
    check(fresh, content)
    assert restore(fresh, content, clone=False) == []
    assert [step() for _ in range(10)] == straight
    assert same(whole(fresh), end)


def test_saving_leaves_training_as_it_was(tmp_path: Path) -> None:
    live, _ = small_run()
    before = whole(live)
    saved(tmp_path / "step-000000.pt", live)
    assert same(whole(live), before)


def test_user_data_goes_along(tmp_path: Path) -> None:
    live, _ = small_run()
    info = saved(tmp_path / "step-000005.pt", live, extra={"best": 0.5, "history": [1, 2]})
    assert checkpoints.read(info.path)["extra"] == {"best": 0.5, "history": [1, 2]}
    with pytest.raises(Rejected, match="what on_save returned is a "):
        saved(tmp_path / "step-000006.pt", live, extra=object())
    assert [each.path.name for each in checkpoints.list_checkpoints(tmp_path)] == ["step-000005.pt"]


def test_nothing_to_save_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"session\.bind\(model="):
        checkpoints.save(tmp_path / "x.pt")
    assert list(tmp_path.iterdir()) == []


def test_names_tell_step_branch_round_and_tag(tmp_path: Path) -> None:
    live, _ = small_run()
    for about in (
        {"step": 3},
        {"step": 3, "branch_id": 2, "round": 1, "tag": "best-1"},
        {"step": 1_234_567, "tag": "x"},
    ):
        name = checkpoints.file_name(**about)
        checkpoints.save_live(tmp_path / name, live, meta=about)
    listed = checkpoints.list_checkpoints(tmp_path)
    assert [each.path.name for each in listed] == [
        "step-000003.pt",
        "round-1-branch-2-step-000003-best-1.pt",
        "step-1234567-x.pt",
    ]
    assert [(i.step, i.branch_id, i.round, i.tag) for i in listed] == [
        (3, 0, 0, None),
        (3, 2, 1, "best-1"),
        (1_234_567, 0, 0, "x"),
    ]
    for tag in ("../../etc", "a/b", "", ".hidden", "x" * 65):
        with pytest.raises(Rejected, match="can't be part of a file name"):
            checkpoints.file_name(1, tag=tag)


def test_same_step_can_be_saved_again(tmp_path: Path) -> None:
    live, step = small_run()
    first = saved(tmp_path / "step-000005.pt", live)
    step()
    second = saved(tmp_path / "step-000005.pt", live)
    assert first.sha256 != second.sha256
    assert hashlib.sha256(first.path.read_bytes()).hexdigest() == second.sha256


class FullDisk:
    """Refuses writes after `room` bytes, as a full disk does."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        inner = checkpoints._Hashed.write

        def write(hashed: Any, data: Any) -> int:
            fits = memoryview(data).cast("B")[: max(0, self.room - hashed.size_bytes)]
            if len(fits) == len(memoryview(data).cast("B")):
                return inner(hashed, data)
            hashed._file.write(fits)
            hashed.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            raise hashed.error

        monkeypatch.setattr(checkpoints._Hashed, "write", write)


@pytest.mark.parametrize("tenth", range(10))
def test_full_disk_at_any_offset_leaves_the_old_ones(
    tenth: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C65: the half one is not listed, the old one loads, the step can be saved again."""
    live, step = small_run()
    old = saved(tmp_path / "step-000001.pt", live)
    kept = old.path.read_bytes()
    step()
    with monkeypatch.context() as patch:
        FullDisk(patch, room=old.size_bytes * tenth // 10 + (tenth == 9) * old.size_bytes // 11)
        for name in ("step-000001.pt", "step-000002.pt"):
            with pytest.raises(OSError, match="No space left") as caught:
                saved(tmp_path / name, live)
            assert caught.value.errno == errno.ENOSPC
    assert [each.name for each in tmp_path.iterdir()] == ["step-000001.pt"]
    assert old.path.read_bytes() == kept
    step()
    again = saved(tmp_path / "step-000002.pt", live)
    assert [each.path for each in checkpoints.list_checkpoints(tmp_path)] == [old.path, again.path]
    checkpoints.read(again.path)


def test_a_real_full_disk_is_reported_as_such(tmp_path: Path) -> None:
    """The kernel's own ENOSPC, where it has a device for it."""
    full = Path("/dev/full")
    with open(full, "wb", buffering=0) as file:
        hashed = checkpoints._Hashed(file)
        with pytest.raises(OSError, match="No space left"):
            hashed.write(b"x" * 100)
    assert hashed.size_bytes == 0


KILLED_WHILE_SAVING = """
import os, signal, sys
from it2nb.pytorch import checkpoints
from tests.pytorch.small import small_run
live, step = small_run()
step()
inner, room = checkpoints._Hashed.write, int(sys.argv[2])
def write(self, data):
    if self.size_bytes + len(memoryview(data).cast("B")) > room:
        self._file.write(memoryview(data).cast("B")[: room - self.size_bytes])
        os.kill(os.getpid(), signal.SIGKILL)
    return inner(self, data)
checkpoints._Hashed.write = write
checkpoints.save_live(sys.argv[1], live, meta={"step": 2})
"""


def test_what_a_kill_left_half_written_is_not_listed_and_swept(tmp_path: Path) -> None:
    """C65, with the signal at an offset; the kill tests do it at random moments."""
    live, _ = small_run()
    old = saved(tmp_path / "step-000001.pt", live)
    child = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_SAVING, tmp_path / "step-000002.pt", "5000"],
        check=False,
    )
    assert child.returncode == -9
    left = [each.name for each in tmp_path.iterdir() if each.name.endswith(".part")]
    assert len(left) == 1
    assert [each.path for each in checkpoints.list_checkpoints(tmp_path)] == [old.path]
    checkpoints.read(old.path)
    saved(tmp_path / "step-000002.pt", live)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["step-000001.pt", "step-000002.pt"]


def test_an_unfinished_file_of_a_living_process_is_left_alone(tmp_path: Path) -> None:
    part = tmp_path / f".step-000001.pt.{os.getppid()}-0.part"
    part.write_bytes(b"half")
    assert checkpoints.sweep(tmp_path) == []
    assert part.exists()


def test_a_file_that_was_cut_is_not_listed_and_not_loaded(tmp_path: Path) -> None:
    live, _ = small_run()
    info = saved(tmp_path / "step-000005.pt", live)
    content = info.path.read_bytes()
    for size in (0, 1, 100, len(content) // 2, len(content) - 1):
        info.path.write_bytes(content[:size])
        assert checkpoints.list_checkpoints(tmp_path) == []
        with pytest.raises(Rejected, match="no whole checkpoint"):
            checkpoints.read(info.path)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    live, _ = small_run()
    info = saved(tmp_path / "step-000005.pt", live)
    content = bytearray(info.path.read_bytes())
    with zipfile.ZipFile(info.path) as file:
        name = next(each for each in file.namelist() if each.endswith("data.pkl"))
        start = content.index(file.read(name))
    content[start : start + 40] = b"\xff" * 40
    info.path.write_bytes(content)
    with pytest.raises(Rejected, match=r"is damaged|can't be read|was not loaded"):
        checkpoints.read(info.path)


@pytest.mark.parametrize("checksums", [True, False])
def test_a_weight_in_which_one_bit_changed_is_refused(tmp_path: Path, checksums: bool) -> None:
    live, _ = small_run()
    kept = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(checksums)
    try:
        info = saved(tmp_path / "step-000005.pt", live)
        assert torch.serialization.get_crc32_options() == checksums
    finally:
        torch.serialization.set_crc32_options(kept)
    checkpoints.read(info.path)
    content = bytearray(info.path.read_bytes())
    with zipfile.ZipFile(info.path) as file:
        weight = next(each for each in file.namelist() if "/data/" in each)
        at = content.index(file.read(weight))
    content[at + 3] ^= 0x40
    info.path.write_bytes(content)
    with pytest.raises(Rejected, match="is damaged"):
        checkpoints.read(info.path)


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("kind", ["zip", "legacy", "pickle", "inside"])
def test_a_strangers_pickle_is_refused_and_not_run(kind: str, tmp_path: Path) -> None:
    """C64."""
    canary, path = tmp_path / "canary", tmp_path / "step-000009.pt"
    evil: Any = {"format": checkpoints.FORMAT, "version": 1, "models": Canary(canary)}
    if kind == "pickle":
        path.write_bytes(pickle.dumps(evil))
    elif kind == "inside":
        live, _ = small_run()
        tree = {**torch.load(saved(path, live).path, weights_only=True), "extra": Canary(canary)}
        torch.save(tree, path)
    else:
        torch.save(evil, path, _use_new_zipfile_serialization=kind == "zip")
    with pytest.raises(Rejected) as refused:
        checkpoints.read(checkpoints.find(path))
    assert not canary.exists()
    assert str(path) in refused.value.reason
    if kind in ("zip", "inside"):
        assert "nothing in it was run" in refused.value.reason
        assert "posix.mkdir" in refused.value.reason


def test_environment_can_not_switch_code_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save({"format": checkpoints.FORMAT, "x": Canary(tmp_path / "c")}, tmp_path / "a.pt")
    with pytest.raises(Rejected):
        checkpoints.read(tmp_path / "a.pt")
    assert not (tmp_path / "c").exists()


def test_other_files_are_told_apart(tmp_path: Path) -> None:
    torch.save(nn.Linear(1, 1).state_dict(), tmp_path / "weights.pt")
    with pytest.raises(Rejected, match=r"is no checkpoint of it2nb; load it yourself"):
        checkpoints.read(tmp_path / "weights.pt")
    torch.save({"format": checkpoints.FORMAT, "version": 99}, tmp_path / "new.pt")
    with pytest.raises(Rejected, match="format version 99; this it2nb reads 1"):
        checkpoints.read(tmp_path / "new.pt")
    with pytest.raises(Rejected, match="there is no checkpoint"):
        checkpoints.read(tmp_path / "none.pt")


def test_find_takes_a_path_a_folder_or_a_name(tmp_path: Path) -> None:
    live, _ = small_run()
    folder = tmp_path / "run" / "checkpoints"
    first = saved(folder / "step-000001.pt", live)
    last = saved(folder / "step-000002.pt", live)
    assert checkpoints.find(first.path) == first.path
    assert checkpoints.find(folder) == checkpoints.find(folder.parent) == last.path
    assert checkpoints.find("step-000001.pt", [folder]) == first.path
    with pytest.raises(Rejected, match="no whole checkpoint in"):
        checkpoints.find(tmp_path)
    tagged = saved(folder / "step-000003-good.pt", live)
    assert checkpoints.find("good", [folder]) == tagged.path
    with pytest.raises(Rejected, match=r"no checkpoint 'nothing'; there are step-000003-good\.pt"):
        checkpoints.find("nothing", [folder])


@pytest.mark.parametrize("odd", ["~nosuchuser/x.pt", "a" * 300, "\0"])
def test_a_name_that_no_disk_takes_is_rejected(odd: str, tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="checkpoint"):
        checkpoints.find(odd, [tmp_path])


def test_a_write_that_takes_parts_loses_nothing() -> None:
    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(bytes(data[:7]))

    file = Slow()
    hashed = checkpoints._Hashed(file)
    assert hashed.write(b"0123456789" * 3) == 30
    assert file.getvalue() == b"0123456789" * 3
    assert hashed.sha256.hexdigest() == hashlib.sha256(b"0123456789" * 3).hexdigest()


def test_the_digest_of_the_tests_sees_one_bit() -> None:
    assert digest([torch.tensor([0.0])]) != digest([torch.tensor([-0.0])])
