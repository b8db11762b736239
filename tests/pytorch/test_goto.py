"""Goto: back to a step, from the snapshots that are kept of it."""

from __future__ import annotations

import gc
import math
import weakref
from pathlib import Path

import pytest
import torch

from it2nb.pytorch.snapshots import size_of_live

from .rewinding import Run
from .small import same


def test_goto_takes_the_snapshot_or_the_nearest_before_it() -> None:
    run = Run()
    run.steps(10)
    at_ten = run.state()
    run.steps(25)
    result = run.ask("goto", step=17)
    assert result.data["step"] == run.session.step_count == 10
    assert "no snapshot of step 17 is kept; this is step 10" in result.data["notes"]
    assert same(run.state(), at_ten)
    assert run.ask("goto", step=17, exact=True).status == "rejected"


def test_a_goto_says_which_knobs_it_changed_and_what_was_asked_for_alone() -> None:
    run = Run()
    run.steps(10)
    before = run.session.knobs["lr"].value
    run.ask("set_knob", name="lr", value=before * 2)
    run.steps(1)
    result = run.ask("goto", step=10, good=False, exact=True)
    assert f", lr {before:g} -> " not in str(result)
    assert f", lr {before * 2:g} -> {before:g}" in str(result)
    (*_, told) = run.session.journal.tail(50, ("action_result",))
    assert told.payload["asked"] == "10, exact yes"


def test_the_schema_of_goto_says_that_a_step_or_good_is_needed() -> None:
    schema = Run().session.actions["goto"].schema()
    step, good = schema.args["anyOf"]
    assert step == {"required": ["step"]}
    assert good == {"required": ["good"], "properties": {"good": {"const": True}}}


def test_a_goto_that_finds_nothing_lists_the_steps_that_are_kept() -> None:
    run = Run()
    run.steps(35)
    assert run.ask("goto", step=3).reason == (
        "step 3 can't be gone back to; on branch 0 these steps are kept: 10, 20, 30, 35"
    )
    run.ask("goto", step=20)
    run.steps(12)
    # The new branch begins at step 20: what the old one has after that is not on its way.
    assert str(run.ask("goto", step=25, exact=True).reason).endswith(
        "on branch 1 these steps are kept: 10, 20, 30, 32"
    )
    assert run.ask("goto", step=5, branch_id=7).reason == "there is no branch 7; there are 0, 1"


def test_of_many_kept_steps_the_first_and_the_last_are_listed() -> None:
    run = Run(snapshots={"every": 1, "max_share": 1e9})
    run.steps(40)
    said = str(run.ask("goto", step=0).reason)
    assert "kept: 2, 3, 4" in said and "12, 13, ... (15 more) ..., 29, 30" in said
    assert said.endswith("39, 40")


def test_goto_follows_the_line_of_branches() -> None:
    run = Run()
    run.steps(30)
    run.ask("goto", step=10)
    run.steps(5)  # branch 1 is at 15; 20 and 30 are on the branch that was left
    assert run.ask("goto", step=25).reason == "step 25 is not there yet: this is step 15"
    result = run.ask("goto", step=14)
    assert (result.data["step"], result.data["parent"]) == (10, 0)
    back = run.ask("goto", step=25, branch_id=0)
    assert (back.data["step"], back.data["parent"]) == (20, 0)
    assert [(e.id, e.parent, e.step) for e in run.session.branches] == [
        (0, None, 0),
        (1, 0, 10),
        (2, 0, 10),
        (3, 0, 20),
    ]


def test_goto_also_takes_a_file(tmp_path: Path) -> None:
    run = Run(directory=tmp_path, snapshots=False)
    run.steps(4)
    run.ask("save_checkpoint")
    run.steps(4)
    result = run.ask("goto", step=6)
    assert result.data["path"].endswith("step-000004.pt")
    assert run.session.step_count == 4
    assert run.ask("goto", step=3).reason == (
        "step 3 can't be gone back to; on branch 1 these steps are kept: 4"
    )


def test_c44_a_run_that_goes_wrong_in_its_first_steps_can_go_back() -> None:
    run = Run(snapshots={})
    run.steps(2)
    good = run.state()
    run.steps(1)
    with torch.no_grad():
        run.net.first.weight.fill_(math.nan)
    assert math.isnan(run.steps(2)[-1])
    result = run.ask("goto", step=2)
    assert result.status == "applied", result.error
    assert (run.session.step_count, run.session.branch_id) == (2, 1)
    assert same(run.state(), good)


def test_of_the_first_steps_a_few_are_kept_and_then_each_fiftieth() -> None:
    run = Run(snapshots={})
    run.steps(120)
    assert [each.step for each in run.rewind.past.ring] == [2, 4, 8, 16, 32, 50, 100]
    assert not [each for each in run.session.turns._turns if each.name.endswith("first steps")]


def test_goto_the_last_good_state() -> None:
    run = Run()
    run.steps(20)
    with torch.no_grad():
        run.net.last.weight[0, 0] = float("nan")
    run.steps(15)
    assert not torch.isfinite(run.net.last.weight).all()
    result = run.ask("goto", good=True)
    assert run.session.step_count == 20
    assert result.data["good"] is True
    assert all(p.isfinite().all() for p in run.net.parameters())


def test_snapshots_keep_within_their_bound_and_say_when_one_does_not_fit() -> None:
    run = Run(snapshots={"every": 1, "max_bytes": 100})
    run.steps(5)
    ring = run.rewind.past.ring
    assert len(ring) == 0
    result = run.ask("goto", step=3)
    assert result.status == "rejected"
    assert "raise it with snapshots={'max_bytes': ...}" in str(result.reason)
    run.ask("set_knob", name="lr", value=0.3)
    undone = run.ask("undo")
    assert undone.ok
    assert "one snapshot takes" in undone.data["notes"][0]
    assert run.opt.param_groups[0]["lr"] == 0.01


def test_a_change_does_not_keep_a_snapshot_that_had_to_go() -> None:
    run = Run(snapshots={"every": 1000, "max_count": 2})
    run.steps(1)
    run.ask("set_knob", name="lr", value=0.1)
    ring = run.rewind.past.ring
    assert ring.newest is not None
    watched = weakref.ref(ring.newest.tree["models"]["model"]["state"]["last.weight"])
    for value in (0.2, 0.3, 0.4):
        run.steps(1)
        run.ask("set_knob", name="lr", value=value)
    # The oldest stays beside the newest; of the others nothing may be left.
    assert len(ring) == 2
    kept = [change.snapshot for change in run.rewind.past._changes]
    assert [each is not None for each in kept] == [each in ring for each in kept]
    del kept
    ring.max_count = 1
    run.steps(1)
    run.ask("set_knob", name="lr", value=0.5)
    gc.collect()
    assert watched() is None
    for _ in range(5):
        assert run.ask("undo").ok
    assert run.opt.param_groups[0]["lr"] == 0.01


def test_a_program_that_asks_at_each_step_does_not_get_a_snapshot_each_time() -> None:
    run = Run(snapshots={"every": 1000, "max_share": 0.01})
    past = run.rewind.past
    run.steps(1)
    for _ in range(5):
        run.clock.now += 0.001
        run.session.submit(
            {"type": "set_knob", "payload": {"name": "lr", "value": 0.1}}, source="rule"
        )
        past._cost_s = 1.0  # as if copying took a second
        run.session.pump()
    assert len(past.ring) == 1
    run.ask("undo")


def test_the_first_snapshot_in_passing_waits_until_the_run_is_worth_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = Run(snapshots={"every": 5, "max_share": 0.01})
    past = run.rewind.past
    run.steps(1)
    monkeypatch.setattr("it2nb.pytorch.past.COPIED_PER_S", size_of_live(past.live()) / 2.0)
    run.steps(19)
    assert not past.ring
    run.steps(10)
    # Two seconds are a hundredth of 200, and a step takes 10: from the 21st on.
    assert min(each.step for each in past.ring) == 25
