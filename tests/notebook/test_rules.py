"""Rules in a notebook: the cell's option, the verbs."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import it2nb
from it2nb.core import patience

from ..core.driving import LIMIT_S, Loop, until

LOOP = """\
for step in range(6):
    used.append(clip)
    loss = float(step)
"""


def run(shell: Any, options: str, *after: str) -> list[float]:
    shell.user_ns.update(clip=1.0, used=[])
    cell = f"%%it2 --no-panel --wait --at loop --knob clip=0:2 --watch loss {options}\n{LOOP}"
    shell.run_cell(cell).raise_error()
    used: list[float] = shell.user_ns["used"]
    return used


def test_a_rule_of_the_cell_steers_it(shell: Any) -> None:
    used = run(shell, "--rule 'at 2: clip x 0.5' --rule 'loss > 3: clip = 2'")
    assert used == [1.0, 1.0, 0.5, 0.5, 0.5, 2.0]
    rows = it2nb.current().journal.requests()
    assert rows["source"].tolist() == ["rule", "rule"]


def test_verbs_add_and_list_rules(shell: Any) -> None:
    run(shell, "--rule 'at 2: clip x 0.5'")
    found = shell.run_line_magic("it2", "rules")
    assert found.index.tolist() == ["at 2: clip x 0.5"]
    assert found["requests"].tolist() == [1]

    session = it2nb.TrainingSession(directory=None)
    session.start()
    said = shell.run_line_magic("it2", "rule nan: stop")
    assert str(said) == "nan: stop: watched from step 0 on"
    session.step({"loss": float("nan")})
    assert session.stop_requested
    session.finish()


def test_what_a_rule_waits_for_in_vain_is_answered_at_once(shell: Any) -> None:
    session = it2nb.TrainingSession(directory=None)
    session.register_knob("lr", lambda: 0.1, lambda value: None)
    session.attach("lozz > 4: stop")
    session.step({"loss": 1.0})
    said = str(shell.run_line_magic("it2", "rule lozz > 3: stop"))
    assert said.splitlines() == [
        "lozz > 3: stop: watched from step 1 on",
        "  no metric 'lozz' so far, did you mean 'loss'?",
    ]
    status = str(shell.run_line_magic("it2", "status")).splitlines()
    for each in ("lozz > 4: stop", "lozz > 3: stop"):
        assert f"  the rule {each!r}: no metric 'lozz' so far, did you mean 'loss'?" in status
    result = shell.run_cell("%it2 rule at 900: lrr x 0.5")
    assert "no knob 'lrr' so far, did you mean 'lr'?" in str(result.error_in_exec)
    assert len(session.controllers) == 2
    session.finish()


def test_a_stop_says_which_rule_holds_the_loop(
    shell: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(patience, "HELD_S", 0.0)
    session = it2nb.TrainingSession(directory=None)
    began, over = threading.Event(), threading.Event()

    @it2nb.rule
    def slow(seen: Any) -> None:
        began.set()
        over.wait(LIMIT_S)

    session.attach(slow)
    loop = Loop(session)
    loop.advance(wait=False)
    assert began.wait(LIMIT_S)
    until(lambda: session.patience.held() is not None)
    handle = shell.run_line_magic("it2", "stop --timeout 0.1")
    said = capsys.readouterr().out
    assert said.startswith("it2nb: stop waits: controller slow is not back after 0 s at step 1: ")
    status = str(shell.run_line_magic("it2", "status"))
    assert status.count("controller slow is not back") == 1
    over.set()
    loop.came_back()
    assert handle.result(LIMIT_S).ok
    assert capsys.readouterr().out == ""


ROUNDS = """\
import torch
def train(session, ctx):
    net = torch.nn.Linear(2, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    mine = []
    used.append(mine)
    for step in range(4):
        mine.append(opt.param_groups[0]["lr"])
        val_loss = net(torch.ones(1, 2)).pow(2).sum()
        val_loss.backward()
        opt.step()
        opt.zero_grad()
class Planner:
    source = "plan"
    def plan(self, ctx):
        return {"lr": 0.02 * ctx.round}
session = it2nb.current()
session.attach(Planner())
records = session.run_rounds(train, 3)
"""


def test_rounds_in_a_cell_are_planned_and_steered(shell: Any) -> None:
    shell.user_ns.update(it2nb=it2nb, used=[])
    options = "--goal val_loss --watch val_loss --rule 'at 2: lr = 0.5'"
    shell.run_cell(f"%%it2 --no-panel --wait {options}\n{ROUNDS}").raise_error()
    # The hooks see an optimizer for the first time in its first step.
    assert [each[1:] for each in shell.user_ns["used"]] == [
        [0.1, 0.5, 0.5],
        [0.02, 0.5, 0.5],
        [0.04, 0.5, 0.5],
    ]
    session = it2nb.current()
    frame = session.journal.rounds()
    assert frame["steps"].tolist() == [4, 4, 4]
    assert frame["plan"].tolist() == [None, {"lr": 0.02}, {"lr": 0.04}]
    rows = session.journal.requests()
    planned = rows[rows["source"] == "plan"]
    assert planned["status"].tolist() == ["applied", "applied"]
    assert planned["after"].tolist() == [0.02, 0.04]
    assert planned["step"].tolist() == [0, 0]
    assert "round 3 of 3, step " in str(shell.run_line_magic("it2", "status"))


def test_a_wrong_rule_starts_nothing(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(it2nb.runs())
    result = shell.run_cell(f"%%it2 --no-panel --rule 'loss > 5: paus'\n{LOOP}")
    assert result.error_in_exec is not None
    assert "did you mean 'pause'?" in str(result.error_in_exec)
    assert len(it2nb.runs()) == count
