"""What a step costs: `pump` when nobody asks, `step` with four floats, and what others take."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from it2nb.core.session import Session
from scripts.bench.measured import Measured, middle, side_by_side

ROOT = Path(__file__).resolve().parents[2]
TRACKIO = """
import json, sys, time
from statistics import median
import trackio
row, calls = json.loads(sys.argv[1]), int(sys.argv[2])
trackio.init(project="bench")
times = []
for _ in range(calls):
    began = time.perf_counter()
    trackio.log(row)
    times.append(time.perf_counter() - began)
print(median(times) * 1e6, flush=True)
import os
os._exit(0)
"""
ROW = {"loss": 0.5, "acc": 0.25, "lr": 1e-3, "norm": 2.0}


def measure(quick: bool) -> list[Measured]:
    """Time them in turn; a step of four floats beside everybody else's way to keep them."""
    rounds = 5 if quick else 25
    session = Session(directory=tempfile.mkdtemp(), title="bench")
    session.step(ROW)
    kept: list[dict[str, float]] = []
    row = side_by_side(
        {
            "pump": lambda i: session.pump(),
            "step": lambda i: session.step(ROW),
            "dict append": lambda i: kept.append(dict(ROW)),
        },
        20_000,
        rounds,
    )
    session.finish()
    found = {name: [each * 1e6 for each in values] for name, values in row.items()}
    others: dict[str, float | str] = {"dict append": middle(found["dict append"])[0]}
    calls = 200 if quick else 1_000
    others["TensorBoard add_scalar x4"] = _timed(_tensorboard, calls, rounds)
    others["trackio.log"] = _trackio(calls)
    return [
        _line("`pump()`, nobody asks", found["pump"], 0.3, {}),
        _line("`step()` with four floats recorded", found["step"], 1.5, others),
    ]


def _line(what: str, values: list[float], goal: float, beside: dict[str, float | str]) -> Measured:
    value, low, high = middle(values)
    return Measured(what, value, "us", goal, low, high, beside)


def _timed(make: Callable[[], Callable[[int], Any]], calls: int, rounds: int) -> float | str:
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            call = make()
            times = side_by_side({"it": call}, calls, min(rounds, 9))["it"]
    except ImportError as err:
        return f"not installed ({err.name})"
    return middle([each * 1e6 for each in times])[0]


def _module(name: str) -> Any:
    """Import what only the bench needs, and what need not be installed."""
    return importlib.import_module(name)


def _tensorboard() -> Callable[[int], Any]:
    writer = _module("torch.utils.tensorboard").SummaryWriter(tempfile.mkdtemp())

    def log(index: int) -> None:
        for name, value in ROW.items():
            writer.add_scalar(name, value, index)

    return log


def _trackio(calls: int) -> float | str:
    """In an environment of its own: it wants another huggingface_hub than transformers 5."""
    python = ROOT / ".cache" / "trackio" / "bin" / "python"
    if not python.exists():
        return "not installed"
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [str(python), "-W", "ignore", "-c", TRACKIO, json.dumps(ROW), str(calls)], cwd=folder,
            env={**os.environ, "TRACKIO_DIR": folder, "HF_HUB_OFFLINE": "1"},
            check=False, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    if ran.returncode:
        return f"did not run: {ran.stderr.strip().splitlines()[-1]:.80}"
    return float(ran.stdout.split()[-1])
