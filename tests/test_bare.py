"""The package without extras: a script, no notebook, no PyTorch."""

from __future__ import annotations

import subprocess
import sys

from .conftest import ROOT


def test_a_script_is_steered_without_torch_and_without_a_notebook() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", ROOT / "scripts" / "bare.py"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    said = "; set_knob applied; set_knob clamped; set_knob rejected; stop applied"
    assert done.stdout.strip().endswith(said), done.stdout
