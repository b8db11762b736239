"""Rule 5: no optimizer step after a stop, in loops over `session.step` too."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import it2nb
from it2nb.core.control import StopTraining
from it2nb.core.session import Session
from tests.pytorch.steering import gradients, parameters

LIMIT_S = 20.0


def sgd(**options: Any) -> tuple[torch.optim.Optimizer, list[int]]:
    optimizer = torch.optim.SGD(parameters(), lr=0.1, **options)
    steps: list[int] = []
    optimizer.register_step_post_hook(lambda *_: steps.append(len(steps)))
    return optimizer, steps


def bound(*optimizers: torch.optim.Optimizer) -> it2nb.TrainingSession:
    session = it2nb.TrainingSession(directory=None)
    session.bind(torch.nn.Linear(2, 1), optimizers=optimizers)
    return session


def step(optimizer: torch.optim.Optimizer) -> None:
    gradients(optimizer)
    optimizer.step()


def test_rule_5_a_loop_that_ignores_the_control_makes_no_further_step() -> None:
    one, of_one = sgd()
    two, of_two = sgd()
    session = bound(one, two)
    with session.run():
        for at in range(10):
            step(one)
            step(two)
            if at == 4:
                handle = session.submit({"type": "stop"})
            session.step({"loss": 1.0})
    assert handle.result(0).status == "applied"
    assert (len(of_one), len(of_two), session.step_count) == (5, 5, 5)
    assert session.status == "stopped"


def test_the_step_under_way_is_finished_when_the_stop_has_not_been_told_yet() -> None:
    one, of_one = sgd()
    two, of_two = sgd()
    session = bound(one, two)
    with session.run():
        step(one)
        step(two)
        session.step({"loss": 1.0})
        step(one)
        assert session.submit({"type": "stop"}, wait=True).ok
        step(two)
        assert session.step({"loss": 1.0}).stop
    assert (len(of_one), len(of_two), session.step_count) == (2, 2, 2)


def test_a_loop_that_leaves_evaluates_and_goes_on_with_its_optimizer_afterwards() -> None:
    optimizer, steps = sgd()
    session = bound(optimizer)
    evaluated = False
    with session.run():
        for _ in range(10):
            step(optimizer)
            session.submit({"type": "stop"})
            if session.step({"loss": 1.0}).stop:
                break
        with torch.no_grad():
            evaluated = True
    assert evaluated and session.status == "stopped"
    step(optimizer)  # the run is over: it is the program's again
    assert len(steps) == 2


def test_optimizers_of_other_runs_and_threads_go_on() -> None:
    optimizer, steps = sgd()
    other, of_other = sgd()
    free, of_free = sgd()
    session, second = bound(optimizer), bound(other)
    with second.run():
        second.step({"loss": 1.0})
        with session.run():
            session.step({"loss": 1.0})
            session.submit({"type": "stop"})
            assert session.step({"loss": 1.0}).stop
            step(other)
            step(free)
            elsewhere = threading.Thread(target=step, args=(optimizer,))
            elsewhere.start()
            elsewhere.join(LIMIT_S)
            with pytest.raises(StopTraining):
                step(optimizer)
    assert (len(steps), len(of_other), len(of_free)) == (1, 1, 1)


def test_the_next_round_steps_again_after_a_round_was_left() -> None:
    session = it2nb.TrainingSession("loss", directory=None)
    made: list[int] = []

    def train(session: Session, ctx: Any) -> None:
        optimizer, steps = sgd()
        session.bind(torch.nn.Linear(2, 1), optimizers=[optimizer])
        try:
            for _ in range(5):
                step(optimizer)
                if len(steps) == 2:
                    session.submit({"type": "end_round"})
                session.step({"loss": 1.0})
        finally:
            made.append(len(steps))

    session.run_rounds(train, 2)
    assert made == [2, 2]
