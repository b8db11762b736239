"""A journal in a file, for every test that wants one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore

from .journals import FILE, Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(clock: Clock) -> Iterator[Journal]:
    made = Journal(FILE, MetricStore(), run="r", clock=clock)
    yield made
    made.close()
