"""Recorded runs of the workflows that come with the package, and the hashes they had."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from it2nb.core.errors import It2nbError, JournalDamaged, near

#: One exported run a file, and ``manifest.json``: SHA-256 of each file, head hash of its journal.
FOLDER = Path(__file__).resolve().parent.parent / "assets" / "runs"


def hashes() -> dict[str, dict[str, Any]]:
    """Return the manifest: by name ``sha256``, ``anchor``, ``notebook`` and ``scale``."""
    found: dict[str, dict[str, Any]] = json.loads((FOLDER / "manifest.json").read_text())
    return found


def path_of(name: str) -> Path:
    """Return the file of a recorded run, for `it2nb.open`.

    Parameters
    ----------
    name : str
        A workflow's, ``"layerwise"``, or that of its rounds, ``"layerwise-rounds"``.

    Raises
    ------
    It2nbError
        If no run of that name was recorded.
    JournalDamaged
        If the file is not the one in the manifest.
    """
    known = hashes()
    if name not in known:
        raise It2nbError(f"no run {name!r} was recorded{near(name, known)}")
    path = FOLDER / f"{name}.zip"
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != known[name]["sha256"]:
        raise JournalDamaged(
            f"{path.name} is not what was recorded: its SHA-256 is {found}, in the manifest "
            f"stands {known[name]['sha256']}"
        )
    return path
