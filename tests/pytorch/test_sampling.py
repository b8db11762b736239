"""Sampling weights and curriculum as knobs: in force where the result says, and repeatable."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from it2nb.core.errors import KnobError
from it2nb.pytorch.curriculum import CurriculumSampler
from it2nb.pytorch.sources import SourceSampler
from it2nb.session import TrainingSession

CLEAN = TensorDataset(torch.arange(40))
NOISY = TensorDataset(torch.arange(1000, 1040))


def mixed(session: TrainingSession | None = None, **weights: float) -> SourceSampler:
    return SourceSampler({"clean": CLEAN, "noisy": NOISY}, weights, session=session)


def share_of_noise(batch: Any) -> float:
    return float((batch[0] >= 1000).float().mean())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_weight_holds_from_the_batch_that_the_result_names(workers: int) -> None:
    session = TrainingSession(directory=None)
    mix = mixed(session, noisy=0.0)
    loader = DataLoader(mix.dataset, sampler=mix, batch_size=4, num_workers=workers)
    seen: list[float] = []
    handle = None
    with session.run():
        for batch in loader:
            seen.append(share_of_noise(batch))
            session.step({"noise": seen[-1]})
            if len(seen) == 5:
                handle = session.batch({"weight[noisy]": 1.0, "weight[clean]": 0.0})
    assert handle is not None
    result = handle.result(0)
    prefetched = 2 * workers  # two batches a worker, as DataLoader does by default
    first = 6 + prefetched
    assert seen == [0.0] * first + [1.0] * (20 - first)
    reasons = [each["reason"] for each in result.data]
    assert all(f"in force from batch {first} of this pass on" in each for each in reasons), reasons
    assert all(("already prefetched" in each) == bool(prefetched) for each in reasons), reasons


def test_weights_that_leave_nothing_to_draw_are_rejected_and_nothing_changes() -> None:
    session = TrainingSession(directory=None)
    mix = mixed(session, noisy=0.0)
    with session.run():
        session.pump()
        result = session.submit(
            {"type": "set_knob", "payload": {"name": "weight[clean]", "value": 0.0}}, wait=True
        )
    assert result.status == "rejected"
    assert "nothing could be drawn" in result.reason
    assert mix.settings == {"weight[clean]": 1.0, "weight[noisy]": 0.0}


def test_each_item_of_a_source_comes_once_before_one_comes_again() -> None:
    mix = mixed(TrainingSession(directory=None), noisy=0.25)
    indices = list(mix)
    clean = [each for each in indices if each < 40]
    assert len(indices) == len(mix) == 80
    assert sorted(clean[:40]) == list(range(40))
    assert mix.counts == {"clean": len(clean), "noisy": 80 - len(clean)}
    assert 5 <= mix.counts["noisy"] <= 30


def test_seed_and_pass_decide_what_is_drawn_and_no_global_stream_is_used() -> None:
    session = TrainingSession(directory=None)
    state = torch.get_rng_state()
    first = [list(mixed(session)) for _ in range(2)]
    mix = mixed(session)
    passes = [list(mix), list(mix)]
    assert first[0] == first[1] == passes[0] != passes[1]
    assert torch.equal(state, torch.get_rng_state())


def test_undo_draws_the_pass_again_with_what_was_set_at_the_time() -> None:
    session = TrainingSession(directory=None)
    mix = mixed(session, noisy=0.2)
    net = torch.nn.Linear(1, 1)
    adam = torch.optim.AdamW(net.parameters())
    session.bind(net, optimizers=[adam])
    seen: list[tuple[int, int, list[int]]] = []
    with session.run():
        for batch in session.loop(DataLoader(mix.dataset, sampler=mix, batch_size=4)):
            seen.append((session.branch_id, session.step_count, batch[0].tolist()))
            session.log(noise=share_of_noise(batch))
            if session.branch_id == 0:
                if session.step_count == 3:
                    session.set("weight[noisy]", 0.9)
                elif session.step_count == 7:
                    session.set("weight[noisy]", 0.1)
                elif session.step_count == 12:
                    session.do("undo")
    before = {step: items for branch, step, items in seen if branch == 0}
    after = {step: items for branch, step, items in seen if branch == 1}
    assert min(after) == 8  # from before the second change; the first one is in force
    assert session.knobs["weight[noisy]"].value == 0.9
    straight = mixed(TrainingSession(directory=None), noisy=0.2)
    draws = iter(straight)
    wanted: dict[int, list[int]] = {}
    for step in range(20):
        if step == 4:
            straight.assign("weight[noisy]", 0.9)
        drawn = [next(draws) for _ in range(4)]
        wanted[step] = [int(straight.dataset[each][0]) for each in drawn]
    assert after == {step: wanted[step] for step in after}
    assert all(before[step] == wanted[step] for step in range(8))
    assert before[9] != wanted[9]


def test_a_curriculum_draws_from_the_easiest_share() -> None:
    session = TrainingSession(directory=None)
    difficulty = [float(each % 10) for each in range(100)]
    easy = CurriculumSampler(difficulty, share=0.2, session=session)
    seen: list[float] = []
    with session.run():
        for index in easy:
            seen.append(difficulty[index])
            session.step({"difficulty": seen[-1]})
            if len(seen) == 50:
                session.set("curriculum", 0.6)
    assert max(seen[:51]) == 1.0
    assert max(seen[51:]) == 5.0
    full = CurriculumSampler(difficulty, session=session, knob="all")
    assert sorted(full) == list(range(100))


def test_a_share_of_nothing_is_rejected() -> None:
    session = TrainingSession(directory=None)
    easy = CurriculumSampler([1.0, 2.0], session=session)
    with session.run():
        session.pump()
        result = session.submit(
            {"type": "set_knob", "payload": {"name": "curriculum", "value": 0.0}}, wait=True
        )
    assert (result.status, easy.settings["curriculum"]) == ("rejected", 1.0)


def test_a_sampler_that_was_made_first_finds_the_run_that_starts_next() -> None:
    mix = mixed()
    session = TrainingSession(directory=None)
    net = torch.nn.Linear(1, 1)
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    session.autopatch(sgd)
    assert {"weight[clean]", "weight[noisy]"} <= set(session.knobs)
    assert mix.has_session
    session.end()
    assert not mix.has_session


def test_another_knob_of_that_name_is_not_pushed_aside() -> None:
    session = TrainingSession(directory=None)
    session.register_knob("curriculum", lambda: 1.0, lambda value: None)
    with pytest.raises(KnobError, match="give the sampler another knob"):
        CurriculumSampler([1.0], session=session)


@pytest.mark.parametrize(
    "make, said",
    [
        (lambda: SourceSampler({}), "needs items"),
        (lambda: SourceSampler({"a": CLEAN, "b": []}), "empty: b"),
        (lambda: SourceSampler({"a": CLEAN}, {"b": 1.0}), "the sources are"),
        (lambda: SourceSampler({"a": CLEAN}, {"a": 2.0}), "between 0 and 1"),
        (lambda: SourceSampler({"a": CLEAN}, {"a": 0.0}), "nothing could be drawn"),
        (lambda: CurriculumSampler([]), "one number for each item"),
        (lambda: CurriculumSampler([1.0], share=0.0), "above 0"),
        (lambda: CurriculumSampler([1.0], num_samples=-1), "at least 1"),
    ],
)
def test_what_makes_no_sense_is_said_when_it_is_made(make: Any, said: str) -> None:
    with pytest.raises(KnobError, match=said):
        make()
