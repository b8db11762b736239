"""How long the user waits before anything happens: the import, and ``%load_ext``."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from scripts.bench.measured import Measured, middle

IMPORT = """
import sys, time
began = time.perf_counter()
import it2nb
print((time.perf_counter() - began) * 1e3)
assert not {"torch", "IPython"} & set(sys.modules)
"""
LOAD = """
import sys, time
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
began = time.perf_counter()
shell.run_line_magic("load_ext", "it2nb")
print((time.perf_counter() - began) * 1e3)
assert "torch" not in sys.modules
"""
OTHERS = {"tensorboard": "from torch.utils.tensorboard import SummaryWriter",
          "plotly.graph_objects": "import plotly.graph_objects",
          "livelossplot": "import livelossplot"}  # fmt: skip


def measure(quick: bool) -> list[Measured]:
    """Time each in fresh interpreters, ours and the others in turn."""
    repeats = 3 if quick else 11
    ours: dict[str, list[float]] = {"import": [], "load": []}
    theirs: dict[str, list[float] | str] = {}
    for _ in range(repeats):
        ours["import"] += _fresh(IMPORT)
        ours["load"] += _fresh(LOAD)
    for name, line in OTHERS.items():
        found = _fresh(f"import time\nbegan = time.perf_counter()\n{line}\n"
                       "print((time.perf_counter() - began) * 1e3)", times=3)  # fmt: skip
        theirs[name] = found or "not installed"
    beside: dict[str, float | str] = {
        name: found if isinstance(found, str) else median(found) for name, found in theirs.items()
    }
    lines = (("`import it2nb`, without torch", "import", 150.0),
             ("`%load_ext it2nb`", "load", 800.0))  # fmt: skip
    result = []
    for what, name, goal in lines:
        value, low, high = middle(ours[name])
        result.append(Measured(what, value, "ms", goal, low, high, beside))
        beside = {}
    return result


def _fresh(text: str, times: int = 1) -> list[float]:
    found = []
    for _ in range(times):
        ran = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", text],
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode:
            if "ModuleNotFoundError" in ran.stderr:
                return []
            raise RuntimeError(ran.stderr)
        found.append(float(ran.stdout.split()[-1]))
    return found
