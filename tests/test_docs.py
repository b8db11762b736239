"""The pages in docs do what they say: their code runs, in its order."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from it2nb.controllers.grammar import parse, parse_condition
from it2nb.notebook.commands import parse_cell, parse_line

from .conftest import ROOT

BLOCK = re.compile(r"^```(python|ipython)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return [code for language, code in BLOCK.findall(text) if language == kind]


@pytest.mark.parametrize("page", ["controllers"])
def test_code_of_a_page_runs_in_its_order(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    space: dict[str, Any] = {"__name__": "__main__"}
    for code in blocks(page, "python"):
        exec(compile(code, f"docs/{page}.md", "exec"), space)
    said = capsys.readouterr()
    assert said.err == ""
    assert "did you mean 'pause'?" in said.out
    assert "set_knob lr: applied" in said.out
    assert len(space["records"]) == 3


def test_code_of_agents_md_runs_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"__name__": "__main__"}
    for code in blocks("agents", "python"):
        exec(compile(code, "docs/agents.md", "exec"), space)
    assert len(space["records"]) == 3
    assert space["records"][1]["improved"]
    assert not space["asked"].empty


@pytest.mark.parametrize("page", ["controllers"])
def test_magics_of_a_page_are_understood(page: str) -> None:
    for line in "".join(blocks(page, "ipython")).splitlines():
        magic, _, rest = line.partition(" ")
        (parse_cell if magic == "%%it2" else parse_line)(rest)


def test_the_words_of_the_table_are_those_of_the_grammar() -> None:
    text = (ROOT / "docs" / "controllers.md").read_text()
    rows = {
        part: re.findall(r"`([^`]+)`", text.split(f"| {part} |")[1].splitlines()[0])
        for part in ("condition", "action", "limit")
    }
    for said in rows["condition"]:
        if said not in ("and", "no decrease of", "no increase of"):
            assert parse_condition(said).text
    for said in rows["action"]:
        if said != "then":
            assert parse(f"at 1: {said}").actions
    for said in rows["limit"]:
        assert parse(f"at 1: stop, {said}").text
