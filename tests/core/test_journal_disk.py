"""A journal and its disk: nothing acknowledged is lost, and nothing half-written stays."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from it2nb.core.errors import JournalError
from it2nb.core.journal import Journal
from it2nb.core.opened import open as open_journal
from it2nb.core.verify import verify_file
from tests.core.journals import FILE, LIMIT_S, made


@pytest.fixture
def journal() -> Iterator[Journal]:
    yield (one := made())
    one.close()


class Disk:
    """Takes the place of `os.write`: takes so many bytes, then refuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: float = float("inf")
        self.error = OSError(28, "No space left on device")
        self._write = os.write
        monkeypatch.setattr(os, "write", self.write)

    def write(self, fd: int, data: bytes) -> int:
        if self.room <= 0:
            raise self.error
        taken = self._write(fd, bytes(data)[: int(min(self.room, len(data)))])
        self.room -= taken
        return taken


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


# --- rule 7: seen only when written --------------------------------------------------------------


def test_rule_7_no_reader_and_no_subscriber_sees_a_row_before_its_write_has_returned(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append("note", {"n": 0})
    mailbox = journal.subscribe()
    woken = threading.Event()
    other = journal.subscribe(wake=woken.set)
    reached, release = threading.Event(), threading.Event()
    write = os.write

    def slow(fd: int, data: bytes) -> int:
        reached.set()
        assert release.wait(LIMIT_S)
        return write(fd, data)

    monkeypatch.setattr(os, "write", slow)
    writer = threading.Thread(target=journal.append, args=("note", {"n": 1}))
    writer.start()
    assert reached.wait(LIMIT_S)
    assert mailbox.drain() == other.drain() == ([], None)
    assert mailbox.get(0) is None
    assert not woken.is_set()
    assert len(journal) == 1
    release.set()
    writer.join(LIMIT_S)
    assert woken.is_set()
    assert [event.payload["n"] for event in mailbox.drain()[0]] == [1]


def test_rule_7_subscribers_are_told_outside_of_the_lock(journal: Journal) -> None:
    found: list[int] = []
    # Reading from inside would wait for ever if the lock were held.
    journal.subscribe(wake=lambda: found.append(len(journal.since())))
    journal.append("note", {})
    assert found == [1]


def test_rule_6_a_subscriber_that_raises_harms_nobody(journal: Journal) -> None:
    journal.subscribe(wake=lambda: 1 / 0)
    mailbox = journal.subscribe()
    assert journal.append("note", {}).durable
    assert len(mailbox.drain()[0]) == 1


# --- a disk that refuses -------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 40, 200, 330])
def test_a_disk_that_fills_up_in_mid_line_costs_durability_and_nothing_else(
    journal: Journal, disk: Disk, room: int
) -> None:
    assert journal.append("note", {"n": 0}).durable
    whole = FILE.read_bytes()
    disk.room = room
    journal.metrics.record(1, {"loss": 1.0}, 0.0, 0, 0)
    assert journal.append("note", {"n": 1}).durable is False
    assert "No space left" in journal.degraded
    assert FILE.read_bytes() == whole  # cut back to the last whole line
    assert journal.append_many([("note", {"n": 2}), ("note", {"n": 3})]) is False
    # Readers see everything meanwhile, and one row says what happened.
    events = journal.since()
    assert [event.seq for event in events] == list(range(6))
    assert [event.type for event in events] == [
        "note", "metrics", "note", "journal_degraded", "note", "note",
    ]  # fmt: skip
    assert [event.durable for event in events] == [True] + [False] * 5
    assert len(open_journal(FILE)) == 1

    disk.room = float("inf")
    journal.seal()
    assert journal.degraded == ""
    assert journal.append("note", {"n": 4}).durable
    assert all(event.durable for event in journal.since())
    opened = open_journal(FILE)
    assert [event.type for event in opened.since()] == [
        "note", "metrics", "note", "journal_degraded", "note", "note", "recovered", "note",
    ]  # fmt: skip
    assert opened.since() == journal.since()
    assert opened.since()[6].payload == {"cut_bytes": 0, "kept_events": 5}
    journal.verify()


def test_the_disk_is_tried_again_by_itself(journal: Journal, disk: Disk) -> None:
    disk.room = 0
    journal.append("note", {"n": 1})
    back = threading.Event()

    def look() -> None:
        if not journal.degraded:
            back.set()

    journal.subscribe(wake=look)
    disk.room = float("inf")
    assert back.wait(LIMIT_S)
    assert len(open_journal(FILE)) == 3


def test_a_disk_that_refuses_again_while_catching_up_loses_nothing(
    journal: Journal, disk: Disk
) -> None:
    disk.room = 0
    for n in range(300):
        journal.append("note", {"n": n, "text": "x" * 5_000})
    for room in (100, 700_000, 1_500_000, 0):
        disk.room = room
        journal.seal()
        assert journal.degraded
        assert verify_file(FILE).ok
    disk.room = float("inf")
    journal.close()
    opened = open_journal(FILE)
    notes = [event.payload["n"] for event in opened.since() if event.type == "note"]
    assert notes == list(range(300))
    assert opened.is_sealed


def test_a_short_write_is_simply_gone_on_with(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:7]))
    assert journal.append("note", {"text": "x" * 100}).durable
    assert journal.verify() is not None


def test_a_file_that_cannot_be_cut_back_is_cut_before_the_next_write(
    journal: Journal, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append("note", {"n": 0})
    truncate = os.ftruncate

    def refuse(fd: int, size: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "ftruncate", refuse)
    disk.room, disk.error = 50, OSError(5, "Input/output error")
    assert journal.append("note", {"n": 1}).durable is False
    assert open_journal(FILE).torn_bytes == 50
    disk.room = float("inf")
    journal.seal()
    assert journal.degraded
    monkeypatch.setattr(os, "ftruncate", truncate)
    journal.seal()
    assert journal.degraded == ""
    assert len(open_journal(FILE)) == 4
    journal.verify()


def test_a_run_that_ends_on_a_full_disk_leaves_a_whole_prefix(disk: Disk) -> None:
    journal = made()
    journal.append("note", {"n": 0})
    disk.room = 100
    journal.append("note", {"n": 1})
    journal.close()
    assert [event.type for event in journal.since()][-1] == "journal_sealed"
    opened = open_journal(FILE)
    assert (len(opened), opened.is_sealed, opened.torn_bytes) == (1, False, 0)


def test_a_file_that_somebody_deletes_is_written_anew(journal: Journal) -> None:
    for n in range(3):
        journal.metrics.record(n, {"loss": 1.0}, 0.0, 0, 0)
        journal.append("note", {"n": n})
    FILE.unlink()
    journal.tick()
    opened = open_journal(FILE)
    assert opened.since()[:6] == journal.since()[:6]
    assert [event.type for event in opened.since()[6:]] == ["journal_degraded", "recovered"]
    assert "deleted" in opened.since()[6].payload["error"]
    assert journal.append("note", {}).durable
    journal.verify()


def replace(path: Path) -> bytes:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().replace(b'"n":1', b'"n":9'))
    os.replace(other, path)
    return path.read_bytes()


def move_away(path: Path) -> bytes:
    path.rename(path.with_name("backup"))
    path.write_bytes(b"hi\n")
    return b"hi\n"


def cut_short(path: Path) -> bytes:
    os.truncate(path, 100)
    return path.read_bytes()


def write_into(path: Path) -> bytes:
    with path.open("ab") as file:
        file.write(b"hi\n")
    return path.read_bytes()


def write_over(path: Path) -> bytes:
    """Overwrite in its place, with as many bytes: an editor that saves so, ``sed`` without -i."""
    data = path.read_bytes().replace(b'"n":1', b'"n":9')
    with path.open("r+b") as file:
        file.write(data)
    # Clocks of file systems are coarse: this is another moment.
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 10**7))
    return data


@pytest.mark.parametrize("harm", [replace, move_away, cut_short, write_into, write_over])
def test_a_file_that_somebody_changes_is_put_aside_and_written_anew(
    journal: Journal, harm: Callable[[Path], bytes]
) -> None:
    told: list[str] = []
    journal.on_harm = told.append
    FILE.with_name("journal.jsonl.replaced").write_bytes(b"there already")
    for n in range(3):
        journal.metrics.record(n, {"loss": 1.0}, 0.0, 0, 0)
        journal.append("note", {"n": n})
    stranger = harm(FILE)
    journal.seal()
    assert FILE.with_name("journal.jsonl.replaced2").read_bytes() == stranger
    [said] = told
    assert "is journal.jsonl.replaced2 now; the whole record is written anew" in said
    assert journal.append("note", {}).durable
    assert open_journal(FILE).since() == journal.since()
    assert [event.type for event in journal.since()][6:] == [
        "journal_degraded",
        "recovered",
        "note",
    ]
    journal.close()
    assert open_journal(FILE).verify().is_sealed


def test_a_file_that_is_written_over_between_two_rows_is_put_aside(journal: Journal) -> None:
    journal.append("note", {"n": 1})
    write_over(FILE)
    journal.append("note", {"n": 2})  # a row of ours hides the strange time
    journal.seal()
    assert FILE.with_name("journal.jsonl.replaced").exists()
    assert open_journal(FILE).since() == journal.since()


def test_a_file_that_was_only_touched_is_written_on(journal: Journal) -> None:
    for n in range(6):
        journal.append("note", {"n": n})
        os.utime(FILE)
        os.utime(FILE, ns=(0, n))
        journal.seal()
    assert not list(FILE.parent.glob("*.replaced*"))
    assert not journal.degraded
    journal.verify()


@pytest.mark.parametrize("harm", [replace, cut_short, write_into])
def test_nothing_is_acknowledged_as_written_into_a_changed_file(
    journal: Journal, harm: Callable[[Path], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append("note", {"text": "x" * 100})
    with monkeypatch.context() as patch:
        patch.setattr(journal, "seal_some", lambda packs: False)  # as if no seal came between
        stranger = harm(FILE)
        assert journal.append("note", {"n": 1}).durable is False
        assert FILE.read_bytes() == stranger
        assert journal.degraded
    journal.seal()
    assert not journal.degraded and all(event.durable for event in journal.since())
    journal.verify()


def test_a_file_that_is_replaced_again_and_again_is_not_fought_for_at_every_seal(
    journal: Journal,
) -> None:
    for n in range(20):
        journal.append("note", {"n": n})
        replace(FILE)
        journal.seal()
    assert len(list(FILE.parent.glob("*.replaced*"))) < 10
    journal.close()
    assert open_journal(FILE).verify().is_sealed
    assert open_journal(FILE).since() == journal.since()


def test_a_new_file_that_cannot_be_made_at_once_is_made_later(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append("note", {"text": "x" * 100})
    cut_short(FILE)
    opened = os.open

    def refuse(*arguments: Any) -> int:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    journal.seal()
    assert "cut short, and no new one could be made" in journal.degraded
    assert journal.append("note", {}).durable is False
    monkeypatch.setattr(os, "open", opened)
    journal.close()
    assert open_journal(FILE).since() == journal.since()
    assert open_journal(FILE).verify().is_sealed


@pytest.mark.parametrize("at", ["before", "within", "after"])
def test_an_interrupt_in_the_midst_of_an_append_leaves_nothing_behind(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    journal.append("note", {"n": 0})
    write = os.write

    def interrupted(fd: int, data: bytes) -> int:
        if at != "before":
            write(fd, data if at == "after" else bytes(data)[:30])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        journal.append("note", {"n": 1})
    monkeypatch.setattr(os, "write", write)
    assert [event.payload["n"] for event in journal.since()] == [0]
    assert journal.append("note", {"n": 2}).seq == 1
    assert [event.payload["n"] for event in journal.since()] == [0, 2]
    assert [event.payload["n"] for event in journal.tail(9, types=["note"])] == [0, 2]
    assert open_journal(FILE).since() == journal.since()
    journal.verify()


def test_a_folder_that_cannot_be_made_is_said_with_the_way_out() -> None:
    Path("it2runs").write_text("a file, not a folder")
    with pytest.raises(JournalError, match=r"can't be opened .*directory=None"):
        made()


# --- killed --------------------------------------------------------------------------------------


def test_a_file_has_one_writer_and_any_number_of_readers(journal: Journal) -> None:
    journal.append("note", {})
    with pytest.raises(JournalError, match="being written by another session"):
        made()
    for _ in range(2):
        assert len(open_journal(FILE)) == 1
    # Reading it in this process has not given the lock away.
    with pytest.raises(JournalError, match="being written by another session"):
        made()


def test_a_reader_may_come_while_the_run_goes_on(journal: Journal, disk: Any) -> None:
    seen = []
    for n in range(5):
        journal.metrics.record(n, {"loss": 1.0}, 0.0, 0, 0)
        journal.append("note", {"n": n})
        seen.append(len(open_journal(FILE.parent)))
    assert seen == [2, 4, 6, 8, 10]
