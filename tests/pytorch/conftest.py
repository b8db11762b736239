"""What every test of a training stands on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from it2nb.core import lifetime


@pytest.fixture(autouse=True)
def runs_end_with_their_test() -> Iterator[None]:
    """End the runs that a test leaves: their threads would go on beside all tests after it."""
    yield
    lifetime.end_all()
