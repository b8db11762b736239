"""Kernels, shared by the tests of a module: starting one takes a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from it2nb.core import lifetime
from it2nb.notebook import magics

from .kernels import VERSIONS, Kernel


@pytest.fixture(scope="module", params=VERSIONS)
def any_kernel(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kernel]:
    """A kernel of each supported ipykernel, with the extension loaded."""
    yield from _kernel(request.param, tmp_path_factory.mktemp("kernel"))


@pytest.fixture(scope="module")
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kernel]:
    """A kernel of this environment's ipykernel, with the extension loaded."""
    yield from _kernel("installed", tmp_path_factory.mktemp("kernel"))


def _kernel(version: str, folder: Path) -> Iterator[Kernel]:
    made = Kernel(version, folder)
    try:
        made.run("%load_ext it2nb\nimport it2nb")
        yield made
    finally:
        made.close()


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """An IPython shell in this process, with the magics and without a history on disk."""
    config = Config()
    config.HistoryManager.enabled = False
    # A shell makes its namespace the module __main__.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    made: Any = InteractiveShell(config=config)
    magics.load(made)
    yield made
    for session in lifetime.runs():
        session.end()
    magics.unload(made)


@pytest.fixture
def run_cell(shell: Any) -> Callable[[str], Any]:
    """Run a cell; raises what it raised."""

    def run(source: str) -> Any:
        result = shell.run_cell(source)
        result.raise_error()
        return result.result

    return run
