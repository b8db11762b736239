"""What results say to people."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from it2nb.core.readable import listing_lines, readable, size_text
from it2nb.core.wire import ActionResult, Event
from it2nb.panel.rows import row_of
from it2nb.session import TrainingSession


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (483706, "483.7 kB"),
        (2**30, "1.1 GB"),
        (5e15, "5,000.0 TB"),
    ],
)
def test_sizes_are_for_people(size: float, text: str) -> None:
    assert size_text(size) == text


SAVED = {
    "path": "runs/step-000005.pt", "step": 5, "branch_id": 0, "round": 0, "tag": "",
    "sha256": "6d18" * 16, "size_bytes": 483706, "kept": [0, 0, 5, 0, 17],
}  # fmt: skip


def test_a_saved_file_is_told_without_internals() -> None:
    said = "path runs/step-000005.pt, sha256 6d186d186d18, size 483.7 kB"
    result = ActionResult(
        id="a", type="save_checkpoint", ok=True, status="applied", data=SAVED, step=5
    )
    assert str(result) == f"save_checkpoint: applied, after step 5, {said}"
    payload: dict[str, Any] = {"id": "a", "type": "save_checkpoint", "status": "applied"}
    for kind, told in (("action_result", payload | {"data": SAVED}), ("checkpoint_saved", SAVED)):
        row = row_of(Event(seq=1, type=kind, payload=told, ts=1.0, step=5))
        assert row.text == said, kind


def test_what_is_not_as_usual_stays() -> None:
    other = SAVED | {"branch_id": 2, "round": 1, "tag": "best", "step": 3}
    found = readable("save_checkpoint", other, 5)
    assert (found["branch"], found["round"], found["tag"], found["step"]) == (2, 1, "best", 3)
    # What anybody else calls so is no internal of ours.
    assert readable("evaluate", {"kept": 3, "round": 0, "x_bytes": 7}) == {
        "kept": 3, "round": 0, "x_bytes": 7,
    }  # fmt: skip


def trained(folder: Path) -> TrainingSession:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    session = TrainingSession(directory=folder, snapshots={"every": 1, "max_share": 1.0})
    session.bind(model, optimizers=[optimizer])
    return session


def ask(session: TrainingSession, action: str, **payload: Any) -> ActionResult:
    result: ActionResult = session.submit({"type": action, "payload": payload}, wait=True)
    return result


def test_a_list_of_checkpoints_lists_them(tmp_path: Path) -> None:
    session = trained(tmp_path)
    with session.run():
        for _ in range(3):
            session.step({"loss": 1.0})
        ask(session, "save_checkpoint", tag="best")
        ask(session, "save_checkpoint")
        result = ask(session, "list_checkpoints")
    lines = str(result).splitlines()
    assert lines[0] == "list_checkpoints: applied, after step 3"
    assert lines[1].startswith("  2 checkpoint files in ")
    assert lines[2].startswith("    best  step 3, step-000003-best.pt, ")
    assert lines[3].startswith("    -     step 3, step-000003.pt, ")
    # How many there are depends on what they cost.
    assert re.fullmatch(r"  \d snapshots? in memory \(.+ of at most .+\), of step 1.*", lines[4])


def test_of_many_snapshots_some_steps_are_named() -> None:
    snapshots = [{"step": step, "branch_id": step // 90} for step in range(100)]
    told = {"files": [], "snapshots": snapshots, "folder": "x", "max_bytes": 2**20}
    assert listing_lines(told) == [
        "0 checkpoint files in x",
        "100 snapshots in memory (0 bytes of at most 1.0 MB), of step 0, 1, 2, 3, 4, 5, ..., "
        "94 (branch 1), 95 (branch 1), 96 (branch 1), 97 (branch 1), 98 (branch 1), 99 (branch 1)",
    ]


def test_a_checkpoint_is_loaded_by_its_tag(tmp_path: Path) -> None:
    session = trained(tmp_path)
    with session.run():
        session.step({"loss": 1.0})
        ask(session, "save_checkpoint", tag="best")
        session.step({"loss": 2.0})
        assert ask(session, "load_checkpoint", tag="best").status == "applied"
        assert session.step_count == 1
        assert ask(session, "load_checkpoint", tag="best", path="best").status == "applied"
        assert ask(session, "load_checkpoint", tag=None).status == "applied"
        differ = ask(session, "load_checkpoint", tag="best", path="worst")
        unknown = ask(session, "load_checkpoint", tag="bset")
        asked = session.load_checkpoint(tag="best", reason="the best one")
        session.pump()
    assert differ.reason == (
        "path='worst' and tag='best' differ: give one of them; path takes a tag too"
    )
    assert "there is no checkpoint 'bset'; there are step-000001-best.pt" in str(unknown.reason)
    assert asked.result(0).status == "applied"


def test_who_asks_from_python_can_say_why() -> None:
    session = TrainingSession(directory=None)
    session.register_knob("lr", lambda: 0.1, lambda value: None)
    with session.run():
        session.step()
        session.set("lr", 0.01, reason="why")
        session.do("note", text="x", reason="also why")
        session.batch({"lr": 0.1}, reason="all")
        session.pause(reason="stop it")
        session.resume(reason="go on")
        session.step()
    rows = session.journal.tail(9, types=["action_submitted"])
    assert [row.payload["reason"] for row in rows] == [
        "why", "also why", "all", "stop it", "go on",
    ]  # fmt: skip
