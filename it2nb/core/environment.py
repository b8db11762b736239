"""The surroundings of a run, written down once so that it can be repeated and compared."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

#: Each question to another program waits this long, at most.
TIMEOUT_S = 2.0
GPU_COLUMNS = ("name", "memory_mib", "driver")


def environment(*, seed: int | None = None, folder: Path | None = None) -> dict[str, Any]:
    """Describe Python, packages, machine, GPUs, git state and seed.

    Parameters
    ----------
    seed : int, optional
        What the run was seeded with, passed through.
    folder : Path, optional
        Where to ask git; the working folder by default.

    Returns
    -------
    dict
        ``python, platform, packages, cpu, gpus, torch, git, seed``. ``git`` is None outside a
        repository or without git, ``torch`` while it is not imported. No host name, user name or
        path is in it: a journal is made to be shared.

    Notes
    -----
    Any thread. Never raises, never initialises CUDA, and imports nothing: what it says about
    packages and PyTorch is what is loaded. Asks git and ``nvidia-smi``, `TIMEOUT_S` each at most,
    so call it beside the training loop and not in it.
    """
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": packages(),
        "cpu": cpu(),
        "gpus": gpus(),
        "torch": torch_state(),
        "git": git_state(folder),
        "seed": seed,
    }


def packages() -> dict[str, str]:
    """Return name and version of every loaded package that has one, sorted; not the stdlib."""
    found = {}
    for name, module in sorted(sys.modules.copy().items()):  # others import meanwhile
        if "." in name or name.startswith("_") or name in sys.stdlib_module_names:
            continue
        # A lazy module's __getattr__ may import half the world: read what is there already.
        version = getattr(module, "__dict__", {}).get("__version__")
        if not isinstance(version, str):
            try:
                version = metadata.version(name)
            except (metadata.PackageNotFoundError, ValueError, OSError):
                continue
        found[name] = version
    return found


def cpu() -> dict[str, Any]:
    """Return the processor's name and the cores that this process may use."""
    usable = getattr(os, "sched_getaffinity", None)
    return {
        "model": _cpu_model(),
        "cores": len(usable(0)) if usable else os.cpu_count(),
        "machine": platform.machine(),
    }


def gpus() -> list[dict[str, Any]]:
    """Return name, memory and driver of each NVIDIA GPU, as ``nvidia-smi`` tells them."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total,driver_version"]
    text = _ask([*query, "--format=csv,noheader,nounits"])
    rows = [line.split(", ") for line in (text or "").splitlines()]
    return [dict(zip(GPU_COLUMNS, row, strict=True)) for row in rows if len(row) == 3]


def torch_state() -> dict[str, Any] | None:
    """Return the settings of an imported PyTorch that change what a run computes."""
    torch = sys.modules.get("torch")
    version = getattr(torch, "version", None)
    if torch is None or version is None:  # absent, or half imported by another thread
        return None
    return {
        "cuda": version.cuda,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "default_dtype": str(torch.get_default_dtype()),
    }


def git_state(folder: Path | None = None) -> dict[str, Any] | None:
    """Return commit, branch and whether a tracked file differs from it; None without git."""
    where = ["git", "-C", str(folder or Path.cwd())]
    commit = _ask([*where, "rev-parse", "HEAD"])
    if commit is None:
        return None
    changes = _ask([*where, "status", "--porcelain", "--untracked-files=no"])
    return {
        "commit": commit,
        "branch": _ask([*where, "branch", "--show-current"]) or None,
        "dirty": None if changes is None else bool(changes),
    }


def _ask(command: list[str]) -> str | None:
    """Return what a program prints; None when it is missing, fails or takes too long."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            # git status would otherwise take the index's lock and disturb the user's own git.
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace").strip() if done.returncode == 0 else None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
