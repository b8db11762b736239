"""A journal whose process was killed: what is there, and who goes on with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from it2nb.core.errors import JournalDamaged, JournalError
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.opened import open as open_journal
from it2nb.core.verify import verify_file
from tests.core.journals import FILE, LIMIT_S, made

KILLED = """
import sys
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore

journal = Journal("it2runs/r/journal.jsonl", MetricStore(), run="r")
step = 0
while True:
    step += 1
    journal.metrics.record(step, {"loss": 1.0 / step}, 0.0, 0, 0)
    journal.append_many([("note", {"n": step}), ("note", {"n": step, "again": True})], step=step)
    print(step, flush=True)
"""


@pytest.mark.parametrize("after", [1, 150])
def test_everything_acknowledged_is_there_after_sigkill(after: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) == after:
                process.send_signal(signal.SIGKILL)
                break
        told = [after, *map(int, process.stdout.read().split())]
        process.wait(LIMIT_S)
    opened = open_journal(FILE)
    assert verify_file(FILE).ok
    notes = [event.payload["n"] for event in opened.since() if event.type == "note"]
    assert notes == sorted(notes) and set(range(1, told[-1] + 1)) <= set(notes)
    assert opened.metrics.series("loss")[0].tolist()[: told[-1]] == list(range(1, told[-1] + 1))


def torn(keep: Callable[[bytes], bytes]) -> bytes:
    """Write three rows, and leave only a part of the last line; return the whole lines."""
    journal = made()
    for n in range(3):
        journal.metrics.record(n, {"loss": float(n)}, 0.0, 1, 2)
        journal.append("note", {"n": n}, step=n, branch_id=1, round=2)
    journal.close(seal=False)
    *whole, last = FILE.read_bytes().splitlines(keepends=True)
    FILE.write_bytes(b"".join(whole) + keep(last))
    return b"".join(whole)


@pytest.mark.parametrize(
    "keep", [lambda b: b[:1], lambda b: b[:9], lambda b: b[: len(b) // 2], lambda b: b[:-1]]
)
def test_only_the_writer_cuts_a_torn_line_and_says_so(keep: Callable[[bytes], bytes]) -> None:
    whole = torn(keep)
    before = FILE.read_bytes()
    opened = open_journal(FILE)
    assert (len(opened), opened.torn_bytes) == (5, len(before) - len(whole))
    report = opened.verify()
    assert report.ok and report.torn_bytes == opened.torn_bytes
    assert FILE.read_bytes() == before  # a reader changes nothing

    journal = made()
    assert journal.since()[:5] == opened.since()
    recovered = journal.since()[5]
    assert (recovered.type, recovered.seq) == ("recovered", 5)
    assert recovered.payload == {"cut_bytes": opened.torn_bytes, "kept_events": 5}
    assert (recovered.step, recovered.branch_id, recovered.round) == (1, 1, 2)
    journal.metrics.record(7, {"loss": 7.0}, 0.5, 3, 2)
    journal.append("note", {"n": 7})
    journal.close()
    assert FILE.read_bytes().startswith(whole)
    assert len(open_journal(FILE)) == 9
    assert open_journal(FILE).since() == journal.since()
    assert journal.metrics.series("loss")[1].tolist() == [0.0, 1.0, 2.0, 7.0]
    assert journal.verify() is not None


def test_times_stay_right_when_a_killed_run_is_taken_up_again() -> None:
    class Clock:
        def __init__(self, now: float) -> None:
            self.now = now

        def monotonic(self) -> float:
            return self.now

        def time(self) -> float:
            return 5_000.0 + self.now

    for start in (10.0, 70.0):
        journal = Journal(FILE, MetricStore(), run="r", clock=Clock(start))
        journal.metrics.record(1, {"loss": 1.0}, 0.5, 0, 0)
        journal.seal()
        journal.close(seal=False)
    assert [event.ts for event in journal.since()] == [5_010.5, 5_070.5]
    assert journal.frame()["ts"].astype("int64").tolist() == [5_010_500_000_000, 5_070_500_000_000]
    assert [event.ts for event in open_journal(FILE).since()] == [5_010.5, 5_070.5]


def test_a_finished_run_is_not_written_on() -> None:
    journal = made()
    journal.append("note", {})
    journal.close()
    with pytest.raises(JournalError, match=r"finished run; .*another run_id"):
        made()
    assert len(open_journal(FILE)) == 2


def test_a_damaged_file_is_not_written_on() -> None:
    torn(lambda last: last)
    data = FILE.read_bytes()
    FILE.write_bytes(data.replace(b'"n":1', b'"n":5'))
    with pytest.raises(JournalDamaged, match="seq 3"):
        made()
    FILE.write_bytes(data)
    made().close()  # the lock was given back
