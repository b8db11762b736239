"""A steered run becomes a plain program that does the same, bit for bit."""

from __future__ import annotations

import gc
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import it2nb
from it2nb.core.control import StopTraining
from it2nb.core.recording import cell_row
from it2nb.notebook.discover import variable_knob
from it2nb.notebook.options import KnobSpec
from it2nb.pytorch import fingerprints, rewind
from it2nb.pytorch.code import Code, to_code
from it2nb.pytorch.code_cell import Cell, indented
from it2nb.pytorch.hooks import attach
from it2nb.session import TrainingSession

from .steered import Script, ask

SEED = 3
#: Of each cell here.
UPDATES = 40


@pytest.fixture(autouse=True, scope="module")
def small_heap() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


def namespace(setup: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(setup, space)
    return space


def run_cell(
    setup: str,
    cell: str,
    script: Script,
    variables: Sequence[str] = (),
    *,
    options: str = "",
    seed: int | None = SEED,
) -> tuple[TrainingSession, dict[str, Any]]:
    """Run a cell as ``%%it2`` runs it, and ask for things at the steps of a script."""
    space = namespace(setup)
    session = TrainingSession(title="cell", seed=seed, resources_every_s=3600)
    session.source_cell = cell
    session.honours_control = False
    _bind(session, space)
    for each in variables:
        session.add_knob(variable_knob(KnobSpec(each), space))
    rewind.install(session, snapshots={"every": 5, "max_share": 1.0})
    session.emit("source_cell", cell_row(cell, options))
    todo = {step: list(asked) for step, asked in script.items()}

    def person(session: Any) -> None:
        if len(session.metrics) >= UPDATES:
            return  # an edit that no update uses is in no program
        for action in todo.pop(session.step_count, []):
            session.submit(action, source="panel")

    session.every(1, person)
    with session.run():
        if seed is not None:
            seed_all(seed)
        session.emit("environment", {"seed": seed})
        fingerprints.begin(session)
        attach(session, metrics_fn=lambda: {"loss": space["loss"].item()})
        try:
            exec(cell, space)
        except StopTraining:
            session.finish("stopped")
    return session, space


def _bind(session: TrainingSession, space: dict[str, Any]) -> None:
    schedulers = torch.optim.lr_scheduler.LRScheduler
    for name, each in space.items():
        kinds = (nn.Module, torch.optim.Optimizer, schedulers)
        if not isinstance(each, kinds) or name.startswith(("_", "part")):
            continue
        session.bound.names[id(each)] = name
        if isinstance(each, nn.Module):
            session.bind(each)
        elif isinstance(each, torch.optim.Optimizer):
            session.bind(optimizers=[each])
        else:
            session.bind(schedulers=[each])


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def run_code(setup: str, code: str) -> dict[str, Any]:
    """Run the program in a fresh namespace, in which there is no it2nb."""
    assert "it2nb" not in code
    space = namespace(setup)
    seed_all(99)  # the program seeds by itself
    exec(compile(code, "<the program>", "exec"), space)
    return space


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether all weights, optimizer states and schedules are equal to the bit.

    Parameter groups are not compared: an edit after the last update is in them, and in nothing.
    """
    found = []
    for name, each in one.items():
        if isinstance(each, (nn.Module, torch.optim.Optimizer)):
            state, twin = each.state_dict(), other[name].state_dict()
            tensors = [each.get("state", each) for each in (state, twin)]
            found.append(fingerprints.digest(tensors[0]) == fingerprints.digest(tensors[1]))
        elif isinstance(each, torch.optim.lr_scheduler.LRScheduler):
            found.append(each.get_last_lr() == other[name].get_last_lr())
    assert found
    return all(found)


def check(
    setup: str, cell: str, script: Script, variables: Sequence[str] = (), **more: Any
) -> Code:
    session, space = run_cell(setup, cell, script, variables, **more)
    code = to_code(session.journal)
    assert code.left_out == (), code
    assert same(space, run_code(setup, code)), code
    # Without the changes it would not have been the same.
    assert not same(space, run_code(setup, plain(session, cell)))
    return code


def plain(session: TrainingSession, cell: str) -> str:
    return f"import random, numpy, torch\nrandom.seed({SEED})\nnumpy.random.seed({SEED})\n" + (
        f"torch.manual_seed({SEED})\n{cell}"
    )


# --- the quickstart's loop ------------------------------------------------------------------------

QUICKSTART = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
images, labels = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.Linear(144, 10)
)
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=40)
shift = 0
cfg = {"scale": 1.0}
"""

LOOP = '''\
for epoch in range(10):
    for x, y in loader:
        dx, dy = torch.randint(-shift, shift + 1, (2,)).tolist()
        logits = model(torch.roll(x, (dx, dy), (2, 3)))
        loss = F.cross_entropy(logits, y) * cfg["scale"]
        note = """a text
  over lines, not to be indented"""
        loss.backward()
        opt.step()  # one update
        sched.step()
        opt.zero_grad()
'''


def test_the_quickstart_becomes_a_program_that_trains_the_same_weights() -> None:
    code = check(
        QUICKSTART,
        LOOP,
        {
            8: [ask("set_knob", name="lr", value=1e-3)],
            14: [ask("set_knob", name="shift", value=1), ask("pause"), ask("resume")],
            20: [ask("set_knob", name="lr", value=2e-3), ask("evaluate"), ask("note", text="n")],
            25: [ask("set_knob", name="weight_decay", value=0.3)],
            30: [ask("batch", set={"cfg['scale']": 0.5, "betas[0]": 0.8})],
        },
        ["shift", "cfg['scale']"],
    )
    assert "    9: [lambda: rescale(opt, {0: 0.001}, [sched])]," in code
    assert "    14: [lambda: set_shift(1)]," in code
    assert "#   after update      20  panel    lr" in code
    assert "# panel: lr 0.0005962 -> 0.002" in code
    assert (
        "        before_update()\n        opt.step()  # one update\n        after_update()\n"
        in code
    )
    assert "random.seed(3)\nnumpy.random.seed(3)\ntorch.manual_seed(3)\n" in code
    # Nothing that this run does not need.
    assert not {"held", "kept", "def stop", "all_alike", "leaves"} & set(code.split())


def test_a_run_that_nobody_steered_is_its_cell() -> None:
    session, space = run_cell(QUICKSTART, LOOP, {5: [ask("evaluate")]})
    code = to_code(session.journal)
    assert code.endswith(f"# The cell.\n{LOOP}")
    assert "Nobody changed anything." in code
    assert "def " not in code
    assert same(space, run_code(QUICKSTART, code))


def test_an_edit_that_was_taken_back_or_never_used_changes_nothing() -> None:
    session, space = run_cell(
        QUICKSTART,
        LOOP,
        {
            8: [ask("set_knob", name="weight_decay", value=0.5), ask("undo", knobs_only=True)],
            40: [ask("set_knob", name="lr", value=1e-3)],
        },
    )
    code = to_code(session.journal)
    assert same(space, run_code(QUICKSTART, code)), code


def test_stop_undo_and_loads_are_in_the_program() -> None:
    code = check(
        QUICKSTART,
        LOOP,
        {
            6: [ask("set_knob", name="lr", value=1e-2)],
            9: [ask("save_checkpoint", tag="nine"), ask("set_knob", name="shift", value=1)],
            12: [ask("undo")],
            16: [ask("set_knob", name="lr", value=1e-4)],
            20: [ask("load_checkpoint", path="step-000009-nine.pt")],
            22: [ask("stop")],
        },
        ["shift"],
    )
    assert code.count("lambda: go_back(") == 2
    assert "except Stopped:" in code
    # Steps count on from where the run went back to; updates don't.
    assert "#   after update      20  panel    undo" not in code
    assert 'note = """a text\n  over lines, not to be indented"""' in code


def test_what_was_asked_before_the_first_update() -> None:
    code = check(
        QUICKSTART,
        LOOP,
        {
            0: [ask("set_knob", name="lr", value=1e-3), ask("set_knob", name="shift", value=1)],
            5: [ask("undo")],
        },
        ["shift"],
    )
    assert "AFTER.pop(updates, ()) if updates == 0" in code


def test_hold_and_release() -> None:
    code = check(
        QUICKSTART,
        LOOP,
        {
            5: [ask("set_knob", name="lr", value=1e-3)],
            10: [ask("set_mode", name="lr", mode="hold")],
            15: [ask("set_knob", name="lr", value=4e-3)],
            20: [ask("set_mode", name="lr", mode="release")],
            25: [ask("set_knob", name="lr", value=5e-4)],
        },
    )
    assert 'hold(opt, "lr", {0: 0.004})' in code
    assert "unscale(opt, {0: " in code


# --- two groups, two schedulers; two optimizers ---------------------------------------------------

TWO = """
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
opt = torch.optim.SGD(
    [{"params": model[0].parameters(), "lr": 0.02}, {"params": model[2].parameters()}],
    lr=0.05, momentum=0.9,
)
L = torch.optim.lr_scheduler
"""
TWO_SCHEDULES = {
    "warm-up and cosine": """
warm = L.LinearLR(opt, start_factor=0.1, total_iters=12)
cosine = L.CosineAnnealingLR(opt, T_max=40, eta_min=1e-4)
""",
    "in sequence": """
part_one = L.LinearLR(opt, start_factor=0.1, total_iters=10)
part_two = L.CosineAnnealingLR(opt, T_max=30)
warm = L.SequentialLR(opt, [part_one, part_two], [10])
cosine = L.MultiStepLR(opt, [25, 35], 0.5)
""",
    "restarts and plateaus": """
warm = L.CosineAnnealingWarmRestarts(opt, 9, eta_min=1e-5)
cosine = L.ExponentialLR(opt, 0.99)
""",
    "one cycle": """
warm = L.OneCycleLR(opt, [0.05, 0.1], total_steps=60, cycle_momentum=False)
cosine = L.StepLR(opt, 7, 0.9)
""",
}
TWO_LOOP = """
for i in range(40):
    x = torch.randn(8, 4)
    loss = F.mse_loss(model(x), x[:, :2])
    loss.backward(); opt.step(); warm.step(); cosine.step(); opt.zero_grad()
"""


@pytest.mark.parametrize("schedules", TWO_SCHEDULES)
def test_two_groups_and_two_schedulers(schedules: str) -> None:
    code = check(
        TWO + TWO_SCHEDULES[schedules],
        TWO_LOOP,
        {
            5: [ask("set_knob", name="lr", value=3e-3)],
            11: [ask("set_knob", name="lr[1]", value=1e-2)],
            18: [ask("set_knob", name="lr", value=2e-2), ask("set_knob", name="lr[0]", value=1e-3)],
            22: [ask("set_knob", name="momentum", value=0.5)],
            28: [ask("undo")],
            33: [ask("set_knob", name="lr", value=7e-3)],
        },
    )
    assert "loss.backward(); before_update(); opt.step(); after_update(); warm.step()" in code


@pytest.mark.parametrize("seed", range(12))
def test_random_steering_of_two_groups(seed: int) -> None:
    draw = random.Random(seed)

    def something() -> Any:
        lr = 10 ** draw.uniform(-4, -1.5)
        return draw.choice(
            [
                ask("set_knob", name="lr", value=lr),
                ask("set_knob", name="lr", value=lr),
                ask("set_knob", name=f"lr[{draw.randrange(2)}]", value=lr),
                ask("set_knob", name="weight_decay", value=draw.random() / 10),
                ask("set_knob", name="momentum", value=draw.uniform(0.3, 0.95)),
                ask("set_mode", name="lr", mode=draw.choice(["hold", "release", "rescale"])),
                ask("undo"),
                ask("goto", step=draw.randrange(1, 40)),
                ask("set_knob", name="i", value=0),
            ]
        )

    script = {step: [something() for _ in range(draw.randint(1, 3))] for step in (4, 9, 17, 26, 31)}
    setup = TWO + TWO_SCHEDULES[draw.choice(list(TWO_SCHEDULES))]
    session, space = run_cell(setup, TWO_LOOP, script)
    code = to_code(session.journal)
    assert code.left_out == (), code
    assert same(space, run_code(setup, code)), code


def test_two_optimizers() -> None:
    setup = TWO + (
        "other = nn.Linear(2, 2)\nopt_b = torch.optim.Adam(other.parameters(), lr=0.01)\n"
        "sched = L.CosineAnnealingLR(opt, 40)\nsched_b = L.ExponentialLR(opt_b, 0.95)\n"
    )
    cell = """
for i in range(40):
    x = torch.randn(8, 4)
    loss = F.mse_loss(other(model(x)), x[:, :2])
    loss.backward()
    opt_b.step()
    if True: opt.step()
    sched.step(), sched_b.step()
    opt.zero_grad(), opt_b.zero_grad()
"""
    code = check(
        setup,
        cell,
        {
            6: [
                ask("set_knob", name="opt.lr", value=1e-2),
                ask("set_knob", name="opt_b.lr", value=2e-2),
            ],
            15: [ask("set_knob", name="opt_b.betas[1]", value=0.9)],
        },
    )
    assert 'before_update("opt_b")\n    opt_b.step()\n    after_update()\n' in code
    assert 'if True: before_update("opt"); opt.step()\n' in code


# --- other loops ----------------------------------------------------------------------------------


def test_a_loop_that_writes_lr_itself() -> None:
    setup = TWO + "sched = None\n"
    cell = """
for i in range(40):
    for group in opt.param_groups:
        group["lr"] = 0.05 * 0.97 ** i
    x = torch.randn(8, 4)
    loss = F.mse_loss(model(x), x[:, :2])
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
    code = check(
        setup,
        cell,
        {
            10: [ask("set_knob", name="lr", value=1e-2)],
            20: [ask("set_knob", name="lr", value=3e-2)],
        },
    )
    assert "lend(opt, {0: 0.01, 1: 0.01})" in code


def test_an_lr_that_was_zero() -> None:
    setup = TWO + "sched = L.LambdaLR(opt, lambda n: min(1.0, n / 10) if n > 5 else 0.0)\n"
    cell = TWO_LOOP.replace("warm.step(); cosine.step()", "sched.step()")
    code = check(setup, cell, {2: [ask("set_knob", name="lr", value=1e-2)]})
    assert "1e-12" in code


def test_updates_that_are_made_in_a_function_elsewhere() -> None:
    setup = TWO + (
        "sched = L.CosineAnnealingLR(opt, 40)\n"
        "def update(x):\n"
        "    global loss\n"
        "    loss = F.mse_loss(model(x), x[:, :2])\n"
        "    loss.backward(); opt.step(); sched.step(); opt.zero_grad()\n"
    )
    cell = "for i in range(40):\n    update(torch.randn(8, 4))\n"
    script: Script = {10: [ask("set_knob", name="lr", value=1e-2)], 30: [ask("stop")]}
    code = check(setup, cell, script)
    assert "opt.register_step_pre_hook(lambda *_: before_update())," in code


def test_what_a_program_cannot_do_is_named_and_not_hidden() -> None:
    session, _ = run_cell(QUICKSTART, LOOP, {})
    assert to_code(session.journal).is_complete

    other = TrainingSession(title="script", resources_every_s=3600)
    value = {"x": 0.0}
    other.register_knob("x", lambda: value["x"], lambda new: value.update(x=new))

    @other.action("kick")
    def kick(by: float) -> None:
        value["x"] += by

    with other.run():
        other.submit(ask("set_knob", name="x", value=1.0))
        other.submit(ask("kick", by=2.0))
        for _ in range(3):
            other.step({"loss": 1.0})
    code = to_code(other.journal)
    assert not code.is_complete
    assert len(code.left_out) == 2
    assert "# Left out, so that its values will differ:\n#   x 0 -> 1, asked by python" in code
    assert "#   kick, asked by python" in code


def test_a_script_gets_its_schedule_and_is_told_where_to_call_it() -> None:
    from .steered import train

    session = train({5: [ask("set_knob", name="lr", value=3e-3)]})
    code = to_code(session.journal)
    assert "rescale(optimizer, {0: 0.003, 1: 0.0015}, [scheduler])" in code
    assert "#     before_update()\n#     optimizer.step()\n#     after_update()\n" in code
    compile(code, "<the program>", "exec")


def test_a_loop_without_optimizer_counts_its_turns() -> None:
    setup = "rate = 0.1\nw = 5.0\nlosses = []\n"
    for loop in ("for i in range(30):", "i = 0\nwhile i < 30:\n    i += 1"):
        cell = f"{loop}\n    w -= rate * 2 * (w - 1)\n    losses.append(w)\n"
        space = namespace(setup)
        session = TrainingSession(title="loop", resources_every_s=3600)
        session.source_cell = cell
        session.add_knob(variable_knob(KnobSpec("rate"), space))
        session.emit("source_cell", cell_row(cell, "--at loop", "loop"))
        with session.run():
            session.submit(ask("set_knob", name="rate", value=0.02))
            for _ in range(4):
                session.step({"loss": 1.0})
                if session.step_count == 3:
                    session.submit(ask("set_knob", name="rate", value=0.3))
        code = to_code(session.journal)
        assert code.is_complete
        space = run_code(setup, code)
        expected, weight, rate = [], 5.0, 0.1
        for turn in range(30):
            weight -= rate * 2 * (weight - 1)
            expected.append(weight)
            rate = 0.02 if turn < 3 else 0.3
        assert space["losses"] == expected, code


# --- the text -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("opt.step()", "B()\nopt.step()\nA()"),
        ("for x in y: opt.step()", "for x in y: B(); opt.step(); A()"),
        (
            "if a:\n    z = opt.step(closure)\n",
            "if a:\n    B()\n    z = opt.step(closure)\n    A()\n",
        ),
        ("f(); opt.step()  # ü", "f(); B(); opt.step(); A()  # ü"),
        ("ü = 'ü'; opt.step(); g()", "ü = 'ü'; B(); opt.step(); A(); g()"),
        ("scaler.step(opt)", "B()\nscaler.step(opt)\nA()"),
        ("opt.step(\n    closure\n)\ng()", "B()\nopt.step(\n    closure\n)\nA()\ng()"),
        ("%time\nopt.step()\n!ls\n", "%time\nB()\nopt.step()\nA()\n!ls\n"),
        ("other.step()", "other.step()"),
        ("self.opt.step()", "self.opt.step()"),
    ],
)
def test_calls_are_put_around_a_step(source: str, expected: str) -> None:
    cell = Cell(source)
    for step in cell.steps_of("opt"):
        cell.around(step, "B()", "A()")
    assert cell.text() == expected


def test_indenting_leaves_the_inside_of_texts_alone() -> None:
    source = 'x = """a\n b"""\nif x:\n    y = f"""{x}\n c"""\n\nz = 1'
    shown = indented(source)
    assert shown == '    x = """a\n b"""\n    if x:\n        y = f"""{x}\n c"""\n\n    z = 1'
    space: dict[str, Any] = {}
    exec(f"if True:\n{shown}", space)
    assert (space["x"], space["y"]) == ("a\n b", "a\n b\n c")


def test_a_session_writes_its_code() -> None:
    session, _ = run_cell(QUICKSTART, LOOP, {8: [ask("set_knob", name="lr", value=1e-3)]})
    code = session.to_code()
    assert isinstance(code, Code)
    assert session.path is not None
    assert to_code(it2nb.open(session.path)) == code
