"""Requests of the loop's own code in a replay: the same code makes them again, or is told of."""

from __future__ import annotations

from collections.abc import Callable

import torch

import it2nb
from it2nb.core.comparison import Verdict
from it2nb.session import TrainingSession

Asks = Callable[[int, TrainingSession], object]


def train(session: TrainingSession, asks: Asks) -> TrainingSession:
    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    adam = torch.optim.AdamW(net.parameters(), lr=0.05)
    session.bind(net, optimizers=[adam])
    with session.run():
        for step in range(1, 13):
            loss = net(torch.randn(8, 4)).square().mean()
            adam.zero_grad()
            loss.backward()
            adam.step()
            asks(step, session)
            session.step({"loss": loss})
    return session


def replayed(recorded: Asks, here: Asks) -> tuple[TrainingSession, Verdict]:
    """Record a run, and do it again with a loop that may ask for something else."""
    first = train(TrainingSession(), recorded)
    assert first.path is not None
    replay = it2nb.replay(first.path)
    return train(TrainingSession(replay=replay), here), replay.verify()


def set_lr(at: int, value: float = 0.2) -> Asks:
    return lambda step, session: session.set("lr", value) if step == at else None


def nothing(step: int, session: TrainingSession) -> None:
    """A loop that asks for nothing."""


def test_what_follows_from_the_id_of_a_request_is_the_same_again() -> None:
    def reset(step: int, session: TrainingSession) -> None:
        if step in (4, 8):
            session.do("reset_module", name="0")

    _, verdict = replayed(reset, reset)
    assert verdict, str(verdict)


def test_a_request_that_the_loop_named_itself_keeps_its_name() -> None:
    def named(step: int, session: TrainingSession) -> None:
        if step == 4:
            action = {"type": "set_knob", "payload": {"name": "lr", "value": 0.2}, "id": "mine"}
            session.submit(action)

    session, verdict = replayed(named, named)
    assert verdict, str(verdict)
    assert session.result("mine") is not None


def test_a_request_that_is_made_no_longer_is_told_with_its_step() -> None:
    _, verdict = replayed(set_lr(5), nothing)
    assert verdict.requests == ["set_knob lr at step 5 was the recorded loop's, not this one's"]
    assert verdict.requests[0] in str(verdict)


def test_a_request_that_is_new_or_another_is_told_with_its_step() -> None:
    _, new = replayed(nothing, set_lr(5))
    assert new.requests == ["set_knob lr at step 5 is this loop's, not the recorded one's"]
    _, other = replayed(set_lr(5), set_lr(5, 0.3))
    assert len(other.requests) == 2
    _, moved = replayed(set_lr(5), set_lr(7))
    assert moved.requests == ["set_knob lr of the loop was at step 5 and is at step 7"]


def test_what_changes_nothing_may_be_left_out() -> None:
    def notes(step: int, session: TrainingSession) -> None:
        if step == 5:
            session.do("note", text="here")

    _, verdict = replayed(notes, nothing)
    assert verdict, str(verdict)
