"""kill -9 at random moments: nothing acknowledged is lost, the chain verifies.

180 runs without PyTorch and 20 with it, in saves too; 1,000 with IT2NB_SOAK=1.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from it2nb.core.opened import open as open_journal
from it2nb.core.session import Session

from ..conftest import ROOT

SOAK = os.environ.get("IT2NB_SOAK") == "1"
LIGHT, TORCH = (900, 100) if SOAK else (180, 20)


class Victims:
    """A process that has the imports done, and forks one child for each run."""

    def __init__(self, kind: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.victim", kind],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._wait = threading.Event()
        self._runs = 0
        self._said: dict[str, int] = {}
        self.told: list[int] = []

    def run(self, folder: Path, seed: int, *, kill_at: int | None, after_s: float) -> int:
        """Let one train, kill it `after_s` seconds from its first step; returns its wait status."""
        assert self._process.stdin is not None
        self._runs += 1
        self._said = {}
        asked = {"run": self._runs, "folder": str(folder), "seed": seed, "kill_at": kill_at}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        try:
            # The child may be quicker with its first step than its parent with telling the pid.
            self._listen("pid", "training")
            if kill_at is None:
                self._wait.wait(after_s)
            else:
                self._listen("gone")
        finally:
            if "gone" not in self._said:
                self._listen("pid")
                os.kill(self._said["pid"], signal.SIGKILL)  # nobody has reaped it: it is ours
                self._listen("gone")
        return self._said["gone"]

    def _listen(self, *words: str) -> None:
        """Read until all of `words` were said of this run, or that it is gone."""
        assert self._process.stdout is not None
        while "gone" not in self._said and not set(words) <= self._said.keys():
            line = self._process.stdout.readline()
            run, word, number = line.split()
            assert int(run) == self._runs, f"{line!r} in run {self._runs}, after {self._said}"
            self._said[word] = int(number)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        # Else the children died before there was anything to lose.
        assert len(self.told) < 20 or sum(self.told) > 2 * len(self.told), self.told


def told(folder: Path) -> list[dict[str, Any]]:
    """What the child was told before it died; a torn last line was not told whole."""
    path = folder / "told"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def nothing_is_lost(folder: Path) -> list[dict[str, Any]]:
    """Check the journal against what was told; returns the latter."""
    acknowledged = told(folder)
    path = folder / "run" / "journal.jsonl"
    if not path.exists():
        assert acknowledged == []
        return []
    journal = open_journal(path)
    assert journal.verify().ok
    events = journal.since(0)
    assert [event.seq for event in events] == list(range(len(events)))
    results = {e.payload["id"]: e.payload for e in events if e.type == "action_result"}
    submitted = {e.payload["id"] for e in events if e.type == "action_submitted"}
    assert len(results) == sum(e.type == "action_result" for e in events)
    for each in acknowledged:
        assert each["durable"]
        assert results[each["id"]]["status"] == each["status"]
        assert results[each["id"]]["after"] == each["after"]
    assert results.keys() <= submitted
    return acknowledged


def goes_on(folder: Path) -> None:
    """Take the journal up again: the torn tail is cut off, and the chain holds to the end."""
    session = Session(run_id="run", directory=folder)
    session.step({"loss": 1.0})
    session.end()
    journal = open_journal(folder / "run" / "journal.jsonl")
    assert journal.verify().ok
    assert [event.seq for event in journal.since(0)] == list(range(len(journal)))


@pytest.fixture(scope="module")
def light_victims() -> Iterator[Victims]:
    victims = Victims("light")
    yield victims
    victims.close()


@pytest.mark.parametrize("seed", range(LIGHT))
def test_killed_at_a_random_moment(seed: int, light_victims: Victims, tmp_path: Path) -> None:
    rng = random.Random(seed)
    # Half by a signal from outside, half in the middle of a write, which leaves a torn line.
    kill_at = rng.randrange(30_000) if seed % 2 else None
    status = light_victims.run(tmp_path, seed, kill_at=kill_at, after_s=rng.random() * 0.06)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    light_victims.told.append(len(nothing_is_lost(tmp_path)))
    if (tmp_path / "run" / "journal.jsonl").exists():
        goes_on(tmp_path)


@pytest.fixture(scope="module")
def torch_victims() -> Iterator[Victims]:
    victims = Victims("torch")
    yield victims
    victims.close()


@pytest.mark.parametrize("seed", range(TORCH))
def test_a_training_killed_at_a_random_moment(
    seed: int, torch_victims: Victims, tmp_path: Path
) -> None:
    from it2nb.pytorch import checkpoints
    from it2nb.pytorch.state import check, restore

    from ..pytorch.small import small_run

    rng = random.Random(seed)
    # Half by a signal from outside, half in the middle of a write to journal or checkpoint.
    kill_at = rng.randrange(250_000) if seed % 2 else None
    status = torch_victims.run(tmp_path, seed, kill_at=kill_at, after_s=rng.random() * 0.4)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    acknowledged = nothing_is_lost(tmp_path)
    torch_victims.told.append(len(acknowledged))
    answers = [each["data"] for each in acknowledged if each["status"] == "applied"]
    saved = [each for each in answers if isinstance(each, dict) and "sha256" in each]
    for each in saved:
        found = hashlib.sha256(Path(each["path"]).read_bytes()).hexdigest()
        assert found == each["sha256"]
    folder = tmp_path / "run" / "checkpoints"
    listed = checkpoints.list_checkpoints(folder)
    assert {each["path"] for each in saved} <= {str(each.path) for each in listed}
    if listed:
        live, step = small_run("adamw", "onecycle-long")
        content = checkpoints.read(listed[-1].path)
        check(live, content)
        restore(live, content, clone=False)
        step()
        info = checkpoints.save_live(listed[-1].path, live, meta=content["meta"])
        assert not list(folder.glob(".*.part")), "the next save sweeps up"
        checkpoints.read(info.path)


def test_the_kill_tests_see_a_lost_result(tmp_path: Path) -> None:
    """A journal that lacks one acknowledged result does not pass."""
    session = Session(run_id="run", directory=tmp_path)
    session.step({"loss": 1.0})
    session.end()
    line = {"id": "lost", "status": "applied", "after": None, "durable": True, "data": None}
    (tmp_path / "told").write_text(json.dumps(line) + "\n")
    with pytest.raises(KeyError, match="lost"):
        nothing_is_lost(tmp_path)
