from __future__ import annotations

from typing import Any

from IPython.core.completer import provisionalcompleter

from it2nb.notebook.completion import candidates
from it2nb.notebook.options import VERBS


def test_verbs_come_first(shell: Any) -> None:
    assert candidates([]) == list(VERBS)


def test_knobs_actions_and_options_follow_their_verbs(shell: Any) -> None:
    shell.user_ns["clip"] = 1.0
    shell.run_cell(
        "%%it2 --no-panel --knob clip=0:2 --watch x\nfor i in range(3): x = i"
    ).raise_error()
    assert candidates(["set"]) == ["clip"]
    assert "pause" in candidates(["do"])
    assert candidates(["set", "clip"]) == ["--mode", "--reason", "--timeout"]
    assert candidates(["no-such-verb"]) == []


def test_it_is_plugged_into_ipython(shell: Any) -> None:
    with provisionalcompleter():
        found = [each.text for each in shell.Completer.completions("%it2 stat", 9)]
    assert "status" in found
