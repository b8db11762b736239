"""Hugging Face's Trainer and TRL's on transformers 4: the same tests, with older releases."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ..overlay import overlay

HERE = Path(__file__).parent
#: The oldest TRL that `it2nb[trl]` takes, and what fits to transformers 4: it needs a
#: huggingface_hub before 1, which newer datasets do not take.
RELEASES = (
    "transformers==4.57.6", "huggingface_hub==0.36.2", "tokenizers==0.22.2", "trl==1.0.0",
    "datasets==4.7.0",
)  # fmt: skip
NAMES = ("test_hf.py", "test_hf_checkpoints.py", "test_trl.py")
RUN = """
import sys, pytest, transformers, trl
assert (transformers.__version__, trl.__version__) == ("4.57.6", "1.0.0")
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *sys.argv[1:]]))
"""


@pytest.mark.timeout(900)
def test_trainers_are_steered_on_transformers_4_too() -> None:
    path = os.pathsep.join([str(overlay("transformers", *RELEASES)), os.environ["PYTHONPATH"]])
    ran = subprocess.run(
        [sys.executable, "-c", RUN, *(str(HERE / name) for name in NAMES)],
        env={**os.environ, "PYTHONPATH": path}, cwd=HERE.parents[1], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
