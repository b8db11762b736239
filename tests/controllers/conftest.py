"""A run for every test of a controller."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .contract import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()
