"""Hugging Face's Trainer under torchrun: one run, the same on every rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import it2nb
from tests.integrations import hf_ranks_worker as worker
from tests.torchrun import torchrun


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return torchrun(Path(worker.__file__), tmp_path_factory.mktemp("hf"))


@pytest.fixture
def results(seen: dict[str, Any]) -> dict[str, Any]:
    return seen["hf-0"]["results"]


def test_a_knob_is_in_force_at_the_same_update_on_both_ranks(
    seen: dict[str, Any], results: dict[str, Any]
) -> None:
    lr = results["3"]
    assert (lr["status"], lr["step"]) == ("applied", 4)
    assert lr["data"]["ranks"] == {"size": 2, "check_every": worker.CHECK_EVERY}
    for rank in ("hf-0", "hf-1"):
        used = seen[rank]["lrs"]
        assert used[:4] == pytest.approx([0.01, 0.009375, 0.00875, 0.008125])
        assert used[4:8] == [1e-3] * 4
    assert seen["hf-0"]["lrs"] == seen["hf-1"]["lrs"]


def test_an_evaluation_is_one_of_all_ranks(seen: dict[str, Any], results: dict[str, Any]) -> None:
    evaluated = results["5"]
    assert evaluated["status"] == "applied"
    assert evaluated["data"]["eval_loss"] == seen["hf-0"]["eval"]["6"] == seen["hf-1"]["eval"]["6"]


def test_going_back_brings_all_ranks_back(seen: dict[str, Any], results: dict[str, Any]) -> None:
    back = results["7"]
    # Where the ranks meet a snapshot is kept, before requests are let in.
    assert (back["status"], back["data"]["branch_id"], back["data"]["step"]) == ("applied", 1, 4)
    assert seen["hf-0"]["branch"] == seen["hf-1"]["branch"] == 1
    # The schedule of step 4 again, and the edit that came after it is gone.
    assert seen["hf-0"]["lrs"][8:] == pytest.approx([0.0075, 0.006875, 0.00625, 0.005625])
    assert seen["hf-0"]["weights"] == seen["hf-1"]["weights"]


def test_a_stop_ends_both_after_the_same_update(
    seen: dict[str, Any], results: dict[str, Any]
) -> None:
    assert results["11"]["status"] == "applied"
    ends = [(each["updates"], each["steps"], each["status"]) for each in seen.values()]
    assert ends == [(12, results["11"]["step"], "stopped")] * 2


def test_there_is_one_journal(seen: dict[str, Any], results: dict[str, Any]) -> None:
    assert seen["hf-1"]["path"] == "None"
    record = it2nb.open(seen["hf-0"]["path"])
    record.verify()
    assert len(record.requests()) == len(results)


def test_a_session_from_before_the_process_group_is_refused_on_every_rank(
    seen: dict[str, Any],
) -> None:
    for rank in ("hf-0", "hf-1"):
        assert "was made before the process group of 2 ranks" in seen[rank]["early"]
        assert "after the TrainingArguments" in seen[rank]["early"]
