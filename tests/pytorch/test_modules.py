"""Reset, freeze, settings of layers, and the tree of a model."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from it2nb.core.errors import Rejected
from it2nb.core.session import Session
from it2nb.pytorch import modules
from it2nb.pytorch.freezing import Freezer
from it2nb.pytorch.hooks import attach
from it2nb.pytorch.layer_settings import module_knobs
from it2nb.pytorch.module_tree import MAX_NODES, find_module, model_tree, module_offers
from it2nb.pytorch.reset import reset_module
from tests.pytorch.steering import rows, statuses


class Net(nn.Module):
    body: Any

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 4)
        self.body = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.25))
        self.attend = nn.MultiheadAttention(4, 2, dropout=0.1)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.body(self.stem(x))
        return self.norm(self.attend(hidden, hidden, hidden)[0])


class Bare(nn.Module):
    """Has a weight and no way to initialise it."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))


def started(kind: str = "AdamW") -> tuple[Session, Net, torch.optim.Optimizer]:
    torch.manual_seed(3)
    net = Net()
    optimizer = getattr(torch.optim, kind)(net.parameters(), lr=0.01)
    session = Session(directory=None)
    session.bind(net, optimizers=[optimizer])
    return session, net, optimizer


def step(net: Net, optimizer: torch.optim.Optimizer) -> None:
    optimizer.zero_grad()
    net(torch.randn(6, 4)).pow(2).mean().backward()
    optimizer.step()


def do(session: Session, kind: str, **payload: Any) -> Any:
    handle = session.submit({"type": kind, "payload": payload})
    session.pump()
    return handle.result(1.0)


def streams() -> list[Any]:
    numpy: Any = np.random.get_state()
    return [torch.get_rng_state().tolist(), random.getstate(), numpy[1].tolist()]


def test_reset_initialises_anew_and_lets_the_moments_go() -> None:
    session, net, optimizer = started()
    with session.run():
        attach(session)
        for _ in range(3):
            step(net, optimizer)
        kept = {n: p.detach().clone() for n, p in net.named_parameters()}
        running = net.body[1].running_mean.clone()
        identity = [id(p) for p in net.parameters()]
        before = streams()
        result = do(session, "reset_module", name="body", seed=11)
        assert streams() == before
        for name, parameter in net.named_parameters():
            assert torch.equal(parameter, kept[name]) is not name.startswith("body")
        assert not torch.equal(net.body[1].running_mean, running)
        assert identity == [id(p) for p in net.parameters()]
        ours = set(net.body.parameters())
        assert all((p in optimizer.state) is (p not in ours) for p in net.parameters())
        for _ in range(2):
            step(net, optimizer)

    assert result.status == "applied"
    assert result.data == {"name": "body", "seed": 11, "params": 4, "moments": 4}
    assert rows(session, "module_reset") == [result.data]
    # The first linear layer drawn from this seed, by hand.
    generator = torch.Generator().manual_seed(11)
    fresh = torch.empty(4, 4)
    nn.init.kaiming_uniform_(fresh, a=5**0.5, generator=generator)
    torch.manual_seed(11)
    other = nn.Linear(4, 4)
    with torch.no_grad():
        reset_module(net.body, seed=11)
    assert torch.equal(net.body[0].weight, other.weight)
    assert torch.equal(fresh, other.weight)


def test_a_reset_without_seed_records_the_one_that_was_drawn() -> None:
    session, net, _ = started()
    with session.run():
        attach(session)
        first = do(session, "reset_module", name="attend")
        drawn = net.attend.in_proj_weight.detach().clone()
        again = do(session, "reset_module", name="attend", seed=first.data["seed"])
        assert torch.equal(net.attend.in_proj_weight, drawn)
    assert first.ok and again.ok


def test_what_cannot_initialise_itself_is_rejected_before_anything_is_touched() -> None:
    first = nn.Linear(2, 2)
    net = nn.Sequential(first, Bare())
    weight = first.weight.detach().clone()
    with pytest.raises(Rejected, match="Bare has parameters of its own"):
        reset_module(net)
    assert torch.equal(first.weight, weight)

    class Root(nn.Sequential):
        def _init_weights(self, module: nn.Module) -> None:
            module.get_parameter("scale").fill_(7.0)

    root = Root(nn.Linear(2, 2), Bare())
    reset_module(root, root=root)
    assert root[1].get_parameter("scale").tolist() == [7.0] * 4


def test_lbfgs_forgets_all_when_a_part_is_reset() -> None:
    session, net, optimizer = started("LBFGS")

    def closure() -> Any:
        optimizer.zero_grad()
        loss = net(torch.ones(6, 4)).pow(2).mean()
        loss.backward()
        return loss

    with session.run():
        attach(session)
        optimizer.step(closure)
        assert optimizer.state
        assert do(session, "reset_module", name="stem").ok
        assert not optimizer.state
        optimizer.step(closure)


def test_unknown_and_disallowed_names_are_rejected() -> None:
    session, _, _ = started()
    modules.install(session, allow=["body*", "stem"])
    with session.run():
        attach(session)
        unknown = do(session, "reset_module", name="stemm")
        outside = do(session, "freeze", name="norm")
        inside = do(session, "freeze", name="body.0")
    assert "may not be changed" in (unknown.reason or "")
    assert "may not be changed" in (outside.reason or "")
    assert inside.ok
    with pytest.raises(Rejected, match="did you mean 'stem'"):
        find_module([Net()], "stemm")


def test_without_a_model_the_actions_say_why_they_are_off() -> None:
    session = Session(directory=None)
    with session.run():
        attach(session)
        assert do(session, "reset_module", name="x").reason == (
            "no model was found; session.bind_model(model)"
        )


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_a_frozen_module_does_not_move_and_goes_on_when_unfrozen(
    kind: str, set_to_none: bool
) -> None:
    session, net, optimizer = started(kind)
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.1
    net.norm.weight.requires_grad_(False)
    with session.run():
        attach(session)
        step(net, optimizer)
        assert do(session, "freeze", name="stem").data == {"name": "stem", "tensors": 2}
        frozen = net.stem.weight.detach().clone()
        other = net.body[0].weight.detach().clone()
        for _ in range(3):
            optimizer.zero_grad(set_to_none=set_to_none)
            net(torch.randn(6, 4)).pow(2).mean().backward()
            optimizer.step()
        assert torch.equal(net.stem.weight, frozen)
        assert not torch.equal(net.body[0].weight, other)
        tree = session.model_tree
        assert tree is not None and tree["children"][0]["trainable"] == 0
        assert do(session, "freeze", name="stem").status == "rejected"
        assert do(session, "unfreeze", name="stem").ok
        step(net, optimizer)
        assert not torch.equal(net.stem.weight, frozen)
        assert do(session, "unfreeze", name="stem").status == "rejected"
    # What the user had frozen stays so.
    assert net.norm.weight.requires_grad is False


def test_unfreezing_brings_back_what_was_frozen_by_us_alone() -> None:
    session, net, _ = started()
    net.stem.bias.requires_grad_(False)
    with session.run():
        attach(session)
        do(session, "freeze", name="stem")
        do(session, "unfreeze", name="stem")
        assert net.stem.weight.requires_grad and not net.stem.bias.requires_grad
        # Asked again, it is the user's own freezing that is meant.
        assert do(session, "unfreeze", name="stem").data["tensors"] == 1
        assert net.stem.bias.requires_grad


def test_unfreezing_tells_of_weights_that_no_optimizer_has() -> None:
    net = Net()
    for each in net.stem.parameters():
        each.requires_grad_(False)
    optimizer = torch.optim.SGD(net.body.parameters(), lr=0.1)
    told = Freezer().unfreeze("stem", net.stem, [optimizer])
    assert told == {"name": "stem", "tensors": 2, "in_no_optimizer": 2}


def test_freezing_everything_is_rejected() -> None:
    session, net, optimizer = started()
    with session.run():
        attach(session)
        assert "nothing to train" in (do(session, "freeze", name="").reason or "")
        step(net, optimizer)


def test_settings_of_layers_are_knobs() -> None:
    session, net, _ = started()
    modules.install(session, settings=["*"])
    assert [name for name in session.knobs if "." in name] == [
        "body.1.eps", "body.1.momentum", "body.2.p", "attend.dropout", "norm.eps",
    ]  # fmt: skip
    with session.run():
        for name, value in (("body.2.p", 0.0), ("body.2.p", 1.5), ("norm.eps", 1e-3)):
            session.submit({"type": "set_knob", "payload": {"name": name, "value": value}})
        session.pump()
    assert statuses(session) == ["applied", "rejected", "applied"]
    assert net.body[2].p == 0.0 and net.norm.eps == 1e-3
    assert [k.name for k in module_knobs(net, ["body.2"])] == ["body.2.p"]
    net.body[2].p = 0.5
    assert session.knobs["body.2.p"].value == 0.5


def test_the_model_tree_has_names_types_and_counts() -> None:
    net = Net()
    tree = model_tree(net)
    assert (tree["name"], tree["module_type"]) == ("", "Net")
    assert tree["params"] == sum(p.numel() for p in net.parameters())
    assert [c["name"] for c in tree["children"]] == ["stem", "body", "attend", "norm"]
    body = tree["children"][1]
    assert [c["name"] for c in body["children"]] == ["body.0", "body.1", "body.2"]
    assert body["children"][0] == {
        "name": "body.0", "module_type": "Linear", "params": 20, "trainable": 20, "children": [],
    }  # fmt: skip
    assert find_module([net], "body.0") is net.body[0]


def test_a_huge_model_has_a_bounded_tree() -> None:
    deep = nn.Sequential(*(nn.ReLU() for _ in range(MAX_NODES + 10)))
    tree = model_tree(deep)
    assert tree["left_out"] == 11
    assert len(tree["children"]) == MAX_NODES - 1


def test_the_tree_is_in_state_and_journal() -> None:
    session, net, _ = started()
    with session.run():
        attach(session)
        state = session.state()
    assert state.model_tree == model_tree(net)
    assert rows(session, "model_tree") == [model_tree(net)]


def test_a_form_offers_the_modules_that_can_be_frozen_and_those_that_are() -> None:
    net = Net()
    session = Session(directory=None)
    session.bind(model=net, optimizers=[torch.optim.SGD(net.parameters(), lr=0.1)])
    modules.install(session, allow=("stem", "body*"))

    def offered(name: str) -> list[str]:
        return [each.value for each in session.actions[name].schema().offers["name"]]

    assert offered("freeze") == ["stem", "body", "body.0", "body.1"]
    assert offered("unfreeze") == []
    net.stem.requires_grad_(False)
    modules.show_tree(session)
    assert offered("freeze") == ["body", "body.0", "body.1"]
    assert offered("unfreeze") == ["stem"]
    (stem,) = session.actions["unfreeze"].schema().offers["name"]
    assert stem.label == "stem, Linear, 20 parameters"


def test_of_a_large_model_the_outermost_modules_are_offered() -> None:
    blocks = [nn.Sequential(*(nn.Linear(1, 1) for _ in range(5))) for _ in range(40)]
    offers = module_offers(model_tree(nn.Sequential(*blocks)), ("*",), lambda node: True)
    names = [each.value for each in offers]
    assert len(names) == 60 and names[:3] == ["0", "0.0", "0.1"] and names[-1] == "39"
