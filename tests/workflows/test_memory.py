"""Main memory: what a run takes in a process of its own, and what stands in the docs."""

from __future__ import annotations

import json

import pytest

from it2nb.workflows.requirements import GIB
from scripts import workflow_memory
from scripts.workflow_seeds import COMPARED


@pytest.mark.parametrize("name", ["mixing"])
def test_a_run_stays_below_8_gb(name: str) -> None:
    found = workflow_memory.measure(name, "ci", 4)
    assert 50e6 < found["half"] <= found["peak"] < workflow_memory.LIMIT


def test_what_was_measured_at_laptop_scale_is_within_what_is_said_up_front() -> None:
    told = json.loads(workflow_memory.FILE.read_text())
    assert set(told) == set(COMPARED)
    for name, each in told.items():
        assert each["scale"] == "laptop"
        assert each["peak"] < workflow_memory.LIMIT
        assert each["peak"] < COMPARED[name][0]("laptop").requirements().memory_gib * GIB
