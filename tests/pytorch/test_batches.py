"""Batches that can be wound back: the same data, in the same order, with the same noise."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from it2nb.core.session import Session
from it2nb.pytorch.hooks import attach
from it2nb.pytorch.loops import loop
from it2nb.pytorch.past import DATA_GOES_ON
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.rewind import install
from it2nb.pytorch.state import Live, capture

from .small import same


class Noisy(Dataset[torch.Tensor]):
    """Data with random augmentation."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), float(index)) + torch.rand(4) + random.random()


class Stream(IterableDataset[torch.Tensor]):
    """Data without indices."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(24):
            yield torch.full((4,), float(index)) + torch.rand(4)


def with_own_generator() -> DataLoader[Any]:
    return DataLoader(
        Noisy(), batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(9)
    )


LOADERS: dict[str, Callable[[], Iterable[Any]]] = {
    "shuffled": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True),
    "own generator": with_own_generator,
    "in order": lambda: DataLoader(Noisy(), batch_size=4),
    "weighted": lambda: DataLoader(
        Noisy(), batch_size=4, sampler=WeightedRandomSampler([1.0, 3.0] * 12, 24)
    ),
    "by epoch": lambda: DataLoader(
        Noisy(), batch_size=4, sampler=DistributedSampler(Noisy(), num_replicas=1, rank=0)
    ),
    "iterable": lambda: DataLoader(Stream(), batch_size=4),
    "list": lambda: [torch.full((4, 4), float(n)) for n in range(6)],
    "workers": lambda: DataLoader(Noisy(), batch_size=4, shuffle=True, num_workers=2),
}


class Training:
    """A loop over ``session.loop`` in which something is asked after given numbers of turns."""

    def __init__(self, items: Iterable[Any], *, epochs: int = 4, hooks: bool = False) -> None:
        torch.manual_seed(3)
        random.seed(4)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.4), nn.Linear(8, 4))
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=0.01)
        self.sched = torch.optim.lr_scheduler.ExponentialLR(self.opt, 0.99)
        self.session = Session(directory=None)
        self.session.bind(self.net, optimizers=[self.opt], schedulers=[self.sched])
        self.rewind = install(self.session, snapshots={"every": 1, "max_share": 1e9})
        self.items, self.epochs, self.hooks = items, epochs, hooks
        self.seen: list[tuple[int, int, float, float]] = []
        self.results: list[Any] = []

    def run(self, asks: dict[int, tuple[str, dict[str, Any]]] | None = None) -> None:
        """Train; `asks` maps the number of the turn to a request."""
        turns, session = 0, self.session
        if self.hooks:
            attach(session)
        with session.run():
            for x in loop(session, self.items, epochs=self.epochs):
                turns += 1
                loss = F.mse_loss(self.net(x), x)
                self.opt.zero_grad()
                loss.backward()
                handle = None
                if asks and turns in asks:
                    name, payload = asks[turns]
                    handle = session.submit({"type": name, "payload": payload})
                before = (session.branch_id, session.step_count + 1)
                self.opt.step()
                self.sched.step()
                self.seen.append((*before, float(x.sum()), loss.item()))
                if handle is not None:
                    self.results.append(handle)
            self.end = capture(
                Live({"net": self.net}, {"o": self.opt}, {"s": self.sched}),
                Reducer(portable=False, clone=True),
            )


def by_step(seen: list[tuple[int, int, float, float]], branch: int) -> dict[int, tuple[float, ...]]:
    return {step: rest for b, step, *rest in seen if b == branch}  # type: ignore[misc]


@pytest.mark.parametrize("hooks", [False, True], ids=["explicit", "hooks"])
@pytest.mark.parametrize("kind", LOADERS)
def test_going_back_and_on_equals_never_having_left(kind: str, hooks: bool) -> None:
    straight = Training(LOADERS[kind](), hooks=hooks)
    straight.run()
    assert len(straight.seen) == 24
    again = Training(LOADERS[kind](), hooks=hooks)
    # From epoch 3 into the middle of epoch 2, and once more from there into epoch 1.
    again.run({15: ("goto", {"step": 9}), 18: ("goto", {"step": 4})})
    assert [(each.result(0).status, each.result(0).reason) for each in again.results] == [
        ("applied", None)
    ] * 2
    assert [each.result(0).data["notes"] for each in again.results] == [[], []]
    first = by_step(straight.seen, 0)
    assert by_step(again.seen, 0) == {step: first[step] for step in range(1, 16)}
    assert by_step(again.seen, 1) == {step: first[step] for step in range(10, 13)}
    assert by_step(again.seen, 2) == {step: first[step] for step in range(5, 25)}
    assert same(again.end, straight.end)


@pytest.mark.parametrize("kind", ["shuffled", "own generator", "workers"])
def test_another_run_goes_on_from_a_file_with_the_next_batch(kind: str, tmp_path: Path) -> None:
    first = Training(LOADERS[kind]())
    first.run({9: ("save_checkpoint", {})})
    path = first.results[0].result(0).data["path"]
    other = Training(LOADERS[kind]())
    torch.manual_seed(77)
    random.seed(88)
    other.run({1: ("load_checkpoint", {"path": path})})
    result = other.results[0].result(0)
    assert result.data["other_run"] == first.session.run_id
    assert result.data["notes"] == []
    assert by_step(other.seen, 1) == {
        step: rest for step, rest in by_step(first.seen, 0).items() if step > 9
    }
    assert same(other.end, first.end)


def test_workers_that_persist_repeat_the_order_and_say_what_they_do_not() -> None:
    def made() -> DataLoader[Any]:
        data = [torch.full((4,), float(n)) for n in range(24)]
        return DataLoader(
            data,  # type: ignore[arg-type]
            batch_size=4,
            shuffle=True,
            num_workers=1,
            persistent_workers=True,
        )

    straight = Training(made())
    straight.run()
    again = Training(made())
    again.run({15: ("goto", {"step": 9})})
    assert "keep their own random streams" in again.results[0].result(0).data["notes"][0]
    first = by_step(straight.seen, 0)
    assert by_step(again.seen, 1) == {step: first[step] for step in range(10, 25)}


def test_from_the_end_of_an_epoch_too() -> None:
    straight = Training(LOADERS["shuffled"]())
    straight.run()
    again = Training(LOADERS["shuffled"]())
    again.run({7: ("goto", {"step": 6}), 9: ("goto", {"step": 5})})
    assert by_step(again.seen, 2) == {
        step: rest for step, rest in by_step(straight.seen, 0).items() if step > 5
    }
    assert same(again.end, straight.end)


def test_a_loop_of_the_users_around_ours_goes_back_by_the_random_state() -> None:
    def run(back: bool) -> list[tuple[int, float]]:
        torch.manual_seed(3)
        random.seed(4)
        net = nn.Linear(4, 4)
        opt = torch.optim.SGD(net.parameters(), lr=0.01)
        session = Session(directory=None)
        session.bind(net, optimizers=[opt])
        install(session, snapshots={"every": 1, "max_share": 1e9})
        loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
        seen: list[tuple[int, float]] = []
        with session.run():
            for _ in range(3):
                for x in loop(session, loader):
                    if back and len(seen) == 9:
                        back = False
                        session.submit({"type": "goto", "payload": {"step": 3}})
                    seen.append((session.step_count + 1, float(x.sum())))
                    F.mse_loss(net(x), x).backward()
                    opt.step()
                    opt.zero_grad()
        return seen

    straight, again = run(False), run(True)
    assert again[:10] == straight[:10]
    assert again[10:] == straight[3 : 3 + len(again) - 10]
    assert len(again) == 10 + 3 + 6, "the rest of that epoch, and the one that was left to count"


def test_a_generator_is_used_up_and_that_is_said() -> None:
    items = (torch.full((4, 4), float(n)) for n in range(8))
    training = Training(items, epochs=1)
    training.run({6: ("goto", {"step": 2})})
    notes = training.results[0].result(0).data["notes"]
    assert notes == [DATA_GOES_ON.format(step=2)]
    assert len(training.seen) == 8


def test_leaving_by_break_begins_the_next_epoch_anew() -> None:
    session = Session(directory=None)
    loader: DataLoader[Any] = DataLoader(torch.arange(6.0), batch_size=1)  # type: ignore[arg-type]
    with session.run():
        for x in loop(session, loader):
            if x == 2:
                break
        assert [x.item() for x in loop(session, loader)] == [0, 1, 2, 3, 4, 5]


def test_two_loops_keep_two_positions() -> None:
    train, val = DataLoader(Noisy(), batch_size=4, shuffle=True), [torch.zeros(1)] * 3
    session = Session(directory=None)
    with session.run():
        for _ in loop(session, train):
            for _ in loop(session, val):
                pass
        kept = session.bound.stateful
        assert {name: each.state_dict()["length"] for name, each in kept.items()} == {
            "loop": 6,
            "loop_1": 3,
        }


def test_without_pytorch_loaded_the_loop_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    session = Session(directory=None)
    monkeypatch.delitem(sys.modules, "torch")
    with session.run():
        assert list(loop(session, [1, 2], epochs=2)) == [1, 2, 1, 2]
    assert session.bound.stateful == {}
