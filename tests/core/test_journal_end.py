"""The end of a journal: closed, dropped, forked, cut with its process."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from it2nb.core.errors import JournalError
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.opened import open as open_journal
from tests.core.journals import FILE, LIMIT_S, lines


def test_a_closed_journal_is_sealed_can_be_read_and_takes_nothing_more(journal: Journal) -> None:
    journal.append("note", {"n": 1})
    journal.metrics.record(1, {"loss": 1.0}, 0.0, 0, 0)
    journal.close()
    journal.close()
    assert [line["type"] for line in lines()] == ["note", "metrics", "journal_sealed"]
    assert lines()[-1]["payload"] == {"events": 2}
    with pytest.raises(JournalError, match="run 'r' is closed"):
        journal.append("note", {})
    with pytest.raises(JournalError, match="takes no more rows"):
        journal.append_many([("note", {})])
    assert [event.type for event in journal.since()] == ["note", "metrics", "journal_sealed"]
    assert len(journal.frame()) == 3
    assert journal.is_closed


def test_closing_ends_the_sealing_thread_and_frees_the_file() -> None:
    def threads() -> set[threading.Thread]:
        return {each for each in threading.enumerate() if each.name.startswith("it2nb journal")}

    # Those of journals that other tests have dropped may go at any time.
    before = threads()
    for _ in range(3):
        journal = Journal(FILE, MetricStore(), run="r")
        journal.append("note", {})
        assert len(threads() - before) == 1
        journal.close(seal=False)
        assert threads() <= before
    assert len(lines()) == 3


def test_a_journal_that_nobody_holds_any_more_is_not_kept_by_its_thread() -> None:
    import gc
    import weakref

    journal = Journal(None, MetricStore(), run="dropped")
    journal.append("note", {})
    thread = journal._thread
    assert thread is not None
    ref = weakref.ref(journal)
    del journal
    gc.collect()
    thread.join(LIMIT_S)
    assert ref() is None
    assert not thread.is_alive()


FORK = """
import os, sys
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore

journal = Journal("journal.jsonl", MetricStore(), run="r")
journal.append("note", {"who": "parent"})
journal.metrics.record(1, {"loss": 1.0}, 0.0, 0, 0)
journal._lock.acquire()  # as another thread of the parent might hold it
child = os.fork()
if child == 0:
    event = journal.append("note", {"who": "child"})
    assert (event.seq, event.durable) == (-1, False)
    assert journal.append_many([("note", {})]) is False
    journal.seal(); journal.close()
    assert [e.payload for e in journal.since()] == [{"who": "parent"}]
    sys.exit(0)  # atexit runs here, too
journal._lock.release()
assert os.waitpid(child, 0)[1] == 0
journal.append("note", {"who": "parent"})
journal.close()
journal.verify()
"""


def test_a_forked_child_writes_nothing_and_waits_for_no_lock() -> None:
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=LIMIT_S)
    opened = open_journal(Path("journal.jsonl"))
    assert [event.type for event in opened.since()] == [
        "note", "metrics", "note", "journal_sealed",
    ]  # fmt: skip
    assert opened.since()[2].payload == {"who": "parent"}


def test_a_journal_that_is_dropped_without_an_end_gives_its_file_back() -> None:
    import gc

    for count in range(3):
        journal = Journal(FILE, MetricStore(), run="r")
        assert len(journal) == count
        journal.append("note", {})
        thread = journal._thread
        del journal
        gc.collect()
        assert thread is not None
        thread.join(LIMIT_S)


HELD = """
import os
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore

journal = Journal("journal.jsonl", MetricStore(), run="r")
journal.append("note", {})
mine, its = os.pipe()
told, tell = os.pipe()
child = os.fork()
if child == 0:
    os.close(its)
    os.write(tell, b"!")
    os.read(mine, 1)  # lives on until the parent has taken the file up again
    os._exit(0)
os.read(told, 1)  # it has let go of its copy by now
journal.close(seal=False)
Journal("journal.jsonl", MetricStore(), run="r").close()
os.close(its)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_does_not_keep_the_lock_of_the_file() -> None:
    subprocess.run([sys.executable, "-c", HELD], check=True, timeout=LIMIT_S)
    assert open_journal(Path("journal.jsonl")).is_sealed


def test_metrics_of_the_last_moment_are_written_when_the_process_ends() -> None:
    script = (
        "from it2nb.core.journal import Journal\n"
        "from it2nb.core.metrics import MetricStore\n"
        "journal = Journal('journal.jsonl', MetricStore(), run='r')\n"
        "journal.metrics.record(1, {'loss': 0.5}, 0.0, 0, 0)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LIMIT_S)
    opened = open_journal(Path("journal.jsonl"))
    assert opened.since()[0].payload == {"loss": 0.5}
    assert not opened.is_sealed
