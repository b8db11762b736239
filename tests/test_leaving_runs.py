"""What a test leaves behind: no run that lives."""

from __future__ import annotations

import it2nb
from it2nb.core.session import Session

from .conftest import ending_runs


def test_runs_that_a_test_leaves_end_with_it_and_no_other_does() -> None:
    fixture = Session(directory=None).start()
    with ending_runs():
        left = Session(directory=None).start()
        never_begun = Session(directory=None)
        assert it2nb.current() is left
    assert left.status == "stopped"
    assert never_begun.is_ended
    assert not fixture.is_ended
    assert it2nb.current() is fixture
