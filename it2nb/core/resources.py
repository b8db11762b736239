"""What the process uses of the machine, sampled."""

from __future__ import annotations

import sys
import threading
import time

import psutil


class ResourceMeter:
    """Memory and processor use of this process.

    Notes
    -----
    Any thread; one sample costs about 30 µs and does not touch a GPU that is not in use.
    """

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._lock = threading.Lock()
        self._wall = time.monotonic()
        self._cpu = time.process_time()

    def sample(self) -> dict[str, float]:
        """Measure now.

        Returns
        -------
        dict
            ``rss_bytes``: resident memory. ``cpu``: cores kept busy since the sample before, 1.0
            is one core; children not counted. With CUDA in use also ``gpu_bytes`` and
            ``gpu_reserved_bytes``: what tensors hold and what PyTorch keeps, over all devices.
        """
        with self._lock:
            wall, cpu = time.monotonic(), time.process_time()
            spent, self._cpu = cpu - self._cpu, cpu
            passed, self._wall = wall - self._wall, wall
        found = {
            "rss_bytes": float(self._process.memory_info().rss),
            "cpu": spent / passed if passed > 0 else 0.0,
        }
        cuda = getattr(sys.modules.get("torch"), "cuda", None)
        if cuda is not None and cuda.is_initialized():
            devices = range(cuda.device_count())
            found["gpu_bytes"] = float(sum(map(cuda.memory_allocated, devices)))
            found["gpu_reserved_bytes"] = float(sum(map(cuda.memory_reserved, devices)))
        return found
