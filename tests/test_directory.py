"""A run stays where it was made, also when the program changes its directory."""

from __future__ import annotations

from pathlib import Path

import pytest

import it2nb
import it2nb.archive
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.rounds import Memory
from it2nb.integrations.tensorboard_tracker import TensorBoard
from it2nb.notebook.export import export

from .pytorch.rewinding import Run


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run in ``it2runs``, whose program went elsewhere after ten steps, and on to twenty."""
    run = Run(directory=Path("it2runs"))
    run.steps(10)
    run.ask("save_checkpoint", tag="before")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    run.steps(10)
    return run


def test_a_checkpoint_lands_with_the_others_and_is_where_the_result_says(
    moved: Run, tmp_path: Path
) -> None:
    saved = moved.ask("save_checkpoint", tag="after")
    folder = tmp_path / "it2runs" / moved.session.run_id / "checkpoints"
    assert Path(saved.data["path"]).parent == folder
    assert len(list(folder.iterdir())) == 2
    assert not list(Path().iterdir())
    assert moved.ask("load_checkpoint", path="before").step == 10
    assert moved.ask("load_checkpoint", path=saved.data["path"]).step == 20


def test_the_record_tells_paths_as_from_the_folder_in_which_the_program_began(
    moved: Run, tmp_path: Path
) -> None:
    first = moved.session.checkpoints[0]
    assert Path(first["path"]).parts[0] == "it2runs"
    assert str(tmp_path) not in Path(str(moved.session.path)).read_text()
    # And is understood from elsewhere.
    assert moved.ask("load_checkpoint", path=first["path"]).step == 10
    moved.steps(5)
    assert moved.ask("goto", step=10).status == "applied"


def test_its_journal_opens_verifies_and_leaves_with_an_export(moved: Run) -> None:
    session = moved.session
    assert session.path is not None
    assert it2nb.open(session.path).run == session.run_id
    assert session.journal.verify() is not None
    assert "journal.jsonl" in {each.name for each in export(session, Path("folder"))}
    moved.session.finish()
    packed = it2nb.archive.export(session.journal, "run.zip")
    assert len(it2nb.open(packed).metrics) == 20
    assert session.state().journal_path == str(session.path)


def test_a_journal_that_was_replaced_goes_on_where_it_was(moved: Run, tmp_path: Path) -> None:
    path = moved.session.path
    assert path is not None
    path.write_text("{}\n")
    moved.steps(5)
    moved.ask("note", text="after it")
    moved.session.finish()
    assert list(tmp_path.glob("it2runs/*/journal.jsonl")) == [path]
    assert not list(Path().iterdir())


def test_what_else_is_named_by_a_path_stays_there_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory("rounds.jsonl")
    tracker = TensorBoard("board")
    journal = Journal("j/journal.jsonl", MetricStore(), run="j")
    journal.append("note", {"text": "one"})
    opened = it2nb.open("j")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    memory.add({"round": 1})
    assert (tmp_path / "rounds.jsonl").is_file()
    assert tracker._dir == tmp_path / "board"
    assert journal.verify() is not None
    assert opened.verify() is not None
    journal.close()
