"""The line between ranks: what was read leaves the store, and no reader waits for that."""

from __future__ import annotations

from typing import Any

import pytest
import torch.distributed as dist

from it2nb.pytorch import line
from it2nb.pytorch.line import Line


@pytest.mark.parametrize("size", [2, 3])
def test_what_every_rank_has_read_is_taken_out_of_the_store_by_the_threads_beside_the_training(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line, "BEAT_EVERY_S", 3600.0)
    c10d: Any = dist  # its stores come without types
    store = c10d.HashStore()
    leader, *others = [Line(store, store, rank, size) for rank in range(size)]
    beats = store.num_keys()
    assert [leader.tell({"do": "go", "next": each}) for each in range(3)] == [0, 1, 2]
    for other in others:
        read = [other.read() for _ in range(3)]
        assert read == [(each, {"do": "go", "next": each}) for each in range(3)]
        assert store.check(["told/0", "told/1", "told/2"])
    for other in others:
        assert store.check(["told/2"])  # until the last one who read it takes it away
        other.take_away()
    assert store.num_keys() == beats == size
    for each in (leader, *others):
        each.close()
