"""Two real processes, started by torchrun with gloo; what they do is in ranks_worker.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

import it2nb
from it2nb.core.errors import It2nbError
from it2nb.core.ranks import Ranks
from tests.pytorch import ranks_worker
from tests.torchrun import torchrun


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return torchrun(Path(ranks_worker.__file__), tmp_path_factory.mktemp("ranks"))


@pytest.fixture
def results(seen: dict[str, Any]) -> dict[str, Any]:
    return seen["together-0"]["results"]


def _row(rank: dict[str, Any], action: str) -> dict[str, Any]:
    return next(row for row in rank["rows"] if action in row["applied"])


def test_every_rank_has_the_same_values_and_weights_after_every_step(seen):
    one, other = (
        [{k: v for k, v in row.items() if k != "rng"} for row in seen[name]["rows"]]
        for name in ("together-0", "together-1")
    )
    assert one == other


def test_a_knob_is_in_force_at_the_same_step_on_every_rank_and_says_how_often_they_meet(
    seen, results
):
    assert results["lr"]["status"] == "applied"
    assert results["lr"]["data"] == {"ranks": {"size": 2, "check_every": ranks_worker.CHECK_EVERY}}
    # asked for after step 4, served at the next meeting
    assert results["lr"]["step"] == 7
    for name in ("together-0", "together-1"):
        lrs = [row["lr"] for row in seen[name]["rows"]]
        assert lrs[5] == 0.01 and lrs[6] == 0.02


def test_a_setter_that_fails_on_one_rank_is_failed_and_put_back_on_all(results):
    assert results["fragile"]["status"] == "failed"
    assert "rank 1: the setter raised RuntimeError: no room here" in results["fragile"]["reason"]
    assert results["fragile"]["after"] == 1.0


def test_what_came_to_nothing_is_for_rank_0_to_look_at(seen):
    assert (seen["unlooked-0"], seen["unlooked-1"]) == (["set_knob"], [])


def test_a_value_that_comes_out_otherwise_on_one_rank_is_failed_and_put_back(results):
    assert results["parts"]["status"] == "failed"
    assert "they would part; put back on rank 0, 1" in results["parts"]["reason"]


def test_custom_actions_and_resets_draw_the_same_numbers_on_every_rank(seen, results):
    assert results["kick"]["status"] == results["reset"]["status"] == "applied"
    for action in ("kick", "reset_module"):
        one, other = (_row(seen[name], action) for name in ("together-0", "together-1"))
        assert one["weights"] == other["weights"]
        assert one["rng"] != other["rng"]  # their own streams go on as they were


def test_an_action_that_fails_on_one_rank_half_way_is_put_back_on_all(results):
    assert results["broken"]["status"] == "failed"
    assert results["broken"]["reason"].endswith("not on this one; put back on rank 0, 1")


def test_a_pause_may_be_longer_than_the_timeout_of_the_process_group(seen, results):
    assert results["pause"]["status"] == results["resume"]["status"] == "applied"
    assert results["pause"]["step"] == results["resume"]["step"]
    assert len(seen["together-0"]["rows"]) > 60


def test_a_checkpoint_is_saved_by_rank_0_and_loaded_by_all_with_the_streams_of_each(seen, results):
    assert results["save"]["status"] == results["load"]["status"] == "applied"
    assert results["load"]["data"]["step"] == results["save"]["step"]
    for name in ("together-0", "together-1"):
        saved, loaded = (_row(seen[name], each) for each in ("save_checkpoint", "load_checkpoint"))
        for what in ("rng", "weights", "lr", "step"):
            assert loaded[what] == saved[what], what


def test_goto_brings_all_ranks_to_a_file_of_rank_0_with_the_streams_of_each(seen, results):
    assert results["goto_file"]["status"] == "applied"
    assert results["goto_file"]["data"]["path"] == results["saved"]["data"]["path"]
    for name in ("together-0", "together-1"):
        saved = [row for row in seen[name]["rows"] if "save_checkpoint" in row["applied"]][-1]
        back = _row(seen[name], "goto")
        for what in ("rng", "weights", "lr", "step"):
            assert back[what] == saved[what], what


def test_goto_brings_all_ranks_to_their_snapshots_and_is_rejected_in_words(seen, results):
    assert results["goto"]["status"] == "applied"
    places = [
        [(row["step"], row["branch"], row["weights"]) for row in seen[name]["rows"][98:]]
        for name in ("together-0", "together-1")
    ]
    assert places[0] == places[1]
    assert results["nowhere"]["status"] == "rejected"
    assert "step 10000 is not there yet" in results["nowhere"]["reason"]


def test_undo_goes_back_on_all_ranks_and_fork_is_rejected_in_words(seen, results):
    assert results["undo"]["status"] == "applied"
    assert [_row(seen[n], "undo")["branch"] for n in ("together-0", "together-1")] == [2, 2]
    assert results["fork"]["status"] == "rejected"
    assert results["fork"]["reason"]


def test_what_the_loop_does_itself_is_applied_when_all_loops_did_it(results):
    assert results["evaluate"]["status"] == "applied"
    assert results["evaluate"]["data"] == {"val": 1.0}
    assert results["evaluate"]["step"] == results["fork"]["step"] + 2 * ranks_worker.CHECK_EVERY


def test_stop_leaves_all_ranks_at_the_same_step(seen, results):
    assert results["stop"]["status"] == "applied"
    ends = [seen[name]["rows"][-1] for name in ("together-0", "together-1")]
    assert [end["step"] for end in ends] == [results["stop"]["step"]] * 2
    assert [end["status"] for end in ends] == ["stopped", "stopped"]


def test_there_is_one_journal_and_the_others_say_who_they_are(seen):
    leader, other = seen["together-0"], seen["together-1"]
    assert Path(leader["path"]).is_file()
    assert other["path"] == "None"
    assert other["run_id"] == "both-rank1"
    assert other["title"].endswith("(rank 1)")
    assert "this is rank 1 of 2: requests are taken on rank 0 alone" in other["refused"]
    (joined,) = leader["joined"]
    assert joined["size"] == 2 and joined["check_every"] == ranks_worker.CHECK_EVERY
    assert [each["rank"] for each in joined["members"]] == [0, 1]


def test_the_journal_of_several_ranks_verifies(seen):
    record = it2nb.open(seen["together-0"]["path"])
    record.verify()
    assert len(record.requests()) == len(seen["together-0"]["results"])


def test_a_rank_that_dies_is_told_and_the_run_goes_on_without_requests(seen):
    apart = seen["apart-0"]
    first, second, stop = apart["results"]
    assert first["status"] == "failed"
    assert "rank 1 gave no sign of life for 1.5 s" in first["reason"]
    assert second["status"] == "rejected"
    assert stop["status"] == "applied"
    assert apart["x"] == 1.0  # put back where it could be
    assert apart["status"] == "stopped" and apart["steps"] == 41
    assert "ranks_lost" in apart["types"]


# --- options ------------------------------------------------------------------------------------


def test_a_session_without_a_process_group_is_alone_and_says_so_when_more_was_asked():
    assert not dist.is_initialized()
    assert it2nb.TrainingSession(directory=None).ranks is None
    with pytest.raises(It2nbError, match="init_process_group"):
        it2nb.TrainingSession(directory=None, distributed=True)
    with pytest.raises(It2nbError, match="'sometimes' has to be 'auto'"):
        it2nb.TrainingSession(directory=None, distributed="sometimes")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"check_every": 0}, "whole number of control points above 0"),
        ({"check_every": 2.5}, "whole number of control points above 0"),
        ({"lost_after_s": True}, "number of seconds above 0"),
        ({"often": 3}, "no option often"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_the_value(options, said):
    with pytest.raises(It2nbError, match=said):
        Ranks.parse(0, 2, options)


def test_the_only_rank_of_a_process_group_is_alone(tmp_path):
    store = f"file://{tmp_path / 'store'}"
    dist.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        assert it2nb.TrainingSession(directory=None).ranks is None
    finally:
        dist.destroy_process_group()
