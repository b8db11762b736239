"""The ring of snapshots: bound, thinning, sharing."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from it2nb.pytorch.plain import tensors
from it2nb.pytorch.snapshots import Ring, Snapshot, size_of_live
from it2nb.pytorch.state import Live, restore

from .small import digest, same, small_run


def at(step: int, size: int = 100, *, is_change: bool = False) -> Snapshot:
    tree = {"w": torch.zeros(size, dtype=torch.uint8)}
    return Snapshot(step, 0, 0, tree, t=float(step), is_change=is_change)


def test_the_bound_holds_at_every_moment_and_the_newest_stays() -> None:
    ring = Ring(max_bytes=1000)
    for step in range(200):
        ring.add(at(step))
        assert ring.size_bytes == 100 * len(ring) <= 1000
        assert ring.newest is not None
        assert ring.newest.step == step
    ring.add(at(200, size=5000))
    assert [each.step for each in ring] == [200]


def test_the_near_past_is_dense_and_the_far_past_thin() -> None:
    ring = Ring(max_bytes=1000)
    for step in range(1000):
        ring.add(at(step))
    steps = [each.step for each in ring]
    assert len(steps) == 10
    ages = [1000 - step for step in steps]
    assert ages[0] > 300, "something old is kept"
    assert sum(age <= 20 for age in ages) >= 3, "and several new ones"
    gaps = [b - a for a, b in itertools.pairwise(steps)]
    assert gaps[0] > gaps[-1]


def test_what_was_before_a_change_outlives_its_neighbours() -> None:
    ring = Ring(max_bytes=1000)
    for step in range(100):
        ring.add(at(step, is_change=step == 50))
    assert 50 in [each.step for each in ring]


def test_the_count_is_bounded_too() -> None:
    ring = Ring(max_count=3)
    gone = [each.step for step in range(5) for each in ring.add(at(step, size=0))]
    assert len(ring) == 3
    assert len(gone) == 2


def test_shared_tensors_count_once_until_the_last_user_goes() -> None:
    shared = torch.zeros(300, dtype=torch.uint8)
    ring = Ring()
    for step in range(3):
        own = torch.zeros(100, dtype=torch.uint8)
        ring.add(Snapshot(step, 0, 0, {"a": shared, "b": own, "again": [shared]}))
    assert ring.size_bytes == 600
    ring.max_bytes = 500
    ring.add(Snapshot(3, 0, 0, {"a": shared}))
    assert ring.size_bytes == 300 + 100 * (len(ring) - 1) <= 500
    ring.clear()
    assert ring.size_bytes == len(ring) == 0


def test_frozen_weights_are_shared_and_learning_ones_copied() -> None:
    net = nn.Sequential(nn.Linear(100, 100), nn.Linear(100, 100))
    net[0].requires_grad_(False)
    opt = torch.optim.SGD(net[1].parameters(), lr=0.1)
    live, ring = Live({"net": net}, {"opt": opt}), Ring()

    def take() -> dict:
        tree = ring.take(live)
        ring.add(Snapshot(0, 0, 0, tree))
        return tree["models"]["net"]["state"]

    first = take()
    before = digest(first)
    net(torch.ones(1, 100)).sum().backward()
    opt.step()
    second = take()
    assert second["0.weight"] is first["0.weight"]
    assert second["1.weight"] is not first["1.weight"]
    assert digest(first) == before
    assert torch.equal(second["1.weight"], net.state_dict()["1.weight"])
    third = take()  # nothing happened in between, as in a pause
    assert third["1.weight"] is second["1.weight"]


@pytest.mark.parametrize("value", [float("nan"), -0.0, float("inf")])
def test_sharing_goes_by_bits(value: float) -> None:
    weight = nn.Parameter(torch.full((10_000,), value))
    live, ring = Live(stateful={"w": nn.ParameterList([weight])}), Ring()
    first = ring.take(live)["stateful"]["w"]["0"]
    assert ring.take(live)["stateful"]["w"]["0"] is first
    with torch.no_grad():
        weight[5000] = 0.0
    second = ring.take(live)["stateful"]["w"]["0"]
    assert second is not first
    assert digest([second]) == digest([weight])


def test_a_snapshot_from_the_ring_restores_to_the_bit_again_and_again() -> None:
    live, step = small_run("adamw", "onecycle")
    ring = Ring()
    for _ in range(10):
        step()
    ring.add(Snapshot(10, 0, 0, ring.take(live)))
    kept = ring.newest
    assert kept is not None
    before = digest(kept.tree)
    straight = [step() for _ in range(20)]
    ring.add(Snapshot(30, 0, 0, ring.take(live)))
    for _ in range(2):
        restore(live, kept.tree, clone=True)
        assert [step() for _ in range(20)] == straight
        assert digest(kept.tree) == before
    assert ring.newest is not None
    assert same(dict(ring.newest.tree), ring.take(live))


def test_non_finite_weights_are_found_anywhere() -> None:
    net = nn.Linear(2, 2)
    ring = Ring()
    assert Snapshot(0, 0, 0, ring.take(Live({"net": net}))).is_finite()
    with torch.no_grad():
        net.bias[1] = float("nan")
    assert not Snapshot(0, 0, 0, ring.take(Live({"net": net}))).is_finite()


def test_size_is_known_before_taking() -> None:
    live, step = small_run()
    step()
    tree = Ring().take(live)
    kept = sum(e.nbytes for e in tensors([tree["models"], tree["optimizers"]]))
    assert size_of_live(live) == kept
