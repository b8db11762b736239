"""Evaluation leaves no trace in the training."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

from it2nb.pytorch import rng
from it2nb.pytorch.evaluate import evaluate, referents, undisturbed
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.state import capture

from .small import Net, same, small_run

DATA = TensorDataset(torch.arange(12.0).reshape(12, 1))
GLOBAL_NET = Net()
GLOBAL_LOADER = DataLoader(DATA, batch_size=3, shuffle=True, generator=torch.Generator())


def noisy() -> dict[str, Any]:
    random.random()
    np.random.rand()
    torch.rand(3)
    seen = [int(x[0][0]) for x in GLOBAL_LOADER]
    GLOBAL_NET.train()
    torch.set_grad_enabled(True)
    return {"val_loss": torch.tensor(0.5), "count": np.float32(len(seen))}


def test_metrics_come_back_as_numbers() -> None:
    assert evaluate(noisy) == {"val_loss": 0.5, "count": 4.0}
    assert evaluate(lambda: 0.25) == {"evaluate": 0.25}


def test_training_goes_on_as_if_nothing_was() -> None:
    live, step = small_run()
    for _ in range(3):
        step()
    kept = capture(live, Reducer(portable=False, clone=True))
    straight = [step() for _ in range(5)]
    from it2nb.pytorch.state import restore

    restore(live, kept, clone=True)
    went = []
    for _ in range(5):
        evaluate(noisy, live.models.values())
        went.append(step())
    assert went == straight


def test_streams_flags_and_grad_mode_are_as_before() -> None:
    net = GLOBAL_NET
    net.train()
    net.norm.eval()
    loader_state = GLOBAL_LOADER.generator.get_state().clone()
    streams = rng.capture()
    evaluate(noisy)
    assert torch.is_grad_enabled()
    assert [name for name, part in net.named_modules() if not part.training] == ["norm"]
    assert torch.equal(GLOBAL_LOADER.generator.get_state(), loader_state)
    assert same(rng.capture(), streams)


def test_inside_models_evaluate_without_gradients() -> None:
    net = Net()
    with undisturbed([net]):
        assert not torch.is_grad_enabled()
        assert not torch.is_inference_mode_enabled()
        assert not any(part.training for part in net.modules())
    assert all(part.training for part in net.modules())


def test_all_is_put_back_after_an_error() -> None:
    GLOBAL_NET.train()
    streams = rng.capture()

    def broken() -> None:
        noisy()
        GLOBAL_NET.eval()
        raise ValueError("no data")

    with pytest.raises(ValueError, match="no data"):
        evaluate(broken)
    assert GLOBAL_NET.training
    assert torch.is_grad_enabled()
    assert same(rng.capture(), streams)


def test_a_persistent_loader_in_mid_epoch_is_not_restarted() -> None:
    loader = DataLoader(DATA, batch_size=3, num_workers=1, persistent_workers=True)
    training = iter(loader)
    first = next(training)[0].tolist()

    def accuracy() -> float:
        return float(sum(x.sum() for (x,) in loader))

    assert evaluate(accuracy) == {"evaluate": 66.0}
    rest = [x.tolist() for (x,) in training]
    assert [first, *rest] == [x.tolist() for (x,) in DataLoader(DATA, batch_size=3)]
    del training
    loader._iterator = None


class Holder:
    def __init__(self) -> None:
        self.net = Net()

    def metric(self) -> float:
        return 0.0


def helper() -> float:
    return float(GLOBAL_NET.first.weight.sum())


def nested() -> float:
    return helper()


@pytest.mark.parametrize("how", ["global", "through a helper", "closure", "method", "partial"])
def test_what_a_function_refers_to_is_found(how: str) -> None:
    net: Any = Net()
    holder = Holder()
    functions: dict[str, tuple[Callable[..., Any], Any]] = {
        "global": (helper, GLOBAL_NET),
        "through a helper": (nested, GLOBAL_NET),
        "closure": (lambda: net(1), net),
        "method": (holder.metric, holder.net),
        "partial": (functools.partial(len, [net]), net),
    }
    function, wanted = functions[how]
    assert any(each is wanted for each in referents(function))


def test_a_samplers_own_generator_is_looked_after() -> None:
    own = torch.Generator()
    sampler = RandomSampler(DATA, generator=own)
    loader = DataLoader(DATA, batch_size=3, sampler=sampler)
    before = own.get_state().clone()
    evaluate(lambda: float(sum(len(x) for (x,) in loader)))
    assert torch.equal(own.get_state(), before)
