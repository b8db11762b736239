"""What every test stands on: an empty working folder, and kernels that find this checkout."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings

from it2nb.core import lifetime

ROOT = Path(__file__).resolve().parent.parent

# Child processes (kernels, scripts) import this checkout, wherever they are started.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
# No test draws on a screen.
os.environ.setdefault("MPLBACKEND", "Agg")
# Two cores, many test processes: PyTorch's own threads only get in each other's way.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The kernel's debugger warns about frozen modules on every start.
os.environ.setdefault("PYDEVD_DISABLE_FILE_VALIDATION", "1")

# The same examples on every machine, and no deadline: slow is not wrong.
settings.register_profile(
    "it2nb",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("it2nb")


def dtypes_here(written: dict[str, str]) -> dict[str, str]:
    """Return the dtypes that are written down in `it2nb.frames`, as this pandas names them."""
    text = "str" if int(pd.__version__.partition(".")[0]) >= 3 else "object"
    return {name: text if dtype == "str" else dtype for name, dtype in written.items()}


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run each test in a folder of its own: ``it2runs/`` never lands in the checkout."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@contextmanager
def ending_runs() -> Iterator[None]:
    """End the runs that are made inside and left alive, and no other.

    Their threads would go on beside all tests after it, and `it2nb.current` is the newest run
    that lives: a test of another file would be shown them in the place of its own.
    """
    # Those of a module's fixture are there before and outlive the test.
    before = set(lifetime._living)
    yield
    for session in set(lifetime._living) - before:
        session.finish("stopped" if session.started else None, "its test ended")


@pytest.fixture(autouse=True)
def runs_end_with_their_test() -> Iterator[None]:
    """End the runs that a test leaves."""
    with ending_runs():
        yield


@pytest.fixture(scope="module")
def small_heap() -> Iterator[None]:
    """Leave what is there by now out of every collection."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
