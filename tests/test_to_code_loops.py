"""Programs of other loops than the quickstart's, and how a program's text is put together."""

from __future__ import annotations

import re
from typing import Any

import pytest

import it2nb
from it2nb.core.recording import cell_row
from it2nb.notebook.discover import variable_knob
from it2nb.notebook.options import KnobSpec
from it2nb.pytorch.code import Code, to_code
from it2nb.pytorch.code_cell import Cell, indented
from it2nb.session import TrainingSession

from .programs import LOOP, QUICKSTART, TWO, TWO_LOOP, check, namespace, run_cell, run_code
from .steered import Script, ask

pytestmark = pytest.mark.usefixtures("small_heap")


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
    found = re.search(r"rescale\(optimizer, {0: 0\.003, 1: (.*)}, \[scheduler\]\)", code)
    assert found is not None and float(found[1]) == pytest.approx(0.0015, rel=1e-12)
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
