"""Kernels, shared by the tests of a module: starting one takes a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

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
