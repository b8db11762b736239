"""``python -m it2nb``: what it finds, what it names, and how it exits."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import it2nb
from it2nb.__main__ import BROKEN, INTACT, UNREADABLE, main
from it2nb.core.session import Session
from it2nb.core.verify import verify_file
from it2nb.core.walk import Walk
from it2nb.core.wire import Action


def a_run(title: str = "small") -> Session:
    """A short run with metrics, requests of all kinds and awkward text."""
    settings = {"lr": 0.1}
    session = Session(directory="it2runs", title=title)
    session.register_knob(
        "lr", lambda: settings["lr"], lambda v: settings.update(lr=v), min=0.0, max=1.0
    )
    with session.run():
        for step in range(1, 13):
            if step == 4:
                session.submit(Action(type="set_knob", payload={"name": "lr", "value": 5.0}))
            if step == 7:
                session.submit(Action(type="note", payload={"text": "\x1b[31mred\nü"}))
                session.submit(Action(type="set_knob", payload={"name": "lr", "value": "x"}))
            session.step({"loss": 1.0 / step})
    return session


def starts(path: Path) -> list[tuple[int, int]]:
    """Return offset and first seq of each line."""
    found, offset = [], 0
    for line in Walk(path):
        found.append((offset, line.first))
        offset = line.end
    return found


@pytest.fixture
def journal() -> Path:
    path = a_run().path
    assert path is not None
    return path


# --- verify ---------------------------------------------------------------------------------------


def test_an_intact_journal_is_found_intact(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(journal)]) == INTACT
    assert "intact" in capsys.readouterr().out
    assert main(["verify", str(journal.parent), "--anchor", anchor_of(journal)]) == INTACT


def anchor_of(path: Path) -> str:
    return it2nb.open(path).anchor()


def test_any_flipped_byte_is_found_and_its_line_named(journal: Path) -> None:
    data = journal.read_bytes()
    lines = starts(journal)
    changed = journal.parent / "changed.jsonl"
    # Every byte takes its time where files are slow; each line's ends are always among them.
    stride = 1 if os.environ.get("IT2NB_SOAK") == "1" else 7
    ends = [offset + shift for offset, _ in lines for shift in (-1, 0)]
    for at in sorted({*range(0, len(data), stride), *ends[1:], len(data) - 1}):
        broken = bytearray(data)
        broken[at] ^= 1 << (at % 8)
        changed.write_bytes(broken)
        report = verify_file(changed)
        wanted = max(seq for offset, seq in lines if offset <= at)
        assert (report.ok, report.seq) == (False, wanted), f"byte {at}: {report}"


def test_any_removed_added_or_swapped_line_is_found_and_named(journal: Path) -> None:
    lines = journal.read_bytes().splitlines(keepends=True)
    seqs = [seq for _, seq in starts(journal)]
    changed = journal.parent / "changed.jsonl"

    def check(several: list[bytes], first_wrong: int, what: str) -> None:
        changed.write_bytes(b"".join(several))
        report = verify_file(changed)
        assert (report.ok, report.seq) == (False, first_wrong), f"{what}: {report}"

    end = seqs[-1] + 1
    for at in range(len(lines) - 1):
        check(lines[:at] + lines[at + 1 :], seqs[at], f"without line {at}")
        check([*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]], seqs[at], f"swapped {at}")
    for at in range(len(lines)):
        following = [*seqs, end][at + 1]
        check([*lines[: at + 1], lines[at], *lines[at + 1 :]], following, f"line {at} twice")
        check([*lines[:at], b"{}\n", *lines[at:]], seqs[at], f"a line before {at}")


def test_a_line_of_another_run_is_found(journal: Path) -> None:
    other = a_run("other").path
    assert other is not None
    mine, theirs = (path.read_bytes().splitlines(keepends=True) for path in (journal, other))
    journal.write_bytes(b"".join([*mine[:3], theirs[3], *mine[4:]]))
    assert verify_file(journal).seq == 3


def test_a_cut_tail_is_found_with_the_anchor_alone(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    anchor = anchor_of(journal)
    lines = journal.read_bytes().splitlines(keepends=True)
    seqs = [seq for _, seq in starts(journal)]
    for kept in range(1, len(lines)):
        journal.write_bytes(b"".join(lines[:kept]))
        assert main(["verify", str(journal)]) == INTACT
        assert "or its end was cut off" in capsys.readouterr().out
        assert main(["verify", str(journal), "--anchor", anchor]) == BROKEN
        said = capsys.readouterr().err
        assert f"broken at seq {seqs[kept]}" in said
        assert "the end was cut off" in said


def test_what_is_no_journal_is_told_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(tmp_path / "nothing.jsonl")]) == UNREADABLE
    assert "can't be read" in capsys.readouterr().err
    text = tmp_path / "text.txt"
    text.write_text("hello\nworld\n")
    assert main(["verify", str(text)]) == BROKEN
    assert "broken at seq 0" in capsys.readouterr().err


# --- show -----------------------------------------------------------------------------------------


def test_show_prints_the_requests_and_no_control_characters(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(journal)]) == INTACT
    shown = capsys.readouterr().out
    assert "finished, at step 12" in shown
    assert "clamped" in shown and "rejected" in shown
    assert "max is 1.0" in shown
    assert "\x1b" not in shown
    assert main(["show", str(journal), "--status", "rejected"]) == INTACT
    assert "clamped" not in capsys.readouterr().out
    assert main(["show", str(journal), "--status", "expired"]) == INTACT
    assert "no requests" in capsys.readouterr().out


def test_show_of_a_damaged_journal_names_the_seq(
    journal: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal.write_bytes(journal.read_bytes().replace(b'"small', b'"Small', 1) or b"")
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([lines[0], *lines[2:]]))
    assert main(["show", str(journal)]) == BROKEN
    assert "broken at seq 1" in capsys.readouterr().err


def test_the_command_exits_with_its_code(journal: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "it2nb", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120)

    assert run("verify", str(journal)).returncode == INTACT
    data = journal.read_bytes()
    journal.write_bytes(data[:100] + b"#" + data[101:])
    broken = run("verify", str(journal))
    assert broken.returncode == BROKEN
    assert "broken at seq 0" in broken.stderr
    assert "Traceback" not in broken.stderr
    assert run("verify").returncode == UNREADABLE
    assert "it2nb" in run("--version").stdout


# --- archives -------------------------------------------------------------------------------------


def zipped(path: Path, members: dict[str, bytes], comment: bytes = b"run") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = comment
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def test_an_archive_is_verified_shown_and_opened(
    journal: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = zipped(tmp_path / "run.zip", {"journal.jsonl": journal.read_bytes()}, b"the-run")
    assert main(["verify", str(path), "--anchor", anchor_of(journal)]) == INTACT
    assert main(["show", str(path)]) == INTACT
    assert "the-run: finished" in capsys.readouterr().out
    opened = it2nb.open(path)
    assert opened.run == "the-run"
    assert opened.requests().equals(it2nb.open(journal).requests())
    folder = opened.path.parent.parent
    assert folder.is_dir()
    del opened
    assert not folder.exists(), "what was unpacked goes with its journal"


def test_a_damaged_journal_in_an_archive_is_named(journal: Path, tmp_path: Path) -> None:
    data = bytearray(journal.read_bytes())
    data[30] ^= 1
    path = zipped(tmp_path / "run.zip", {"journal.jsonl": bytes(data)})
    assert main(["verify", str(path)]) == BROKEN
    with pytest.raises(it2nb.It2nbError, match="damaged at seq 0"):
        it2nb.open(path)


@pytest.mark.parametrize(
    "name", ["../evil", "/it2nb-evil", "C:\\evil", "a/../../evil", ".", "", "\x01x"]
)
def test_no_name_in_an_archive_becomes_a_path(journal: Path, tmp_path: Path, name: str) -> None:
    inside = tmp_path / "deep" / "deeper"
    inside.mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    members = {"journal.jsonl": journal.read_bytes()}
    if name.strip("."):
        members[name] = b"evil"
    path = zipped(inside / "run.zip", members, comment=name.encode())
    opened = it2nb.open(path)
    assert opened.run == "run"
    assert opened.path.parent.name == "run"
    assert sorted(tmp_path.rglob("*")) == sorted([*before, path])
    assert not Path("/it2nb-evil").exists()


def test_bombs_are_not_unpacked(tmp_path: Path) -> None:
    path = zipped(tmp_path / "bomb.zip", {"journal.jsonl": b"\0" * 50_000_000})
    assert path.stat().st_size < 100_000
    with pytest.raises(it2nb.It2nbError, match="more than a journal can"):
        it2nb.open(path)
    assert main(["verify", str(path)]) == UNREADABLE


def test_an_archive_that_lies_about_its_sizes_is_not_believed(tmp_path: Path) -> None:
    path = zipped(tmp_path / "liar.zip", {"journal.jsonl": b"\0" * 50_000_000})
    data = bytearray(path.read_bytes())
    # The central directory says that the journal has ten bytes.
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = (10).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(it2nb.It2nbError):
        it2nb.open(path)


@pytest.mark.parametrize(
    ("members", "said"),
    [({}, "holds no"), ({"other.txt": b"x"}, "holds no"), ({"a/journal.jsonl": b"x"}, "holds no")],
)
def test_an_archive_without_a_journal_is_told(
    tmp_path: Path, members: dict[str, bytes], said: str
) -> None:
    with pytest.raises(it2nb.It2nbError, match=said):
        it2nb.open(zipped(tmp_path / "run.zip", members))


def test_an_archive_with_two_journals_is_refused(journal: Path, tmp_path: Path) -> None:
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(path, "w") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("journal.jsonl", journal.read_bytes())
        archive.writestr("journal.jsonl", b"other")
    with pytest.raises(it2nb.It2nbError, match="2 times a"):
        it2nb.open(path)


def test_a_truncated_archive_is_told(journal: Path, tmp_path: Path) -> None:
    path = zipped(tmp_path / "run.zip", {"journal.jsonl": journal.read_bytes()})
    data = bytearray(path.read_bytes())
    data[60] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(it2nb.It2nbError, match="can't be read"):
        it2nb.open(path)
