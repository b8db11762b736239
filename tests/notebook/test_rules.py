"""Rules in a notebook: the cell's option, the verbs."""

from __future__ import annotations

from typing import Any

import pytest

import it2nb

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


def test_a_wrong_rule_starts_nothing(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    count = len(it2nb.runs())
    result = shell.run_cell(f"%%it2 --no-panel --rule 'loss > 5: paus'\n{LOOP}")
    assert result.error_in_exec is not None
    assert "did you mean 'pause'?" in str(result.error_in_exec)
    assert len(it2nb.runs()) == count
