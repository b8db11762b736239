"""The pages in docs/ do what they say, and leave out nothing that a reader may meet."""

from __future__ import annotations

import asyncio
import re
import threading
from pathlib import Path

import pytest

import it2nb
from it2nb.notebook.options import VERBS
from it2nb.panel.rows import ROW_TYPES
from scripts import reference
from scripts.events import EVENTS

from .conftest import ROOT
from .test_readme import BLOCK, run_cells, text_of

PAGES = sorted((ROOT / "docs").glob("*.md"))
#: Pages whose code needs more than one process, and the test that runs it.
ELSEWHERE = {
    "agents.md": "tests/test_docs.py",
    "controllers.md": "tests/test_docs.py",
    "ranks.md": "tests/pytorch/ranks_worker.py",
    "trainers.md": "tests/integrations/test_page.py",
    "workflows.md": "tests/workflows/test_recorded.py",
}
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize(
    "page", [page for page in WITH_CODE if page.name not in ELSEWHERE], ids=lambda page: page.stem
)
def test_code_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(page.read_text())
    if any(block.startswith("%") for block in blocks):
        outputs = asyncio.run(run_cells(tmp_path, blocks))
        assert [
            text_of(out) for out in outputs if any(o.get("name") == "stderr" for o in out)
        ] == []
        return
    before = threading.active_count()
    for number, block in enumerate(blocks):
        # Each by itself, as the pages promise; the name shows in a traceback.
        exec(compile(block, f"{page.name}, block {number}", "exec"), {"__name__": page.stem})
    left = [run for run in it2nb.runs() if run.started and not run.is_ended]
    assert left == [], "a block left its run alive"
    assert threading.active_count() <= before + 4


def test_pages_whose_code_runs_elsewhere_are_named_there() -> None:
    assert [name for name, test in ELSEWHERE.items() if name not in (ROOT / test).read_text()] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.stem)
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#: ]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_reference_is_not_stale() -> None:
    assert reference.PAGE.read_text() == reference.page(), "run: python -m scripts.reference"


def test_every_verb_name_and_event_is_in_the_reference() -> None:
    text = reference.PAGE.read_text()
    assert [verb for verb in VERBS if f"`%it2 {verb}" not in text] == []
    public = [name for name in it2nb.__all__ if not name.startswith("__")]
    assert [name for name in public if f"| `{name}` |" not in text] == []
    assert [name for name in EVENTS if f"| `{name}` |" not in text] == []


def test_every_event_that_the_code_writes_is_explained() -> None:
    assert reference.emitted() - set(EVENTS) == set(), "add them to scripts/events.py"
    assert set(ROW_TYPES) - set(EVENTS) == set()


def test_every_page_is_reached_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text()
    assert [page.name for page in PAGES if f"docs/{page.name}" not in readme] == []
