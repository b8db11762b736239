"""Open JupyterLab on a notebook, with the interpreter that runs this."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def command(notebook: str, options: list[str]) -> list[str]:
    """Return the command line of JupyterLab."""
    as_root = ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    return [sys.executable, "-m", "jupyterlab", notebook, *as_root, *options]


def trust(folder: Path) -> None:
    """Sign the notebooks of a folder, as ``jupyter trust`` does.

    Ours come with outputs. Unsigned, JupyterLab would show no widget in them after a reload of the
    page, and so no panel of a run that goes on, until each of their cells was run.
    """
    import nbformat
    from nbformat.sign import NotebookNotary

    notary = NotebookNotary()
    for path in sorted(folder.glob("*.ipynb")):
        notary.sign(nbformat.read(path, as_version=4))
    notary.store.close()


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python scripts/lab.py NOTEBOOK [options of jupyter lab]")
    trust(Path(sys.argv[1]).parent)
    line = command(sys.argv[1], sys.argv[2:])
    os.execv(line[0], line)
