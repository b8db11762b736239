"""Random streams: captured, restored, left alone."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from it2nb.core.errors import Rejected
from it2nb.pytorch import rng

from .small import same


def draw() -> tuple:
    return (
        random.random(),
        random.gauss(0, 1),
        float(np.random.rand()),
        float(np.random.standard_normal()),
        float(torch.rand(())),
        torch.randperm(5).tolist(),
    )


def test_the_global_streams_go_on_where_they_were() -> None:
    draw()  # one gauss of each pair is kept back inside the streams
    state = rng.capture()
    first = draw()
    draw()
    assert rng.restore(state) == []
    assert draw() == first
    rng.restore(state)
    assert draw() == first


def test_capture_and_restore_draw_nothing() -> None:
    state = rng.capture()
    rng.restore(rng.capture())
    assert same(rng.capture(), state)


def test_named_generators_come_back_and_missing_ones_are_told() -> None:
    one, two = torch.Generator().manual_seed(1), np.random.default_rng(2)
    three, four = np.random.RandomState(3), random.Random(4)
    mine: dict[str, rng.Generator] = {"torch": one, "numpy": two, "legacy": three, "python": four}
    state = rng.capture(mine)

    def all_of_them() -> tuple:
        return float(torch.rand(1, generator=one)), two.random(), three.rand(), four.random()

    first = all_of_them()
    rng.restore(state, mine)
    assert all_of_them() == first
    assert rng.restore(state) == [
        f"the generator {name!r} was saved and is not here: left out" for name in mine
    ]


def test_a_state_of_another_kind_is_refused() -> None:
    saved = rng.state_of(random.Random(1))
    with pytest.raises(Rejected, match="kind 'python'"):
        rng.put_back(torch.Generator(), saved)


def test_preserved_also_after_an_error() -> None:
    own = torch.Generator().manual_seed(1)
    state, own_state = rng.capture(), own.get_state().clone()
    with pytest.raises(ZeroDivisionError), rng.preserved(own):
        draw()
        torch.rand(3, generator=own)
        raise ZeroDivisionError
    assert same(rng.capture(), state)
    assert torch.equal(own.get_state(), own_state)


def test_cuda_is_not_woken() -> None:
    """C54: whoever initialises CUDA before a notebook launcher breaks it."""
    with rng.preserved():
        rng.capture()
    assert not torch.cuda.is_initialized()
