"""The build hook: the wheel brings the panel, or says why it can't."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hatch_build import FILES, SERVED
from tests.conftest import ROOT

TREE = ("it2nb", "js", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout as it comes: nothing built, nothing installed by npm."""
    copy = tmp_path / "checkout"
    copy.mkdir()
    left_out = shutil.ignore_patterns("node_modules", "static", "__pycache__")
    for name in TREE:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, copy / name, ignore=left_out)
        elif source.exists():
            shutil.copy(source, copy / name)
    return copy


def build(tree: Path, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"]
    clean = {key: value for key, value in os.environ.items() if key != "IT2NB_SKIP_JS"}
    return subprocess.run(command, cwd=tree, env=clean | env, capture_output=True, text=True)


def names_in_wheel(tree: Path) -> list[str]:
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return packed.namelist()


def test_without_npm_the_build_says_what_is_missing_and_how_to_go_on(tree: Path) -> None:
    nowhere = tree / "no-programs"
    nowhere.mkdir()
    done = build(tree, PATH=str(nowhere))
    assert done.returncode != 0
    assert "install Node.js 20 or newer" in done.stderr and "IT2NB_SKIP_JS=1" in done.stderr


def test_the_panel_can_be_left_out(tree: Path) -> None:
    done = build(tree, IT2NB_SKIP_JS="1", PATH=str(tree))
    assert done.returncode == 0, done.stderr
    names = names_in_wheel(tree)
    assert "it2nb/notebook/panel.py" in names
    assert not [name for name in names if name.endswith((".mjs", "loader.js"))]


def test_what_was_built_is_in_the_package_and_where_a_server_serves_it(tree: Path) -> None:
    static = tree / "it2nb" / "notebook" / "static"
    static.mkdir()
    for name in FILES:
        (static / name).write_text("// built")
    # Newer than their sources: npm isn't needed.
    done = build(tree, PATH=str(tree))
    assert done.returncode == 0, done.stderr
    names = names_in_wheel(tree)
    for name in FILES:
        assert f"it2nb/notebook/static/{name}" in names
    served = [name for name in names if "share/jupyter/labextensions/it2nb/static/" in name]
    assert sorted(Path(name).name for name in served) == sorted(SERVED)
    (described,) = (
        n for n in names if n.endswith("share/jupyter/labextensions/it2nb/package.json")
    )
    assert described


def test_nothing_that_is_shipped_names_a_registry_or_a_local_server() -> None:
    # C60
    lock = (ROOT / "js" / "package-lock.json").read_text(encoding="utf-8")
    assert '"resolved"' not in lock and "registry" not in lock
    for source in sorted((ROOT / "js" / "src").glob("*.ts")):
        text = source.read_text(encoding="utf-8")
        assert "localhost" not in text and "http://" not in text and "https://" not in text, source
