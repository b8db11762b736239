"""The GPT: causal, turned by position, resettable, and measured on the same windows each time."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from it2nb.pytorch.reset import reset_module
from it2nb.session import TrainingSession
from it2nb.workflows.gpt import GPT, Shape, rotate, turns
from it2nb.workflows.layerwise import SHAPES, parts_of
from it2nb.workflows.mixing import macro_f1
from it2nb.workflows.text import text_of
from it2nb.workflows.training import gradient_norm

SHAPE = Shape(vocabulary=50, context=16, width=16, blocks=2, heads=4, kv_heads=2, hidden=24)


@pytest.fixture
def model() -> GPT:
    torch.manual_seed(0)
    return GPT(SHAPE)


def test_no_token_sees_a_later_one(model: GPT) -> None:
    one = torch.randint(50, (1, 16), generator=torch.Generator().manual_seed(1))
    other = one.clone()
    other[0, 9:] = (other[0, 9:] + 1) % 50
    left, right = model(one), model(other)
    assert torch.equal(left[0, :9], right[0, :9])
    assert not torch.equal(left[0, 9], right[0, 9])


def test_turned_heads_keep_their_length_and_only_distances_matter() -> None:
    turn = turns(16, 8)
    x, y = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    many = rotate(x.expand(1, 16, 1, 8), turn)
    assert many.norm(dim=-1).flatten().tolist() == pytest.approx([float(x.norm())] * 16, rel=1e-5)
    keys = rotate(y.expand(1, 16, 1, 8), turn)
    products = (many[0, 3:, 0] * keys[0, :-3, 0]).sum(-1)
    assert products.tolist() == pytest.approx([float(products[0])] * 13, rel=1e-4, abs=1e-5)


def test_each_parameter_is_in_one_part_and_each_part_can_be_reset(model: GPT) -> None:
    parts = parts_of(model)
    assert list(parts) == ["embedding", "block.0", "block.1", "head", "rest"]
    counted = sum(p.numel() for part in parts.values() for p in part.parameters())
    assert counted == sum(p.numel() for p in model.parameters())
    weight = model.get_parameter("blocks.1.attention.q.weight")
    before = weight.clone()
    reset_module(model.blocks[1], seed=1, root=model)
    assert not torch.equal(before, weight)


def test_the_papers_depth_has_27_rates_each_of_them_a_knob() -> None:
    model = GPT(Shape(20, 8, 8, SHAPES["paper"][0][2], 2, 1, 8))
    parts = parts_of(model)
    assert len(parts) == 27
    optimizer = torch.optim.AdamW(
        [{"name": name, "params": list(part.parameters())} for name, part in parts.items()]
    )
    session = TrainingSession(directory=None)
    session.register_optimizer(optimizer, only=("lr",))
    assert list(session.knobs) == ["lr", *(f"lr[{name}]" for name in parts)]
    session.end()


def test_held_out_windows_are_the_same_and_the_model_trains_on(model: GPT) -> None:
    text = text_of("ci")
    model = GPT(Shape(text.vocabulary, 16, 16, 1, 2, 1, 24))
    evaluate = text.evaluator(model, 40, 16)
    assert evaluate() == evaluate()
    assert evaluate()["val_loss"] == pytest.approx(5.545, abs=0.2)
    assert model.training
    x, y = text.batch(torch.Generator().manual_seed(0), 3, 16)
    assert torch.equal(x[:, 1:], y[:, :-1])


def test_macro_f1_is_the_mean_of_the_classes() -> None:
    found = macro_f1(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 1]))
    assert found["f1/negative"] == pytest.approx(2 / 3)
    assert found["f1/neutral"] == pytest.approx(0.5)
    assert found["f1/positive"] == 0
    assert found["macro_f1"] == pytest.approx((2 / 3 + 0.5) / 3)


def test_a_gradients_norm_is_over_all_of_them() -> None:
    one, other = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    assert gradient_norm([one, other]) == 0
    one.grad, other.grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert gradient_norm([one, other]) == pytest.approx(5)
