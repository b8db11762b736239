"""Open JupyterLab on a notebook, with the interpreter that runs this."""

from __future__ import annotations

import os
import sys


def command(notebook: str, options: list[str]) -> list[str]:
    """Return the command line of JupyterLab."""
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", notebook, *as_root, *options]


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python scripts/lab.py NOTEBOOK [options of jupyter lab]")
    line = command(sys.argv[1], sys.argv[2:])
    os.execv(line[0], line)
