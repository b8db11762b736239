"""Rounds: baseline first, the same seed, what is planned is set before the first step."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import it2nb
from it2nb.core.errors import It2nbError, SessionEnded
from it2nb.core.goals import Goal
from it2nb.core.rounds import Memory, RoundContext
from it2nb.core.wire import Action
from it2nb.frames import DTYPES
from it2nb.session import TrainingSession
from tests.conftest import dtypes_here
from tests.core.driving import LIMIT_S
from tests.core.planned import Planner, Training, cyclic, deep, rounds


def test_the_baseline_comes_first_and_is_not_planned() -> None:
    session, training, planner, records = rounds({"lr": 0.3}, {"lr": 0.5})
    assert [ctx.round for ctx in planner.seen] == [1, 2]
    assert [used[0] for used in training.used] == [0.1, 0.3, 0.5]
    assert [each["round"] for each in records] == [0, 1, 2]
    assert records[0]["plan"] is None
    assert session.status == "finished"


def test_each_round_draws_the_same_numbers() -> None:
    _, training, _, _ = rounds(seed=7)
    assert len(set(training.drawn)) == 1
    random.seed(7)
    assert training.drawn[0][0] == random.random()


@pytest.mark.parametrize("said", [cyclic(), deep(), SystemExit(3)], ids=["cyclic", "deep", "exit"])
def test_a_reflection_of_any_kind_is_an_error_row_and_leaves_the_record_alone(said: Any) -> None:
    class Reflects(Planner):
        def reflect(self, ctx: RoundContext, record: Any) -> Any:
            record.clear()
            if isinstance(said, BaseException):
                raise said
            return said

    session = TrainingSession("val_loss", directory=None, resources_every_s=3600)
    session.attach(Reflects())
    records = session.run_rounds(Training(), 2)
    assert session.status == "finished" and [each["round"] for each in records] == [0, 1]
    rows = [e.payload for e in session.journal.since(0) if e.type == "agent_reflection"]
    assert len(rows) == 2 and all(each["error"] for each in rows)


def test_records_hold_value_improvement_and_reflection() -> None:
    session, _, planner, records = rounds({"lr": 0.3}, {"lr": 0.9})
    assert [each["value"] for each in records] == pytest.approx([0.45, 0.25, 0.85])
    assert [each["improved"] for each in records] == [None, True, False]
    assert records[1]["settings"] == {"lr": 0.3}
    assert records[1]["reflection"] == f"round 1 gave {records[1]['value']}"
    assert session.memory.best() == records[1]
    assert planner.seen[1].best == records[1]


def test_rounds_stand_in_journal_state_and_frames() -> None:
    session, _, _, _ = rounds({"lr": 0.3}, count=2)
    frame = session.journal.frame()
    kept = frame[frame["type"].isin(["round_started", "round_finished"])]
    assert kept["type"].tolist() == ["round_started", "round_finished"] * 2
    assert kept["round"].tolist() == [0, 0, 1, 1]
    assert kept["payload"].iloc[2]["plan"]["settings"] == {"lr": 0.3}
    assert kept["payload"].iloc[3]["value"] == pytest.approx(0.25)
    metrics = session.metrics.frame()
    assert metrics["round"].tolist() == [0] * 4 + [1] * 4
    assert metrics["step"].tolist() == [1, 2, 3, 4] * 2
    assert session.state().round == 1


def test_rounds_are_a_frame_live_and_from_the_file() -> None:
    session = TrainingSession("val_loss", resources_every_s=3600)
    session.attach(Planner({"settings": {"lr": 0.3}, "reason": "closer"}))
    session.run_rounds(Training(), 2)
    assert session.path is not None
    for journal in (session.journal, it2nb.open(session.path)):
        frame = journal.rounds()
        assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == dtypes_here(
            DTYPES["rounds"]
        )
        assert frame["value"].tolist() == pytest.approx([0.45, 0.25])
        assert frame["plan"].tolist() == [None, {"lr": 0.3}]
        assert frame["planner"].iloc[1] == "planner"
        assert frame["reason"].iloc[1] == "closer"
        assert frame["improved"].tolist() == [None, True]
        assert frame["status"].tolist() == ["finished", "finished"]
        assert frame["reflection"].iloc[0].startswith("round 0 gave 0.4")


def test_knobs_that_were_there_before_begin_each_round_with_their_first_value() -> None:
    held = {"clip": 1.0}
    used = []
    session = TrainingSession("loss", directory=None)
    session.register_knob("clip", lambda: held["clip"], lambda value: held.update(clip=value))
    session.attach(Planner({"clip": 5.0}))

    def train(session: Any, ctx: RoundContext) -> None:
        used.append(held["clip"])
        session.step({"loss": 1.0})

    session.run_rounds(train, 3)
    assert used == [1.0, 5.0, 1.0]


def test_what_a_training_declares_lasts_for_its_round() -> None:
    calls: list[int] = []
    session = TrainingSession("loss", directory=None)

    def train(session: Any, ctx: RoundContext) -> None:
        session.register_knob("lr", lambda: 0.1, lambda value: None)
        session.action("shake")(lambda: None)
        session.every(1, lambda session: calls.append(session.round))
        session.attach("loss > 0: note 'x'")
        session.bind(object())
        assert len(session.bound.models) == 1
        session.step({"loss": 1.0})

    session.run_rounds(train, 3)
    assert calls == [0, 1, 2]
    assert len(session.controllers) == 1


def test_an_undecided_goal_is_refused_in_words_before_anything_is_trained() -> None:
    with pytest.raises(It2nbError, match="is a smaller or a larger 'energy' better"):
        rounds(goal="energy")
    _, _, _, records = rounds(goal=Goal("val_loss", "max"), count=1)
    assert records[0]["direction"] == "max"


def test_a_trial_is_no_part_of_the_goals_value() -> None:
    session = TrainingSession("val_loss", directory=None)

    def train(session: Any, ctx: RoundContext) -> None:
        session.step({"val_loss": 3.0})
        session.fork_branch(1, "fork with set_knob lr")
        session.step({"val_loss": 0.1})
        session.resume_branch(0, 1)
        session.step({"val_loss": 2.0})
        session.fork_branch(1, "undo of set_knob lr")
        session.step({"val_loss": 2.5})

    [record] = session.run_rounds(train, 1)
    assert record["value"] == 2.5
    assert record["best"] == 2.5


def test_a_value_that_is_not_finite_is_no_success() -> None:
    session = TrainingSession("val_loss", directory=None)

    def train(session: Any, ctx: RoundContext) -> None:
        session.step({"val_loss": 1.0})
        session.step({"val_loss": float("nan") if ctx.round else 0.5})

    one, other = session.run_rounds(train, 2, score="best")
    assert (one["value"], other["value"], other["nonfinite"]) == (0.5, None, "nan")
    assert other["improved"] is False


def test_a_goal_that_was_not_recorded_is_evaluated_or_told() -> None:
    session = TrainingSession("val_loss", directory=None, evaluate=lambda: {"val_loss": 0.5})
    [record] = session.run_rounds(lambda session, ctx: session.step({"loss": 1.0}), 1)
    assert record["value"] == 0.5
    other = TrainingSession("val_loss", directory=None)
    [record] = other.run_rounds(lambda session, ctx: session.step({"loss": 1.0}), 1)
    assert record["value"] is None
    assert any("was not recorded in round 0" in each for each in other.warnings)


def test_a_stop_ends_all_rounds_and_end_round_one_of_them() -> None:
    session = TrainingSession("val_loss", directory=None)

    def leave(seen: Any) -> Any:
        return Action(type="end_round") if seen.round == 0 and seen.step == 2 else None

    session.attach(leave, blocking=True)
    training = Training(steps=5)
    records = session.run_rounds(training, 2)
    assert [len(used) for used in training.used] == [2, 5]
    assert [each["status"] for each in records] == ["stopped", "finished"]
    assert session.status == "finished"

    other = TrainingSession("val_loss", directory=None)
    other.attach("at 2: stop")
    assert len(other.run_rounds(Training(), 3)) == 1
    assert other.status == "stopped"


def test_an_error_ends_the_run_or_its_round() -> None:
    def train(session: Any, ctx: RoundContext) -> None:
        session.step({"val_loss": 1.0})
        if ctx.round == 1:
            raise ValueError("diverged")

    session = TrainingSession("val_loss", directory=None)
    with pytest.raises(ValueError, match="diverged"):
        session.run_rounds(train, 3)
    assert session.status == "failed"
    other = TrainingSession("val_loss", directory=None)
    records = other.run_rounds(train, 3, on_error="next")
    assert [each["status"] for each in records] == ["finished", "failed", "finished"]
    assert records[1]["error"] == "ValueError: diverged"


def test_a_target_that_is_reached_ends_the_rounds() -> None:
    _, _, _, records = rounds({"lr": 0.3}, {"lr": 0.2}, goal=Goal("val_loss", "min", 0.3), count=5)
    assert len(records) == 2


def test_a_training_may_open_its_own_run_block() -> None:
    def train(session: Any, ctx: RoundContext) -> None:
        with session.run():
            session.step({"val_loss": 1.0})

    session = TrainingSession("val_loss", directory=None)
    assert len(session.run_rounds(train, 2)) == 2
    assert session.status == "finished"


def test_rounds_begin_with_their_session() -> None:
    session, training, _, _ = rounds(count=1)
    with pytest.raises(SessionEnded, match="make a new"):
        session.run_rounds(training, 1)
    with pytest.raises(It2nbError, match="rounds=0"):
        TrainingSession(directory=None).run_rounds(training, 0)


class TestMemory:
    def test_records_are_there_again(self, tmp_path: Path) -> None:
        path = tmp_path / "memory" / "rounds.jsonl"
        memory = Memory(path)
        for number in range(12):
            memory.add({"round": number, "value": float(number % 5), "direction": "max"})
        again = Memory(path)
        assert again.records == memory.records
        assert [each["round"] for each in again.last()] == list(range(2, 12))
        assert again.best() == {"round": 4, "value": 4.0, "direction": "max"}
        assert again.best("min") == {"round": 0, "value": 0.0, "direction": "max"}

    @pytest.mark.parametrize("torn", [b'{"round": 1, "val', b"\xff\xfe"])
    def test_a_torn_last_line_is_left_out_and_written_over(
        self, tmp_path: Path, torn: bytes
    ) -> None:
        path = tmp_path / "rounds.jsonl"
        Memory(path).add({"round": 0})
        with path.open("ab") as file:
            file.write(torn)
        memory = Memory(path)
        assert memory.records == [{"round": 0}]
        memory.add({"round": 1})
        assert Memory(path).records == [{"round": 0}, {"round": 1}]
        assert path.read_bytes() == b'{"round":0}\n{"round":1}\n'

    def test_damage_before_the_last_line_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / "rounds.jsonl"
        path.write_bytes(b'{"round": 0}\nnothing\n{"round": 1}\n')
        with pytest.raises(It2nbError, match="line 2"):
            Memory(path)

    def test_a_terminated_line_or_a_foreign_file_is_refused_and_nothing_of_it_is_cut(
        self, tmp_path: Path
    ) -> None:
        for text in (b'{"round": 0}\n{"torn\n', b"print('precious')", b"x = 1\n", b"[1]\n"):
            path = tmp_path / "rounds.jsonl"
            path.write_bytes(text)
            with pytest.raises(It2nbError, match="no record"):
                Memory(path)
            assert path.read_bytes() == text
        with pytest.raises(It2nbError, match="is a folder; name a file in it"):
            Memory(tmp_path)

    def test_a_whole_last_line_without_its_end_is_a_record(self, tmp_path: Path) -> None:
        path = tmp_path / "rounds.jsonl"
        path.write_bytes(b'{"round": 0}\n{"round": 1}')
        memory = Memory(path)
        assert len(memory) == 2
        memory.add({"round": 2})
        assert Memory(path).records == memory.records == [{"round": n} for n in range(3)]

    def test_several_of_one_file_lose_nothing_and_see_each_other(self, tmp_path: Path) -> None:
        path = tmp_path / "rounds.jsonl"
        several = [Memory(path) for _ in range(4)]

        def add(memory: Memory, who: int) -> None:
            for number in range(10):
                memory.add({"who": who, "number": number, "pad": "x" * 3000})

        threads = [
            threading.Thread(target=add, args=(memory, who)) for who, memory in enumerate(several)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(LIMIT_S)
        for memory in (*several, Memory(path)):
            assert sorted((each["who"], each["number"]) for each in memory) == [
                (who, number) for who in range(4) for number in range(10)
            ]

    def test_best_asks_for_a_direction_that_no_record_tells(self) -> None:
        memory = Memory()
        assert memory.best() is None
        memory.add({"value": 1.0})
        memory.add({"value": float("nan")})
        with pytest.raises(It2nbError, match="which is better"):
            memory.best()
        assert memory.best("min") == {"value": 1.0}

    def test_a_session_takes_a_path(self, tmp_path: Path) -> None:
        for _ in range(2):
            session = TrainingSession("val_loss", directory=None, memory=tmp_path / "m.jsonl")
            session.run_rounds(Training(), 1)
        assert len(Memory(tmp_path / "m.jsonl")) == 2


@pytest.mark.parametrize("train", [None, 5, "train"])
def test_what_can_not_train_is_refused_before_anything_begins(train: Any) -> None:
    session = TrainingSession("loss", directory=None)
    with pytest.raises(It2nbError, match="give the function that trains once"):
        session.run_rounds(train, 2)
    assert session.status == "created"
