"""A steered run is done again, to the bit."""

from __future__ import annotations

import contextlib
import gc
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import it2nb
from it2nb.core.comparison import Verdict
from it2nb.core.recording import RESTORES, Recording, cell_row
from it2nb.core.replay import ReplayRefused
from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.session import TrainingSession

from .steered import STEPS, Script, ask, random_script, train


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    """Looking for schedulers walks all objects of the process; those of other tests are many."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def again(session: TrainingSession, **options: Any) -> tuple[TrainingSession, Verdict]:
    """Replay a recorded run from its file."""
    assert session.path is not None
    replay = it2nb.replay(session.path)
    return train(replay=replay, **options), replay.verify()


def changes(session: Session) -> list[tuple[Any, ...]]:
    """List what changed a run, in order: type, values, status, step and branch."""
    return [
        (*(event.payload.get(each) for each in _TOLD), event.step, event.branch_id)
        for event in session.journal.since(0)
        if event.type == "action_result" and event.payload["ok"]
    ]


_TOLD = ("type", "name", "requested", "before", "after", "status")


@pytest.mark.parametrize("seed", range(50))
def test_any_steering_is_replayed_to_the_bit(seed: int) -> None:
    recorded = train(random_script(seed))
    replayed, verdict = again(recorded)
    assert verdict, str(verdict)
    assert verdict.state == verdict.start == "equal"
    assert verdict.values >= STEPS // 2
    assert verdict.random is None
    assert verdict.environment == {}
    assert replayed.status == recorded.status
    assert changes(replayed) == changes(recorded)
    submitted = [e for e in replayed.journal.since(0) if e.type == "action_submitted"]
    assert {e.source for e in submitted if not e.payload.get("own")} <= {"replay"}


def test_the_scripts_do_what_they_are_for() -> None:
    """Fifty replays of nothing would be equal too."""
    kinds: dict[str, int] = {}
    statuses: dict[str, int] = {}
    for seed in range(12):
        frame = train(random_script(seed)).journal.requests()
        for kind, status in zip(frame["type"], frame["status"], strict=True):
            statuses[status] = statuses.get(status, 0) + 1
            if status in ("applied", "clamped"):
                kinds[kind] = kinds.get(kind, 0) + 1
    assert {"set_knob", "pause", "resume", "evaluate", "save_checkpoint", "load_checkpoint", "undo",
            "goto", "stop", "batch", "shake", "set_mode"} <= kinds.keys()  # fmt: skip
    assert statuses["applied"] > 80
    assert statuses["rejected"] > 5
    assert statuses["clamped"] > 0


# --- what a replay brings, and what it keeps away ------------------------------------------------


SCRIPT: Script = {
    5: [ask("set_knob", name="lr", value=3e-3)],
    9: [ask("save_checkpoint", tag="one"), [ask("set_knob", name="noise", value=0.9)]],
    14: [ask("undo")],
    18: [ask("load_checkpoint", path="step-000009-one.pt", keep_knobs=True), ask("evaluate")],
}


SIMPLE: Script = {5: [ask("set_knob", name="lr", value=3e-3)], 20: [ask("evaluate")]}


def test_requests_of_the_loops_own_code_are_made_by_it_again() -> None:
    def loop_asks(step: int, session: TrainingSession) -> None:
        if step == 10:
            session.set("noise", 0.4)
        if step == 15:
            result = session.submit(
                Action(type="set_knob", payload={"name": "lr", "value": 1e-3}), wait=True
            )
            assert result.ok

    recorded = train({10: [ask("set_knob", name="noise", value=0.7)]}, loop_asks=loop_asks)
    replayed, verdict = again(recorded, loop_asks=loop_asks)
    assert verdict, str(verdict)
    assert changes(replayed) == changes(recorded)
    sources = replayed.journal.requests()["source"]
    assert list(sources) == ["replay", "python", "python"]


def test_nobody_else_changes_a_replayed_run_but_may_stop_it() -> None:
    recorded = train(SIMPLE)
    assert recorded.path is not None
    replay = it2nb.replay(recorded.path)
    meddling = {8: [ask("set_knob", name="lr", value=1e-5)], 25: [ask("stop")]}
    replayed = train(meddling, replay=replay)
    rejected = replayed.journal.requests().query("status == 'rejected'")
    assert list(rejected["source"]) == ["panel"]
    assert "a replay is under way" in rejected["reason"].iloc[0]
    assert replayed.status == "stopped"
    verdict = replay.verify()
    assert not verdict
    assert "the replay misses" in verdict.metrics["loss"]
    assert verdict.parting is None


def test_controllers_of_a_replayed_run_are_replayed_and_not_asked_again() -> None:
    asked: list[int] = []

    def rule(session: Session) -> None:
        if session.step_count == 12:
            asked.append(12)
            session.submit(ask("set_knob", name="lr", value=2e-3), source="rule")

    def attach_rule(step: int, session: TrainingSession) -> None:
        if step == 0:
            session.every(1, rule)

    recorded = train({}, loop_asks=attach_rule)
    replayed, verdict = again(recorded, loop_asks=attach_rule)
    assert verdict, str(verdict)
    assert asked == [12, 12]
    frame = replayed.journal.requests()
    assert list(frame["source"]) == ["rule", "replay"]
    assert list(frame["status"]) == ["rejected", "applied"]


def test_a_replay_can_be_replayed() -> None:
    first, _ = again(train(SCRIPT))
    second, verdict = again(first)
    assert verdict, str(verdict)
    assert changes(second) == changes(first)
    restores = [r.restore for r in Recording(second.journal).requests if r.type in RESTORES]
    assert len(restores) == 2
    assert all(each is not None and each.state is not None for each in restores)


def test_pauses_do_not_wait_and_one_that_nobody_ended_is_left_out(tmp_path: Path) -> None:
    recorded = train({5: [[ask("set_knob", name="lr", value=1e-3)]]})
    assert recorded.path is not None
    # The process is killed in the pause: everything behind it is missing.
    lines = recorded.path.read_bytes().splitlines(keepends=True)
    paused = next(i for i, line in enumerate(lines) if b'"status":"paused"' in line)
    killed = tmp_path / "killed.jsonl"
    killed.write_bytes(b"".join(lines[: paused + 2]))
    replay = it2nb.replay(killed)
    replayed = train(replay=replay)
    assert replayed.status == "stopped"
    assert replayed.step_count == 5
    verdict = replay.verify()
    assert verdict, str(verdict)
    assert verdict.state == "not recorded"
    assert "the pause at step 5 was left out" in str(verdict)


def test_a_replay_of_a_killed_run_stops_where_the_recording_ends(tmp_path: Path) -> None:
    recorded = train(SCRIPT)
    assert recorded.path is not None
    lines = recorded.path.read_bytes().splitlines(keepends=True)
    asked = next(i for i, line in enumerate(lines) if b'"type":"load_checkpoint"' in line)
    (tmp_path / "cut.jsonl").write_bytes(b"".join(lines[:asked]) + lines[asked][:40])
    replay = it2nb.replay(tmp_path / "cut.jsonl")
    replayed = train(replay=replay)
    assert replayed.status == "stopped"
    assert (replayed.step_count, replayed.branch_id) == (18, 1)
    assert replay.verify(), str(replay.verify())


def test_a_plain_loop_without_pytorch_is_replayed_too() -> None:
    def run(replay: Any = None) -> Session:
        settings = {"lr": 0.1}
        session = Session(directory="it2runs")
        if replay is not None:
            replay.attach(session)
        session.register_knob(
            "lr", lambda: settings["lr"], lambda v: settings.update(lr=v), min=0.0, max=1.0
        )
        weight = 5.0
        with session.run():
            for step in range(50):
                weight -= settings["lr"] * 2 * (weight - 1)
                if step == 20:
                    session.set("lr", 0.02)
                control = session.step({"loss": (weight - 1) ** 2}, step=step)
                assert not control.stop
        return session

    recorded = run()
    rows = [e.payload for e in recorded.journal.since(0) if e.type == "action_submitted"]
    assert rows[0]["own"]  # asked by the loop itself: that is how a script steers
    assert recorded.path is not None
    replay = it2nb.replay(recorded.path)
    run(replay)
    assert replay.verify(), str(replay.verify())
    assert replay.verify().state == "not recorded"


# --- where it differs, it says so ----------------------------------------------------------------


def test_the_first_difference_is_named_with_its_size() -> None:
    recorded = train(SIMPLE)

    def meddle(step: int, session: TrainingSession) -> None:
        if step == 11:
            session.bound.optimizers[0].param_groups[1]["weight_decay"] = 0.5

    _, verdict = again(recorded, loop_asks=meddle)
    assert not verdict
    assert verdict.parting is not None
    # The update after step 11 decays otherwise; the loss of the one after that shows it.
    assert (verdict.parting.metric, verdict.parting.step) == ("loss", 13)
    assert 0 < abs(verdict.parting.by) < 1e-2
    assert verdict.state == "different"
    assert "model model" in verdict.parts
    assert "they part at loss at step 13" in str(verdict)
    assert repr(verdict.parting.recorded) in str(verdict)


def test_other_weights_and_surroundings_are_told() -> None:
    recorded = train(SCRIPT)
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        _, verdict = again(recorded, seed=1)
    finally:
        torch.set_num_threads(threads)
    assert not verdict
    assert verdict.start == "different"
    assert "the weights were different before the first step" in str(verdict)
    assert verdict.environment["torch.threads"] == (threads, threads + 1)


def test_the_random_streams_of_the_start_are_put_back() -> None:
    recorded = train(SCRIPT)
    assert recorded.path is not None
    replay = it2nb.replay(recorded.path)
    random.seed(99)
    np.random.seed(99)
    replayed = train(replay=replay, before_run=lambda: (torch.rand(3), random.random()))
    verdict = replay.verify()
    assert verdict, str(verdict)
    assert "the recorded ones were put back" in str(verdict)
    assert [w for w in replayed.warnings if not w.startswith("replay of")] == []


def test_draws_in_a_pause_are_told_in_the_run_and_found_by_the_replay() -> None:
    note = ask("note", text="look at something")

    drawn: list[float] = []

    def draw(session: Any) -> None:
        drawn.append(float(torch.rand(())))

    recorded = train({8: [[note, draw, note]], 20: [ask("set_knob", name="lr", value=1e-3)]})
    assert len(drawn) == 1
    assert any("drew random numbers while the run stood at step 8" in w for w in recorded.warnings)
    shifted = [
        e
        for e in recorded.journal.since(0)
        if e.type == "random_state" and e.payload.get("shifted")
    ]
    assert [e.step for e in shifted] == [8]
    replayed, verdict = again(recorded)
    assert not verdict
    assert verdict.random is not None
    assert verdict.random.step in (8, 20)
    assert verdict.parting is not None
    assert verdict.parting.step == 9
    assert any("random streams don't stand where they stood" in w for w in replayed.warnings)


def test_a_run_without_foreign_draws_says_nothing_of_them() -> None:
    recorded = train(random_script(3))
    assert not [w for w in recorded.warnings if "random" in w]


def test_a_request_that_the_loop_does_not_reach_is_told() -> None:
    recorded = train({25: [ask("set_knob", name="noise", value=0.2)]})
    replayed, verdict = again(recorded, steps=20)
    assert not verdict
    assert verdict.requests == ["set_knob noise at step 25 was left out"]
    finished = [e.payload for e in replayed.journal.since(0) if e.type == "replay_finished"]
    assert finished[0]["missed"] == ["set_knob noise"]


def test_a_request_that_comes_out_differently_is_told() -> None:
    recorded = train({5: [ask("set_knob", name="noise", value=0.2)]})

    def narrower(step: int, session: TrainingSession) -> None:
        if step == 0:
            session.knobs["noise"].max = 0.15

    _, verdict = again(recorded, loop_asks=narrower)
    assert not verdict
    assert verdict.requests == [
        "set_knob noise at step 5: status was 'applied' and is 'clamped' (max is 0.15)"
    ]


def test_metrics_that_are_measured_can_be_left_out() -> None:
    def run(replay: Any, seconds: float) -> Session:
        session = Session(directory="it2runs")
        if replay is not None:
            replay.attach(session)
        with session.run():
            for step in range(5):
                session.step({"loss": float(step), "seconds": seconds})
        return session

    recorded = run(None, 1.0)
    assert recorded.path is not None
    replay = it2nb.replay(recorded.path)
    run(replay, 2.0)
    assert not replay.verify()
    assert replay.verify().metrics["loss"] == "equal"
    assert replay.verify(ignore=["seconds"])


# --- the code ------------------------------------------------------------------------------------


def test_a_changed_cell_is_told_and_the_replay_stops_unless_told_to_go_on() -> None:
    recorded = TrainingSession(title="cell", resources_every_s=3600)
    recorded.source_cell = "for step in range(3):\n    loss = step * 2\n"
    with recorded.run():
        recorded.emit("source_cell", cell_row(recorded.source_cell))
        recorded.step({"loss": 1.0})
    assert recorded.path is not None
    replay = it2nb.replay(recorded.path)

    same = TrainingSession(title="same")
    same.source_cell = recorded.source_cell
    assert replay.attach(same) is same
    same.finish()

    other = TrainingSession(title="other")
    other.source_cell = recorded.source_cell.replace("* 2", "* 3")
    with pytest.raises(ReplayRefused, match="not the recorded one") as caught:
        it2nb.replay(recorded.path).attach(other)
    assert "-    loss = step * 2" in str(caught.value)
    assert "+    loss = step * 3" in str(caught.value)
    assert other.replaying is None
    it2nb.replay(recorded.path).attach(other, go_on=True)
    assert "not the recorded one" in other.warnings[0]
    other.finish()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loss = 1\r\nx = 2\r\n\r\n", None),
        ("loss = 1\nx = 2", None),
        ("loss = 1 \nx = 2\n", "-loss = 1\n+loss = 1 \n"),
        ("loss = 1\x0cx = 2\n", "+loss = 1\x0cx = 2"),
        ("  loss = 1\nx = 2\n", "+  loss = 1"),
    ],
)
def test_a_cell_that_differs_in_nothing_that_runs_is_the_same_and_else_the_lines_are_shown(
    text: str, said: str | None
) -> None:
    recorded = TrainingSession(title="cell", resources_every_s=3600)
    recorded.source_cell = "loss = 1\nx = 2\n"
    with recorded.run():
        recorded.emit("source_cell", cell_row(recorded.source_cell))
        recorded.step({"loss": 1.0})
    assert recorded.path is not None
    replay = it2nb.replay(recorded.path)
    if said is None:
        assert replay.check(text) == "same"
        return
    with pytest.raises(ReplayRefused) as caught:
        replay.check(text)
    assert said in str(caught.value)


def test_a_difference_that_can_not_be_shown_is_said() -> None:
    recorded = TrainingSession(title="hash alone", resources_every_s=3600)
    recorded.source_cell = "loss = 1\n"
    with recorded.run():
        recorded.step({"loss": 1.0})
    assert recorded.path is not None
    with pytest.raises(ReplayRefused, match="holds its hash alone"):
        it2nb.replay(recorded.path).check("loss = 2\n")


def test_a_session_that_has_begun_takes_no_replay() -> None:
    recorded = train({})
    assert recorded.path is not None
    session = TrainingSession()
    session.start()
    with pytest.raises(ReplayRefused, match="has begun already"):
        it2nb.replay(recorded.path).attach(session)
    session.finish()
    with pytest.raises(ReplayRefused, match="nothing was replayed yet"):
        it2nb.replay(recorded.path).verify()


def test_a_damaged_recording_is_not_replayed() -> None:
    recorded = train({})
    assert recorded.path is not None
    data = bytearray(recorded.path.read_bytes())
    data[len(data) // 2] ^= 1
    recorded.path.write_bytes(data)
    with pytest.raises(it2nb.It2nbError, match="damaged at seq"):
        it2nb.replay(recorded.path)
    shutil.rmtree(recorded.path.parent)
    with pytest.raises(it2nb.It2nbError, match="can't be read"):
        it2nb.replay(recorded.path)


def plainly(session: TrainingSession, *, wrapped: bool, seeds: bool) -> TrainingSession:
    """Train a loop that is wrapped in ``with session.run():`` or not, and seeds itself or not."""
    with session.run() if wrapped else contextlib.ExitStack():
        if seeds:
            torch.manual_seed(1)
        net = torch.nn.Linear(4, 1)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        session.bind(net, optimizers=[optimizer])
        for _ in range(10):
            loss = net(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            session.step({"loss": loss})
    session.end()
    return session


MIXED = [(True, False), (False, True), (False, False)]


@pytest.mark.parametrize("recorded, replayed", MIXED)
def test_a_loop_that_seeds_itself_is_replayed_without_a_run_around_it(
    recorded: bool, replayed: bool
) -> None:
    run = plainly(TrainingSession(), wrapped=recorded, seeds=True)
    assert run.path is not None
    torch.rand(3)
    replay = it2nb.replay(run.path)
    plainly(TrainingSession(replay=replay), wrapped=replayed, seeds=True)
    verdict = replay.verify()
    assert verdict, str(verdict)
    assert "session.run()" not in str(verdict)


@pytest.mark.parametrize("recorded, replayed", MIXED)
def test_a_loop_without_a_run_around_it_is_named_as_the_cause(
    recorded: bool, replayed: bool
) -> None:
    run = plainly(TrainingSession(), wrapped=recorded, seeds=False)
    assert run.path is not None
    replay = it2nb.replay(run.path)
    torch.rand(3)
    plainly(TrainingSession(replay=replay), wrapped=replayed, seeds=False)
    said = str(replay.verify())
    assert said.startswith("not equal")
    assert "wrap the loop in `with session.run():`" in said
    assert "before the first step" not in said
