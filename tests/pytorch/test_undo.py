"""Undo: back to before the last intervention, and before that one."""

from __future__ import annotations

import pytest
import torch

from it2nb.core.control import StopTraining

from .rewinding import Run
from .small import same


def test_undo_goes_back_to_before_the_last_intervention() -> None:
    run = Run("adamw", "none")
    run.steps(7)
    before = run.state()
    straight = run.steps(0)
    run.ask("set_knob", name="lr", value=0.5)
    run.steps(5)
    result = run.ask("undo")
    assert result.status == "applied"
    assert result.data["undone"] == "set_knob lr"
    assert result.data["knobs"] == {"lr": {"before": 0.5, "after": 0.01}}
    assert (run.session.step_count, run.session.branch_id) == (7, 1)
    assert same(run.state(), before)
    assert straight == []
    assert run.rows("knob_changed")[-1] == {"name": "lr", "value": 0.01, "before": 0.5}
    # Beside the knob nothing claims any more that 0.5 is in force.
    assert run.session.knobs["lr"].last is None


def test_undo_names_what_it_would_take_back() -> None:
    run = Run()

    def said() -> str:
        return run.session.actions["undo"].schema().description

    assert said() == "Take the last intervention back"
    run.steps(7)
    run.ask("set_knob", name="lr", value=0.5)
    assert said() == "Take the last intervention back: set_knob lr of step 7"
    run.steps(1)
    run.ask("undo")
    assert said() == "Take the last intervention back"


def test_undo_again_undoes_the_one_before_and_then_there_is_nothing() -> None:
    run = Run()
    run.steps(2)
    states = []
    for value in (0.1, 0.2, 0.3):
        states.append(run.state())
        run.ask("set_knob", name="lr", value=value)
        run.steps(2)
    for step, wanted in ((6, 0.2), (4, 0.1), (2, 0.01)):
        run.ask("undo")
        assert run.session.step_count == step
        assert run.opt.param_groups[0]["lr"] == wanted
        assert same(run.state(), states.pop())
    result = run.ask("undo")
    assert result.status == "rejected"
    assert result.reason == "nothing was changed yet"
    assert [each.parent for each in run.session.branches] == [None, 0, 0, 0]


def test_undo_takes_a_whole_drag_back() -> None:
    run = Run()
    run.steps(1)
    for value in (0.1, 0.15, 0.2, 0.25):
        handle = run.session.submit(
            {"type": "set_knob", "payload": {"name": "lr", "value": value}}, source="panel"
        )
        run.clock.now += 0.3
        run.session.pump()
        assert handle.result(0).ok
    run.clock.now += 5.0
    run.ask("set_knob", name="lr", value=0.7, source="panel")
    run.ask("undo")
    assert run.opt.param_groups[0]["lr"] == 0.25
    run.ask("undo")
    assert run.opt.param_groups[0]["lr"] == 0.01


def test_refused_requests_leave_nothing_to_undo() -> None:
    run = Run()
    run.steps(1)
    assert run.ask("set_knob", name="lr", value="much").status == "rejected"
    assert run.ask("set_knob", name="nothing", value=1.0).status == "rejected"
    run.ask("note", text="hello")
    assert run.ask("undo").reason == "nothing was changed yet"


def test_undo_without_snapshots_says_so_instead_of_that_nothing_was_changed() -> None:
    run = Run(snapshots=False)
    run.steps(1)
    assert run.ask("set_knob", name="lr", value=0.1).status == "applied"
    result = run.ask("undo")
    assert result.status == "rejected"
    assert result.reason is not None
    assert "keep no snapshots" in result.reason and "set the knob back" in result.reason


def test_undo_of_a_going_back_returns() -> None:
    run = Run()
    run.steps(10)
    run.steps(5)
    there = run.state()
    run.ask("goto", step=10)
    run.steps(3)
    result = run.ask("undo")
    assert (run.session.step_count, result.data["parent"]) == (15, 0)
    assert same(run.state(), there)


def test_undo_of_a_users_own_action() -> None:
    run = Run()

    @run.session.action("zero")
    def zero() -> None:
        with torch.no_grad():
            run.net.first.weight.zero_()

    run.steps(2)
    before = run.state()
    run.ask("zero")
    assert not run.net.first.weight.any()
    run.ask("undo")
    assert same(run.state(), before)


def test_undo_of_knobs_alone_keeps_the_training() -> None:
    run = Run()
    run.steps(2)
    run.ask("set_knob", name="lr", value=0.5)
    run.steps(2)
    before = run.state()["models"]
    result = run.ask("undo", knobs_only=True)
    assert result.data["undone"] == "set_knob lr"
    assert result.data["knobs"] == {"lr": {"before": 0.5, "after": 0.01}}
    assert result.data["notes"] == []
    assert same(run.state()["models"], before)
    assert (run.session.step_count, run.session.branch_id) == (4, 0)


def test_without_a_model_undo_puts_the_knobs_back_and_says_so() -> None:
    run = Run(bound=False)
    run.steps(2)
    run.ask("set_knob", name="lr", value=0.5)
    result = run.ask("undo")
    assert run.opt.param_groups[0]["lr"] == 0.01
    assert "only knobs can be put back" in result.data["notes"][0]


def test_undo_of_a_knob_that_does_not_go_back_with_the_weights() -> None:
    box = {"x": 1}
    run = Run()
    run.session.register_knob("x", lambda: box["x"], lambda v: box.update(x=v), dtype=int)
    run.steps(1)
    run.ask("set_knob", name="x", value=9)
    run.ask("undo")
    assert box == {"x": 1}


def test_paused_save_undo_and_load_work_and_stop_adds_no_step() -> None:
    """C04: all of it while paused, and not one update after the stop."""
    run = Run()
    run.steps(5)
    asked = [
        run.session.submit({"type": name, "payload": payload})
        for name, payload in (
            ("pause", {}),
            ("set_knob", {"name": "lr", "value": 0.5}),
            ("save_checkpoint", {}),
            ("undo", {}),
            ("load_checkpoint", {}),
            ("stop", {}),
        )
    ]
    before = run.state()["models"]
    with pytest.raises(StopTraining):
        run.session.pump()
    assert [each.result(0).status for each in asked] == ["applied"] * 6
    assert same(run.state()["models"], before)
    assert run.session.step_count == 5
