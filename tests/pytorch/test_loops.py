"""session.loop: the turns of a loop are the steps of the run."""

from __future__ import annotations

import torch

from it2nb.core.session import Session
from it2nb.pytorch.hooks import attach
from it2nb.pytorch.loops import loop
from it2nb.pytorch.optimizers import add_optimizer_knobs
from tests.pytorch.steering import gradients, parameters, record, statuses


def test_each_turn_ends_at_a_control_point_with_what_was_logged() -> None:
    session = Session(directory=None)
    seen = []
    with session.run():
        for item in loop(session, ["a", "b", "c"], lambda: {"acc": 0.5}):
            seen.append((item, session.step_count))
            session.log({"loss": float(len(seen))}, norm=2.0)
    assert seen == [("a", 0), ("b", 1), ("c", 2)]
    assert session.step_count == 3
    assert session.metrics.latest() == {"loss": (3, 3.0), "norm": (3, 2.0), "acc": (3, 0.5)}


def test_it_has_the_length_of_the_iterable_and_runs_as_often() -> None:
    session = Session(directory=None)
    wrapped = loop(session, [1, 2])
    assert len(wrapped) == 2
    with session.run():
        assert [list(wrapped), list(wrapped)] == [[1, 2], [1, 2]]
    assert session.step_count == 4


def test_stop_ends_the_loop_as_if_it_were_at_its_end() -> None:
    session = Session(directory=None)
    done = []
    with session.run():
        for item in loop(session, range(10)):
            done.append(item)
            if item == 3:
                session.submit({"type": "stop"})
        else:
            done.append(-1)
    assert done == [0, 1, 2, 3, -1] and session.status == "stopped"
    with Session(directory=None).run() as over:
        over.submit({"type": "stop"})
        over.pump()
        assert list(loop(over, range(3))) == []


def test_break_and_continue_keep_their_meaning() -> None:
    session = Session(directory=None)
    with session.run():
        for item in loop(session, range(10)):
            if item % 2:
                continue
            session.log(loss=float(item))
            if item == 4:
                break
    # The turn that was left logged something: it is a step too.
    assert session.step_count == 5
    assert session.metrics.latest()["loss"] == (5, 4.0)


def test_knobs_of_an_optimizer_work_without_step_hooks_of_a_session() -> None:
    session = Session(directory=None)
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    add_optimizer_knobs(session, optimizer)
    used = record(optimizer)
    with session.run():
        for item in loop(session, range(4)):
            gradients(optimizer)
            optimizer.step()
            if item == 1:
                session.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.5}})
    assert used == [0.1, 0.1, 0.5, 0.5] and statuses(session) == ["applied"]


def test_a_turn_whose_optimizer_step_counted_is_no_second_step() -> None:
    session = Session(directory=None)
    optimizer = torch.optim.SGD(parameters(), lr=0.1)
    with session.run():
        attach(session)
        for item in loop(session, range(3)):
            gradients(optimizer)
            optimizer.step()
            session.log(loss=float(item))
    assert session.step_count == 3
    assert session.metrics.latest()["loss"] == (3, 2.0)
