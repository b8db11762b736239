"""State of a training as a plain tree, and back to the bit."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from it2nb.core.errors import Rejected
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.state import Live, bare, capture, check, named, restore

from .small import Net, digest, same, small_run


def snapshot(live: Live) -> dict:
    return capture(live, Reducer(portable=False, clone=True))


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "muon", "tensor-lr"])
@pytest.mark.parametrize("schedule", ["none", "cosine", "onecycle", "sequential", "multistep"])
def test_going_back_and_on_equals_never_having_left(optimizer: str, schedule: str) -> None:
    live, step = small_run(optimizer, schedule)
    for _ in range(5):
        step()
    kept = snapshot(live)
    straight = [step() for _ in range(10)]
    end = snapshot(live)
    for _ in range(3):
        step()
    for _ in range(2):  # twice: a restore must not wear the snapshot out
        check(live, kept)
        assert restore(live, kept, clone=True) == []
        assert same(snapshot(live), kept)
        assert [step() for _ in range(10)] == straight
        assert same(snapshot(live), end)


def test_snapshot_does_not_change_while_training_goes_on() -> None:
    """C08: ``state_dict()`` and its shallow copy both alias the live tensors."""
    live, step = small_run("adamw", "onecycle")
    for _ in range(10):
        step()
    kept = snapshot(live)
    before, whole = digest(kept), copy.deepcopy(kept)
    for _ in range(20):
        step()
    assert digest(kept) == before
    assert same(kept, whole)
    restore(live, kept, clone=True)
    for _ in range(5):
        step()
    assert digest(kept) == before
    assert same(kept, whole)


def test_a_shared_weight_is_copied_once_and_stays_shared() -> None:
    live, _ = small_run()
    state = snapshot(live)["models"]["net"]["state"]
    assert state["first.weight"] is state["tied.weight"]


def test_a_tensor_at_a_recycled_address_is_not_taken_for_the_old_one() -> None:
    class Fleeting:
        def __init__(self, value: float) -> None:
            self.value = value

        def state_dict(self) -> dict:
            return {"now": torch.full((64,), self.value)}

        def load_state_dict(self, state: dict) -> None:
            self.value = float(state["now"][0])

    live = Live({"net": Net()}, stateful={str(n): Fleeting(float(n)) for n in range(20)})
    saved = snapshot(live)["stateful"]
    assert [float(saved[str(n)]["now"][0]) for n in range(20)] == [float(n) for n in range(20)]


def test_groups_and_state_keep_their_identity() -> None:
    """C11: a reference to a group from before a load goes on working."""
    live, step = small_run("tensor-lr", "none")
    step()
    kept = snapshot(live)
    step()
    opt = live.optimizers["opt0"]
    groups, group, lr = opt.param_groups, opt.param_groups[0], opt.param_groups[0]["lr"]
    weight = group["params"][0]
    moment = opt.state[weight]["exp_avg"]
    restore(live, kept, clone=True)
    assert opt.param_groups is groups
    assert groups[0] is group
    assert group["lr"] is lr
    assert group["params"][0] is weight
    assert opt.state[weight]["exp_avg"] is moment
    group["lr"].fill_(0.0)
    before = weight.detach().clone()
    step()
    assert torch.equal(weight, before)


def test_state_from_before_the_first_step_is_empty_again() -> None:
    live, step = small_run("adamw", "none")
    kept = snapshot(live)
    step()
    restore(live, kept, clone=True)
    assert dict(live.optimizers["opt0"].state) == {}


def test_moments_of_another_dtype_than_their_weight_keep_it() -> None:
    weight = nn.Parameter(torch.ones(3, dtype=torch.bfloat16))
    opt = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    opt.state[weight]["momentum_buffer"] = torch.tensor([1.0, 1e-3, 1 + 2**-20])
    opt.state[weight]["kind"] = "own"
    live = Live(optimizers={"opt": opt})
    kept = snapshot(live)
    opt.state[weight]["momentum_buffer"].zero_()
    restore(live, kept, clone=True)
    assert opt.state[weight]["momentum_buffer"].dtype == torch.float32
    assert same(snapshot(live), kept)
    assert opt.state[weight]["kind"] == "own"


def test_flags_of_modules_and_parameters_come_back() -> None:
    net = Net()
    net.norm.eval()
    net.last.weight.requires_grad_(False)
    live = Live({"net": net})
    kept = snapshot(live)
    net.eval()
    net.last.weight.requires_grad_(True)
    net.first.weight.requires_grad_(False)
    restore(live, kept, clone=True)
    assert [name for name, m in net.named_modules() if not m.training] == ["norm"]
    assert [name for name, p in net.named_parameters() if not p.requires_grad] == ["last.weight"]


def test_grad_scaler_comes_back() -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    net = nn.Linear(2, 2)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def step() -> None:
        scaler.scale(net(torch.ones(1, 2)).sum()).backward()
        scaler.step(opt)
        scaler.update()

    step()
    live = Live({"net": net}, {"opt": opt}, scaler=scaler)
    kept = snapshot(live)
    scaler.update(2.0)
    restore(live, kept, clone=True)
    assert scaler.get_scale() == 8.0
    assert scaler.state_dict()["_growth_tracker"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda live: live.models.update(net=nn.Linear(2, 2)), "another architecture"),
        (lambda live: live.models.update(other=nn.Linear(2, 2)), "bind the same ones"),
        (lambda live: live.optimizers.clear(), "the optimizers \\['opt0'\\]"),
        (
            lambda live: live.schedulers.update(
                sched0=torch.optim.lr_scheduler.StepLR(live.optimizers["opt0"], 3)
            ),
            "another class's",
        ),
        (
            lambda live: live.optimizers["opt0"].add_param_group(
                {"params": [nn.Parameter(torch.ones(1))]}
            ),
            "parameter groups",
        ),
        (
            lambda live: setattr(live.models["net"], "last", nn.Linear(8, 5)),
            "last.weight has shape",
        ),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_touched(change, said: str) -> None:
    live, step = small_run()
    kept = snapshot(live)
    step()
    change(live)
    before = snapshot(live)
    with pytest.raises(Rejected, match=said):
        check(live, kept)
    assert same(snapshot(live), before)


def test_compiled_and_wrapped_models_are_saved_under_their_own_names() -> None:
    net = Net()
    assert bare(nn.DataParallel(net)) is net
    assert bare(torch.compile(net, backend="eager")) is net  # type: ignore[arg-type]


def test_objects_get_names() -> None:
    net, other = nn.Sequential(nn.Linear(1, 1)), nn.Linear(1, 1)
    assert named(net, "model") == {"model": net}
    assert named([net, other], "model") == {"model": net, "model_1": other}
    assert named({"a": net, "b": None}, "model") == {"a": net}
    assert named(None, "model") == named((), "model") == {}


def test_an_object_without_state_is_named() -> None:
    with pytest.raises(Rejected, match=r"scheduler 'odd' is a object without state_dict"):
        snapshot(Live({"net": Net()}, schedulers={"odd": object()}))
