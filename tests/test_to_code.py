"""A steered run becomes a plain program that does the same, bit for bit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from it2nb.pytorch.code import to_code

from .programs import LOOP, QUICKSTART, TWO, TWO_LOOP, check, run_cell, run_code, same
from .steered import ask

pytestmark = pytest.mark.usefixtures("small_heap")


# --- the quickstart's loop ------------------------------------------------------------------------


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
