from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from it2nb.core.chain import GENESIS, link, unlink
from it2nb.core.errors import JournalDamaged, JournalError
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.opened import open as open_journal
from it2nb.core.verify import verify_file

FILE = Path("journal.jsonl")


@pytest.fixture
def written() -> list[bytes]:
    """Lines of seq 0; 1 to 2 (a pack); 3; 4 (a pack); 5 (the seal)."""
    journal = Journal(FILE, MetricStore(), run="r")
    journal.append("note", {"text": "begin"})
    for step in (1, 2):
        journal.metrics.record(step, {"loss": 1 / step}, step * 0.1, 0, 0)
    journal.append("note", {"x": float("nan")}, step=3)
    journal.metrics.record(4, {"loss": float("inf")}, 0.4, 0, 0)
    journal.close()
    return FILE.read_bytes().splitlines(keepends=True)


#: First seq of each line, and the one that a further line would have.
FIRST = (0, 1, 3, 4, 5, 6)


def broken(lines: list[bytes]) -> int | None:
    """Return the seq that verifying names; opening must name the same."""
    FILE.write_bytes(b"".join(lines))
    report = verify_file(FILE)
    if report.ok:
        open_journal(FILE)
        return None
    with pytest.raises(JournalDamaged) as caught:
        open_journal(FILE)
    assert caught.value.seq == report.seq
    assert f"seq {report.seq}" in str(caught.value)
    return report.seq


def test_an_untouched_journal_is_intact_and_sealed(written: list[bytes]) -> None:
    report = verify_file(FILE)
    assert (report.ok, report.events, report.seq, report.is_sealed) == (True, 6, None, True)
    assert report.torn_bytes == 0
    assert str(report) == f"intact: 6 events, head {report.head}"
    assert open_journal(FILE).anchor() == report.head
    assert open_journal(FILE).verify(report.head) == report


def test_any_single_byte_that_is_flipped_is_named(written: list[bytes]) -> None:
    data = b"".join(written)
    line = 0
    ends = [sum(map(len, written[: n + 1])) for n in range(len(written))]
    for at in range(len(data)):
        line += at >= ends[line]
        flipped = bytearray(data)
        flipped[at] ^= 1 << (at % 8)
        FILE.write_bytes(flipped)
        report = verify_file(FILE)
        assert (report.ok, report.seq) == (False, FIRST[line]), f"byte {at}: {report}"


def test_a_line_that_is_removed_added_or_swapped_is_named(written: list[bytes]) -> None:
    for at in range(len(written) - 1):
        assert broken(written[:at] + written[at + 1 :]) == FIRST[at]
        swapped = [*written]
        swapped[at], swapped[at + 1] = swapped[at + 1], swapped[at]
        assert broken(swapped) == FIRST[at]
    for at in range(len(written) + 1):
        for extra in (written[0], written[at - 1], b"{}\n", b"\n"):
            # A copy of a line in front of it is a copy behind it.
            place = at + (extra == (*written, b"")[at])
            assert broken([*written[:at], extra, *written[at:]]) == FIRST[place]


def test_a_line_that_was_changed_and_given_a_good_hash_breaks_the_next_one(
    written: list[bytes],
) -> None:
    hashes = [GENESIS, *(line[-67:-3] for line in written)]
    stem, _ = unlink(written[2].rstrip(b"\n"), hashes[2])
    forged, _ = link(stem.replace(b'"step":3', b'"step":9'), hashes[2])
    assert forged != written[2]
    assert broken([*written[:2], forged, *written[3:]]) == FIRST[3]


def test_a_line_of_another_journal_does_not_fit(written: list[bytes]) -> None:
    other = Journal("other/journal.jsonl", MetricStore(), run="other")
    for _ in range(6):
        other.append("note", {"text": "other"})
    other.close()
    foreign = Path("other/journal.jsonl").read_bytes().splitlines(keepends=True)
    # The same seq, and a hash that fits its bytes.
    assert broken([*written[:2], foreign[3], *written[3:]]) == 3
    assert broken([foreign[0], *written[1:]]) == 1


def test_a_tail_that_is_cut_off_is_found_with_the_anchor(written: list[bytes]) -> None:
    anchor = verify_file(FILE).head
    for keep in range(len(written)):
        FILE.write_bytes(b"".join(written[:keep]))
        without = verify_file(FILE)
        assert without.ok and not without.is_sealed
        assert "or its end was cut off" in without.reason
        report = verify_file(FILE, anchor)
        assert (report.ok, report.seq) == (False, FIRST[keep])
        assert "cut off" in report.reason
        with pytest.raises(JournalDamaged, match="cut off"):
            open_journal(FILE).verify(anchor)


def test_an_anchor_from_the_middle_of_the_run_is_found_later() -> None:
    journal = Journal(FILE, MetricStore(), run="r")
    anchors = [journal.anchor()]
    for step in (1, 2, 3):
        journal.metrics.record(step, {"loss": 1.0}, 0.0, 0, 0)
        anchors.append(journal.anchor())
    journal.close()
    assert len(set(anchors)) == 4
    for anchor in anchors:
        assert verify_file(FILE, anchor).ok
    assert not verify_file(FILE, "0" * 63 + "1").ok


@pytest.mark.parametrize("garbage", [b"x", b"{", b'{"v":2,"seq":6', b"\0" * 40])
def test_what_stands_behind_the_seal_is_damage(written: list[bytes], garbage: bytes) -> None:
    assert broken([*written, garbage]) == 6


@pytest.mark.parametrize("garbage", [b"x", b'{"v":2,"seq":99,', b"\0" * 40, b'{"v":3'])
def test_a_tail_that_the_writer_cannot_have_begun_is_damage(
    written: list[bytes], garbage: bytes
) -> None:
    assert broken([*written[:-1], garbage]) == 5
    assert broken([*written[:-1], b'{"v":2,"seq":5,"typ']) is None
    assert broken([*written[:-1], b'{"v":2,"seq":[5,12],"typ']) is None


def test_a_folder_stands_for_its_journal_and_a_missing_file_is_said(written: list[bytes]) -> None:
    assert verify_file(Path().absolute()).ok
    for look in (open_journal, verify_file):
        with pytest.raises(JournalError, match="can't be read"):
            look("nowhere/journal.jsonl")


def test_a_pack_that_was_forged_with_good_hashes_but_makes_no_sense_is_damage() -> None:
    forged = b'{"v":2,"seq":[0,2],"type":"metrics","epoch":0,"branch_id":0,"round":0,"step":[1],'
    FILE.write_bytes(link(forged + b'"t":[0.0],"columns":{"loss":[1.0]}', GENESIS)[0])
    with pytest.raises(JournalDamaged, match="seq 0"):
        open_journal(FILE)


def test_a_journal_that_is_being_written_is_intact_so_far() -> None:
    journal = Journal(FILE, MetricStore(), run="r")
    journal.append("note", {"text": "begin"})
    report = verify_file(FILE)
    assert report.ok and report.is_live and not report.is_sealed
    assert str(report) == f"intact so far: the run goes on; 1 events, head {report.head}"
    assert journal.verify() == report
    journal.append("note", {"text": "it goes on: looking took nothing from the writer"})
    with pytest.raises(JournalError, match="being written by another session"):
        Journal(FILE, MetricStore(), run="r")
    journal.close(seal=False)
    left = verify_file(FILE)
    assert not left.is_live
    assert str(left).endswith("(the run is not finished, or its end was cut off)")


@pytest.mark.parametrize("anchor", ["", "abc", "0" * 63, "g" * 64, "0" * 64 + "0", 5])
def test_what_is_no_anchor_is_not_taken_for_a_cut_end(written: list[bytes], anchor: Any) -> None:
    with pytest.raises(JournalError, match="is no anchor"):
        verify_file(FILE, anchor)


def test_an_anchor_is_read_as_people_copy_it(written: list[bytes]) -> None:
    head = verify_file(FILE).head
    assert verify_file(FILE, f" {head.upper()}\n").ok
