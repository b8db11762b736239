from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from it2nb.core import environment as module
from it2nb.core.environment import cpu, environment, git_state, gpus, packages, torch_state


def git(folder: Path, *args: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=trunk"]
    command = ["git", "-C", str(folder), *who, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("lr = 1")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_git_state_is_that_of_the_folder(repository: Path) -> None:
    state = {"commit": git(repository, "rev-parse", "HEAD"), "branch": "trunk", "dirty": False}
    assert git_state(repository) == state
    assert environment(seed=7)["git"] == state  # the working folder is the default
    (repository / "new.txt").write_text("not tracked")
    assert git_state(repository) == state
    (repository / "train.py").write_text("lr = 2")
    assert git_state(repository) == state | {"dirty": True}


def test_git_state_is_none_outside_a_repository_and_without_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert git_state(tmp_path) is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_state(tmp_path) is None


def script(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)


def test_gpus_are_read_from_the_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "nvidia-smi", "echo 'NVIDIA H200, 143771, 570.1'; echo '[N/A]'")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert gpus() == [{"name": "NVIDIA H200", "memory_mib": "143771", "driver": "570.1"}]
    script(tmp_path, "nvidia-smi", "echo 'no driver'; exit 9")
    assert gpus() == []


def test_a_program_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "nvidia-smi", "exec sleep 60")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(module, "TIMEOUT_S", 0.2)
    assert gpus() == []


def test_packages_are_those_loaded_with_their_versions() -> None:
    found = packages()
    assert found["numpy"] == numpy.__version__
    assert found["pytest"] == pytest.__version__
    assert "json" not in found
    assert list(found) == sorted(found)


def test_environment_says_everything_in_json_and_names_nobody() -> None:
    said = environment(seed=7)
    assert set(said) == {"python", "platform", "packages", "cpu", "gpus", "torch", "git", "seed"}
    assert said["seed"] == 7
    assert cpu()["cores"] >= 1
    assert str(Path.home()) not in json.dumps(said)


def test_environment_imports_nothing_and_knows_a_loaded_torch() -> None:
    code = (
        "import sys; from it2nb.core.environment import environment as e;"
        "before = e()['torch']; assert 'torch' not in sys.modules;"
        "import torch; torch.set_num_threads(1); after = e();"
        "assert before is None; assert after['torch']['threads'] == 1, after;"
        "assert after['torch']['default_dtype'] == 'torch.float32';"
        "assert after['packages']['torch'] == torch.__version__;"
        "assert not torch.cuda.is_initialized()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_half_imported_torch_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", type(sys)("torch"))
    assert torch_state() is None
