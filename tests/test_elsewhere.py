"""What runs elsewhere, on GitHub and on Binder, says the same as what runs here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib

import pytest
import yaml

from scripts.binder import QUICKSTART, BinderServer

from .conftest import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = {
    found[1]
    for each in PROJECT["classifiers"]
    if (found := re.search(r"Python :: (3\.\d+)$", each)) is not None
}
JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
POST_BUILD = (ROOT / "binder" / "postBuild").read_text()


def test_every_python_that_is_promised_is_tried_with_the_newest_and_one_with_the_lowest() -> None:
    matrix = JOBS["versions"]["strategy"]["matrix"]
    assert set(matrix["python"]) == PYTHONS
    assert {each["versions"] for each in matrix["include"]} == {"lowest"}
    assert {each["python"] for each in matrix["include"]} == {min(PYTHONS)}


def test_the_wheel_is_tried_without_extras_on_the_oldest_and_the_newest_python() -> None:
    assert set(JOBS["bare"]["strategy"]["matrix"]["python"]) == {
        min(PYTHONS), max(PYTHONS, key=lambda version: int(version[2:]))
    }  # fmt: skip
    assert any("scripts/bare.py" in step.get("run", "") for step in JOBS["bare"]["steps"])


@pytest.mark.parametrize("extras", [("torch", "lab"), ("server",)])
def test_every_lower_bound_is_one_version(extras: tuple[str, ...]) -> None:
    line = [sys.executable, "scripts/requirements.py", "--lowest", *extras]
    told = subprocess.run(line, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    assert all(re.fullmatch(r"[\w.\[\],-]+==[\d.]+", each) for each in told.split())


def test_binder_takes_the_torch_of_the_makefile_and_a_python_that_is_promised() -> None:
    wanted = re.search(r"^TORCH := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert wanted is not None and f" {wanted[1]}\n" in POST_BUILD
    assert (ROOT / "binder" / "runtime.txt").read_text().strip() in {f"python-{p}" for p in PYTHONS}
    assert "download.pytorch.org/whl/cpu" in POST_BUILD and "--constraint" in POST_BUILD


def test_binder_names_extras_that_exist_and_its_scripts_can_be_run() -> None:
    named = re.search(r"requirements\.py (.+?) >", POST_BUILD)
    assert named is not None
    assert set(named[1].split()) <= set(PROJECT["optional-dependencies"])
    for script in ("postBuild", "start"):
        assert os.access(ROOT / "binder" / script, os.X_OK), script


def test_binder_starts_what_it_is_given_with_a_bounded_number_of_threads() -> None:
    asked = [str(ROOT / "binder" / "start"), "bash", "-c", "echo $OMP_NUM_THREADS"]
    env = {name: each for name, each in os.environ.items() if name != "OMP_NUM_THREADS"}
    told = subprocess.run(asked, env=env, check=True, capture_output=True, text=True).stdout
    assert told.strip() == "2"


def test_the_badge_opens_the_notebook_that_is_checked() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"urlpath=lab/tree/{QUICKSTART})" in readme
    assert (ROOT / QUICKSTART).exists()


def test_the_check_of_binder_uses_its_start_command() -> None:
    server = BinderServer(ROOT / "unused", ROOT, ROOT / "env")
    assert server.command()[0] == str(ROOT / "binder" / "start")
