from __future__ import annotations

import sys
import time
from types import SimpleNamespace

import pytest

from it2nb.core.resources import ResourceMeter


def test_memory_grows_with_what_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    meter = ResourceMeter()
    before = meter.sample()
    held = bytearray(b"x" * 64 * 2**20)
    after = meter.sample()
    assert after["rss_bytes"] - before["rss_bytes"] > 32 * 2**20
    assert set(after) == {"rss_bytes", "cpu"}
    del held


def test_cpu_is_busy_cores_since_the_sample_before(monkeypatch: pytest.MonkeyPatch) -> None:
    wall, cpu = iter([10.0, 12.0, 14.0, 14.0]), iter([1.0, 2.0, 5.0, 5.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(wall))
    monkeypatch.setattr(time, "process_time", lambda: next(cpu))
    meter = ResourceMeter()
    assert [meter.sample()["cpu"] for _ in range(3)] == [0.5, 1.5, 0.0]


def test_gpu_memory_is_told_only_where_cuda_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_allocated=lambda device: 100 + device,
        memory_reserved=lambda device: 200 + device,
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    found = ResourceMeter().sample()
    assert (found["gpu_bytes"], found["gpu_reserved_bytes"]) == (201.0, 401.0)
