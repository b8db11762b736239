from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from it2nb.notebook.imports import ImportWatch


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "late_package.py").write_text("value = 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "late_package", raising=False)
    return "late_package"


def test_the_first_import_is_told_after_the_module_is_ready(package: str) -> None:
    seen: list[int] = []
    watch = ImportWatch(package, lambda: seen.append(sys.modules[package].value))
    assert seen == []
    module = importlib.import_module(package)
    importlib.import_module(package)
    assert seen == [1]
    assert watch not in sys.meta_path
    spec = module.__spec__
    assert spec is not None
    assert type(spec.loader).__name__ == "SourceFileLoader"
    assert module.__loader__ is spec.loader


def test_other_imports_and_a_closed_watch_are_left_alone(package: str) -> None:
    seen: list[int] = []
    watch = ImportWatch(package, lambda: seen.append(1))
    importlib.import_module("colorsys")
    watch.close()
    watch.close()
    importlib.import_module(package)
    assert seen == []


def test_a_missing_package_is_missing_as_ever() -> None:
    watch = ImportWatch("no_such_package_at_all", lambda: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("no_such_package_at_all")
    assert watch not in sys.meta_path
