"""A run whose process was killed, taken up by another one with the same run_id."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import it2nb
from it2nb.core.session import Session

KILLED = """
import os, signal
from it2nb.core.session import Session

session = Session(run_id="r", directory="it2runs")
cell = {"a": 0.5}
session.register_knob("a", lambda: cell["a"], lambda value: cell.update(a=value))
session.start()
for step in range(50):
    session.step({"loss": 1.0})
    if step == 20:
        session.submit({"type": "set_knob", "payload": {"name": "a", "value": 0.2}})
session.journal.seal()
session.submit({"type": "set_knob", "payload": {"name": "a", "value": 0.1}})
session.journal.seal()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def killed() -> None:
    subprocess.run([sys.executable, "-c", KILLED], timeout=60, check=False)


def again() -> Session:
    return Session(run_id="r", directory="it2runs")


def record_of(session: Session) -> Any:
    assert session.path is not None
    record = it2nb.open(session.path)
    assert record.verify().is_sealed
    return record


@pytest.mark.usefixtures("killed")
def test_a_request_that_the_killed_process_had_gets_its_one_result() -> None:
    session = again()
    assert session.journal.requests()["status"].tolist() == ["applied", "expired"]
    session.end()
    [_, last] = record_of(session).requests().to_dict("records")
    assert last["reason"] == "the process that had it ended"
    assert (last["name"], last["requested"], last["step"]) == ("a", 0.1, 50)


@pytest.mark.usefixtures("killed")
def test_steps_from_1_on_go_on_in_a_branch_of_their_own() -> None:
    session = again()
    with session.run():
        for _ in range(5):
            session.step({"loss": 2.0})
    frame = record_of(session).metrics.frame()
    assert frame["loss"].tolist() == [1.0] * 50 + [2.0] * 5
    assert frame["branch_id"].tolist() == [0] * 50 + [1] * 5
    assert frame["step"].tolist() == [*range(1, 51), *range(1, 6)]
    assert [(each.id, each.parent, each.step) for each in session.branches] == [
        (0, None, 0), (1, 0, 0),
    ]  # fmt: skip


@pytest.mark.usefixtures("killed")
@pytest.mark.parametrize(
    ("first", "branches", "forked_at"), [(51, [0], []), (60, [0], []), (41, [0, 1], [40])]
)
def test_a_loop_that_goes_on_from_its_own_checkpoint_says_so_by_its_numbers(
    first: int, branches: list[int], forked_at: list[int]
) -> None:
    session = again()
    with session.run():
        for step in range(first, first + 5):
            session.step({"loss": 2.0}, step=step)
    frame = record_of(session).metrics.frame()
    assert frame["branch_id"].unique().tolist() == branches
    assert frame["step"].tolist()[50:] == list(range(first, first + 5))
    assert [each.step for each in session.branches[1:]] == forked_at


@pytest.mark.usefixtures("killed")
def test_a_run_that_is_killed_twice_keeps_all_its_branches() -> None:
    session = again()
    session.start()
    session.step({"loss": 2.0})
    session.journal.close(seal=False)  # what is left of one that is killed
    third = again()
    with third.run():
        third.step({"loss": 3.0})
    frame = record_of(third).metrics.frame()
    assert frame["branch_id"].tolist()[-3:] == [0, 1, 2]
    assert [each.id for each in third.branches] == [0, 1, 2]


@pytest.mark.usefixtures("killed")
def test_rounds_of_a_run_that_was_taken_up_begin_in_its_new_branch() -> None:
    session = it2nb.TrainingSession("loss", run_id="r", directory="it2runs")

    def train(session: it2nb.TrainingSession, ctx: Any) -> None:
        session.step({"loss": 2.0})

    session.run_rounds(train, 2)
    frame = record_of(session).metrics.frame()
    new = frame[frame["loss"] == 2.0]
    assert list(zip(new["round"], new["branch_id"], new["step"], strict=True)) == [
        (0, 1, 1), (1, 1, 1),
    ]  # fmt: skip
