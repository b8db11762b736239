"""Folders with other releases of packages, to be put before everything in a process's path."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from .conftest import ROOT


def pip_install(folder: Path, *requirements: str) -> None:
    """Install packages without their dependencies into ``folder``."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--no-deps", "--target", str(folder), *requirements], check=True)


def overlay(kind: str, *requirements: str) -> Path:
    """Return a folder that holds these releases, kept between runs."""
    folder = ROOT / ".cache" / kind / "+".join(requirements)
    if not folder.exists():
        half = folder.with_name(f"{folder.name}.{os.getpid()}")
        pip_install(half, *requirements)
        try:
            half.rename(folder)
        except OSError:  # another worker was quicker
            shutil.rmtree(half)
    return folder
