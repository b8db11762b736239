"""A small GPT on two ranks: steered, it ends with the bits of a loop written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.pytorch import ranks_gpt_worker as worker
from tests.torchrun import torchrun


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gpt")


@pytest.fixture(scope="module")
def seen(out: Path) -> dict[str, Any]:
    return torchrun(Path(worker.__file__), out)


def _numbers(out: Path, name: str) -> list[torch.Tensor]:
    content = torch.load(out / f"{name}.pt", weights_only=True)
    moments = [each for entry in content["moments"].values() for each in entry.values()]
    return [*content["weights"].values(), *moments]


def test_every_request_is_applied_where_the_ranks_meet_and_the_pause_is_one(
    seen: dict[str, Any],
) -> None:
    results = seen["gpt-0"]["results"]
    assert {each["status"] for each in results.values()} == {"applied"}
    steps = {name: each["step"] for name, each in results.items()}
    # Asked for after updates 3, 7, 11 and 15; the ranks meet at every other one.
    assert steps == {"lr": 3, "betas": 7, "pause": 11, "resume": 11, "reset": 15}
    assert seen["gpt-0"]["took_s"] >= worker.PAUSE_S
    assert seen["gpt-1"]["results"] == {}


def test_both_ranks_end_with_the_bits_of_a_loop_by_hand(seen: dict[str, Any], out: Path) -> None:
    assert set(seen) == {"gpt-0", "gpt-1"}
    wanted = _numbers(out, "by_hand-0")
    assert len(wanted) > 60
    for name in ("steered-0", "steered-1", "by_hand-1"):
        found = _numbers(out, name)
        assert len(found) == len(wanted)
        assert all(map(torch.equal, found, wanted)), name
