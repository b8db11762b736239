"""The page on trainers does what it says: its code runs, in its order."""

from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

from ..conftest import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.filterwarnings("ignore")  # of the libraries; what is tested is the page
def test_code_of_the_page_runs_in_its_order(capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    with warnings.catch_warnings():
        for code in BLOCK.findall((ROOT / "docs" / "trainers.md").read_text()):
            exec(compile(code, "docs/trainers.md", "exec"), space)
    hf = space["session"].journal.requests()
    assert len(hf) >= 3
    assert list(hf["status"]) == ["applied"] * len(hf)
    assert space["out"].global_step == space["session"].step_count == 16
    assert space["fit"].global_step == 10
    assert "in force from batch 6 of this pass on; 2 batches before it were" in (
        capsys.readouterr().out
    )
