"""What a workflow needs before it may start, said up front and checked."""

from __future__ import annotations

import importlib.util
import os
import socket
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import psutil

from it2nb.core.errors import MissingDependency, WorkflowUnavailable

GIB = 2**30
#: How long the hub may take to answer at all.
REACH_S = 5.0


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
        Models that come from the Hugging Face hub.
    data : tuple of str
        Data sets that come from there.
    packages : tuple of str
        Modules beside PyTorch that have to be installed.
    extra : str
        The extra of it2nb that brings them.
    """

    minutes: float
    memory_gib: float = 1.0
    gpu_gib: float = 0.0
    hub: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str = "workflows"

    def __str__(self) -> str:
        place = f"a CUDA device with {self.gpu_gib:g} GiB" if self.gpu_gib else "two CPU cores"
        wanted = (*self.hub, *self.data)
        parts = [
            f"about {_duration(self.minutes)} on {place}",
            f"{self.memory_gib:g} GiB of memory",
            f"from the hub: {', '.join(wanted)}" if wanted else "no download",
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
            If the machine is too small or the hub is out of reach.
            Both list everything at once.
        """
        absent = [name for name in self.packages if importlib.util.find_spec(name) is None]
        missing = self.missing()
        if absent:
            also = f". Beside that {'; '.join(missing)}" if missing else ""
            raise MissingDependency(
                f"{what} needs {', '.join(absent)}: pip install 'it2nb[{self.extra}]'{also}"
            )
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
        models = [name for name in self.hub if not _cached(name)]
        data = [name for name in self.data if not _cached(name)]
        if not models and not data:
            return []
        if not is_offline():
            return _out_of_reach()
        several = ", ".join(repr(name) for name in (*models, *data))
        return [f"{several} {_remedy(models, 'is' if len(models + data) == 1 else 'are')}"]


def is_offline() -> bool:
    """Whether downloads are switched off. Any thread.

    They are unless ``IT2NB_DOWNLOAD=1`` says otherwise, and with ``HF_HUB_OFFLINE=1`` always.
    """
    allowed = os.environ.get("IT2NB_DOWNLOAD", "0") == "1"
    return not allowed or os.environ.get("HF_HUB_OFFLINE", "0") == "1"


def absent_from_cache(name: str, *, model: bool = True) -> str | None:
    """Say that a model or data set is neither on the disk nor may be downloaded; else None."""
    if not is_offline() or _cached(name):
        return None
    return f"{name!r} {_remedy([name] if model else [])}"


@contextmanager
def as_allowed() -> Iterator[None]:
    """Keep the hub's libraries off the network for a while, unless downloads are allowed.

    They read their switch when they are imported; a model in the cache would else be asked after,
    and be fetched again where the hub has a newer one. Of the whole process.
    """
    held: list[tuple[Any, bool]] = []
    if is_offline():
        for name in ("huggingface_hub.constants", "datasets.config"):
            module: Any = sys.modules.get(name)
            if module is not None:
                held.append((module, module.HF_HUB_OFFLINE))
                module.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for module, before in held:
            module.HF_HUB_OFFLINE = before


def _remedy(models: Sequence[str], verb: str = "is") -> str:
    # No such advice for a data set: its library has a cache of its own, and some have no end.
    fetch = " and ".join(f"`hf download {name}`" for name in models)
    first = f"; a model can be fetched beforehand, too: {fetch}" if fetch else ""
    return (
        f"{verb} not in the hub's cache on this machine and nothing is downloaded by itself: "
        f"set IT2NB_DOWNLOAD=1 to allow it (and unset HF_HUB_OFFLINE){first}"
    )


def _out_of_reach() -> list[str]:
    """Say that the hub does not answer; a proxy is asked for nothing here."""
    if urllib.request.getproxies():
        return []
    where = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    port = where.port or (80 if where.scheme == "http" else 443)
    try:
        socket.create_connection((where.hostname or "", port), REACH_S).close()
    except OSError as error:
        return [
            f"the hub is out of reach ({where.hostname}: {error}): connect this machine, or name "
            f"a mirror with HF_ENDPOINT"
        ]
    return []


def _cached(name: str) -> bool:
    home = os.environ.get("HF_HOME", os.path.join(os.path.expanduser("~"), ".cache", "huggingface"))
    hub = os.environ.get("HF_HUB_CACHE", os.path.join(home, "hub"))
    data = os.environ.get("HF_DATASETS_CACHE", os.path.join(home, "datasets"))
    folders = (
        os.path.join(hub, f"models--{name.replace('/', '--')}", "snapshots"),
        os.path.join(data, name.replace("/", "___")),
    )
    return any(os.path.isdir(folder) for folder in folders)


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
