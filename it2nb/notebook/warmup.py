"""What the first ``%%it2`` cell needs, made ready beside the cells before it."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Sequence
from types import ModuleType

from pydantic import BaseModel

from it2nb.core.actions import schema_of
from it2nb.core.faults import guard

PANEL = (
    "it2nb.notebook.panel",
    "it2nb.notebook.panel_comms",
    "it2nb.notebook.picture",
    "it2nb.core.builtin",
)
PYTORCH = (
    "it2nb.pytorch.hooks",
    "it2nb.pytorch.optimizers",
    "it2nb.pytorch.rewind",
    "it2nb.pytorch.modules",
    "it2nb.pytorch.fingerprints",
)


class WarmUp:
    """Imports the panel at once, and what knows PyTorch as soon as the user has imported it.

    Imports alone, on a thread of its own: nothing is started, and a fault leaves the first cell
    as slow as it would have been.
    """

    def __init__(self) -> None:
        self._knows_torch = False

    def begin(self) -> None:
        """Make the panel ready. Main thread."""
        _in_background(PANEL)

    def after_cell(self) -> None:
        """Look whether the cell has imported PyTorch. Main thread."""
        if not self._knows_torch and "torch" in sys.modules:
            self._knows_torch = True
            _in_background(PYTORCH)


def _in_background(names: Sequence[str]) -> None:
    threading.Thread(target=_prepare, args=(names,), name="it2nb-warm-up", daemon=True).start()


def _prepare(names: Sequence[str]) -> None:
    for name in names:
        with guard(f"import of {name} ahead of time"):
            _describe_actions(importlib.import_module(name))


def _describe_actions(module: ModuleType) -> None:
    """The panel is told the schema of every action; pydantic takes a while for each."""
    for each in vars(module).values():
        if (
            isinstance(each, type)
            and issubclass(each, BaseModel)
            and each.__name__.endswith("Args")
        ):
            schema_of(each)
