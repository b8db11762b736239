"""What a workflow needs before it may start, said up front and checked."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from it2nb.core.errors import MissingDependency, WorkflowUnavailable

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Requirements:
    """What a workflow needs at one scale.

    Attributes
    ----------
    minutes : float
        About how long one run takes: at ``ci`` and ``laptop`` on two CPU cores, at ``paper`` on
        one GPU of the size of `gpu_gib`.
    memory_gib : float
        Main memory.
    gpu_gib : float
        Memory of one CUDA device; 0 where a CPU does.
    hub : tuple of str
        Models and data sets that come from the Hugging Face hub.
    packages : tuple of str
        Modules beside PyTorch that have to be installed.
    extra : str
        The extra of it2nb that brings them.
    """

    minutes: float
    memory_gib: float = 1.0
    gpu_gib: float = 0.0
    hub: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str = "workflows"

    def __str__(self) -> str:
        place = f"a CUDA device with {self.gpu_gib:g} GiB" if self.gpu_gib else "two CPU cores"
        parts = [
            f"about {_duration(self.minutes)} on {place}",
            f"{self.memory_gib:g} GiB of memory",
            f"from the hub: {', '.join(self.hub)}" if self.hub else "no download",
        ]
        if self.packages:
            parts.append(f"packages: {', '.join(self.packages)}")
        return "; ".join(parts)

    def missing(self) -> list[str]:
        """Say what of it is not there, and what to do; empty when all is. Any thread."""
        return [*self._memory(), *self._gpu(), *self._hub()]

    def check(self, what: str) -> None:
        """Check all of it; nothing is downloaded. Any thread.

        Parameters
        ----------
        what : str
            Names the workflow in the message.

        Raises
        ------
        MissingDependency
            If a package is not installed.
        WorkflowUnavailable
            If the machine is too small or the hub is out of reach; lists everything at once.
        """
        absent = [name for name in self.packages if importlib.util.find_spec(name) is None]
        if absent:
            raise MissingDependency(
                f"{what} needs {', '.join(absent)}: pip install 'it2nb[{self.extra}]'"
            )
        missing = self.missing()
        if missing:
            raise WorkflowUnavailable(
                f"{what} can't run here: {'; '.join(missing)}. scale='laptop' runs the same code "
                f"on two CPU cores, without a download"
            )

    def _memory(self) -> Sequence[str]:
        there = psutil.virtual_memory().total / GIB
        if there >= self.memory_gib:
            return []
        return [f"it needs {self.memory_gib:g} GiB of memory, and there are {there:.1f}"]

    def _gpu(self) -> Sequence[str]:
        if not self.gpu_gib:
            return []
        there = _largest_gpu_gib()
        if there >= self.gpu_gib:
            return []
        found = f"the largest has {there:.1f} GiB" if there else "there is none"
        return [f"it needs a CUDA device with {self.gpu_gib:g} GiB, and {found}"]

    def _hub(self) -> Sequence[str]:
        return [said for name in self.hub if (said := absent_from_cache(name))]


def is_offline() -> bool:
    """Whether downloads are switched off. Any thread.

    They are unless ``IT2NB_DOWNLOAD=1`` says otherwise, and with ``HF_HUB_OFFLINE=1`` always.
    """
    allowed = os.environ.get("IT2NB_DOWNLOAD", "0") == "1"
    return not allowed or os.environ.get("HF_HUB_OFFLINE", "0") == "1"


def absent_from_cache(name: str) -> str | None:
    """Say that a model or data set is neither on the disk nor may be downloaded; else None."""
    if not is_offline() or _cached(name):
        return None
    return (
        f"{name!r} is not in the hub's cache on this machine and nothing is downloaded by itself: "
        f"set IT2NB_DOWNLOAD=1 to allow it (and unset HF_HUB_OFFLINE), or fetch it first with "
        f"`hf download {name}`"
    )


def _cached(name: str) -> bool:
    home = os.environ.get("HF_HOME", os.path.join(os.path.expanduser("~"), ".cache", "huggingface"))
    cache = os.environ.get("HF_HUB_CACHE", os.path.join(home, "hub"))
    kinds = ("models", "datasets")
    folders = [os.path.join(cache, f"{kind}--{name.replace('/', '--')}") for kind in kinds]
    return any(os.path.isdir(os.path.join(folder, "snapshots")) for folder in folders)


def _largest_gpu_gib() -> float:
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return 0.0
    devices = range(torch.cuda.device_count())
    return float(max(torch.cuda.get_device_properties(i).total_memory for i in devices)) / GIB


def _duration(minutes: float) -> str:
    if minutes < 1:
        return f"{minutes * 60:.0f} s"
    return f"{minutes:g} min" if minutes < 120 else f"{minutes / 60:g} h"
