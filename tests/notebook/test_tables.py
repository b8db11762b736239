"""What the verbs print: knobs, journal, policy, a wait that is over before the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from IPython.core.error import UsageError

import it2nb
from it2nb.core.errors import It2nbError


@pytest.fixture
def session() -> Iterator[it2nb.TrainingSession]:
    made = it2nb.TrainingSession(directory=None)
    with made.run():
        yield made


def bind(session: it2nb.TrainingSession, layers: int) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(layers)))
    groups = [{"params": list(each.parameters())} for each in model]
    session.register_knob("clip", lambda: 1.5, lambda value: None)
    session.bind(model, optimizers=[torch.optim.AdamW(groups, lr=1e-3)])


def it2(shell: Any, line: str) -> Any:
    return shell.run_line_magic("it2", line)


def test_the_journal_tells_what_became_of_requests(shell: Any, session: Any) -> None:
    session.register_knob("lr", lambda: 0.25, lambda value: None, max=1.0)
    for _ in range(5):
        session.step({"loss": 1 / 3})
    session.set("lr", 0.25, reason="as it was")
    session.set("lrr", 1.0)
    session.do("note", text="hello")
    session.step({"loss": 1 / 3})
    session.set("lr", 0.5)  # not served yet
    found = it2(shell, "journal 5")
    assert found.columns.tolist() == ["step", "time", "source", "what", "result"]
    assert found["what"].tolist() == [
        "set_knob lr",
        "set_knob lrr",
        "note",
        "note hello",
        "set_knob lr",
    ]
    assert found["result"].tolist() == [
        "applied, 0.25 to 0.25 (as it was)",
        "rejected (no knob is named 'lrr'; did you mean 'lr'?)",
        "hello",
        "applied",
        "asked",
    ]
    assert found.index.is_monotonic_increasing
    lines = repr(found).splitlines()
    assert lines[0].split() == ["seq", "step", "time", "source", "what", "result"]
    assert len(lines) == 6 and "nan" not in repr(found).lower()
    metrics = it2(shell, "journal 2 --type metrics")
    assert metrics["result"].tolist() == ["loss 0.333333"] * 2
    assert len(it2(shell, "journal")) < 20


def test_small_values_of_knobs_are_not_printed_as_zero(shell: Any, session: Any) -> None:
    bind(session, 1)
    found = it2(shell, "knobs")
    assert found.loc["eps", "value"] == 1e-8
    assert "1e-8" in repr(found) and "1e-8" in found._repr_html_()
    assert "..." not in repr(found).splitlines()[0]


def test_of_many_knobs_the_usual_ones_come_first(
    shell: Any, session: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    bind(session, 3)
    count = len(session.knobs)
    shown = it2(shell, "knobs").index.tolist()
    assert shown[:9] == [
        "lr", "lr[0]", "lr[1]", "lr[2]",
        "weight_decay", "weight_decay[0]", "weight_decay[1]", "weight_decay[2]", "clip",
    ]  # fmt: skip
    assert len(shown) == 20
    said = capsys.readouterr().out
    assert said.startswith(f"{count - 20} more of {count} knobs: %it2 knobs all, or by a pattern")
    pattern = said.split()[-1]
    assert set(it2(shell, f"knobs {pattern}").index) - set(shown)
    assert len(it2(shell, "knobs all")) == count
    assert it2(shell, "knobs betas[0]*").index.tolist()[:2] == ["betas[0]", "betas[0][0]"]
    assert it2(shell, "knobs learning_rate").index.tolist() == ["lr"]
    assert capsys.readouterr().out == ""


def test_a_pattern_of_no_knob_is_told(shell: Any, session: Any) -> None:
    bind(session, 1)
    result = shell.run_cell("%it2 knobs zz*")
    assert "no knob has such a name; see %it2 knobs all" in str(result.error_in_exec)


def test_the_policy_is_told_in_sentences(shell: Any, session: Any) -> None:
    session.policy.budget("agent", changes=3)
    lines = str(it2(shell, "policy")).splitlines()
    assert lines[0].startswith("agent may not use configure_agent, ")
    assert lines[1] == "agent may use up 3 changes"


def test_a_wait_that_is_over_first_tells_how_the_run_is(shell: Any) -> None:
    session = it2nb.TrainingSession(directory=None)
    session.start()
    said = str(it2(shell, "wait 0.05"))
    assert said.splitlines()[0].startswith(f"{session.run_id}: running, step 0")
    assert said.endswith("  it still runs; waited 0.05 s: %it2 wait waits again, %it2 stop ends it")
    with pytest.raises(TimeoutError):
        session.wait(0.05)
    session.fail(TimeoutError("of the loop"))
    with pytest.raises(TimeoutError, match="of the loop"):
        it2(shell, "wait 1")


@pytest.mark.parametrize("name", ["file/out", "file/run.zip", "file/run.html"])
def test_an_export_that_can_not_be_written_says_so(
    shell: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no folder")
    kept = it2nb.TrainingSession()
    with kept.run():
        kept.step({"loss": 1.0})
        with pytest.raises(It2nbError, match=r"can't be written .*name another place"):
            it2(shell, f"export {name}")


def test_a_curve_that_is_none_is_a_usage_error(shell: Any, session: Any) -> None:
    session.step({"loss": 1.0})
    with pytest.raises(UsageError, match="no metric 'lozz' was recorded; did you mean 'loss'"):
        it2(shell, "plot lozz")
