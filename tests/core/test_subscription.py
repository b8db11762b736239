from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.opened import open as open_journal
from it2nb.core.subscription import Gap, Subscription

LIMIT_S = 30.0


@pytest.fixture
def journal() -> Iterator[Journal]:
    yield (made := Journal(None, MetricStore(), run="r"))
    made.close()


def write(journal: Journal, count: int, kind: str = "note") -> None:
    for _ in range(count):
        journal.append(kind, {})


def seqs(mailbox: Subscription) -> list[int]:
    return [event.seq for event in mailbox.drain()[0]]


def test_a_subscriber_gets_what_comes_after_it_subscribed(journal: Journal) -> None:
    write(journal, 2)
    mailbox = journal.subscribe()
    assert mailbox.get(0) is None
    write(journal, 2)
    journal.metrics.record(1, {"loss": 1.0}, 0.0, 0, 0)
    journal.seal()
    assert seqs(mailbox) == [2, 3, 4]
    assert mailbox.drain() == ([], None)


def test_it_may_begin_with_an_older_event_without_gap_or_duplicate(journal: Journal) -> None:
    write(journal, 5)
    mailbox = journal.subscribe(since=3)
    write(journal, 1)
    assert seqs(mailbox) == [3, 4, 5]


def test_types_are_picked(journal: Journal) -> None:
    notes = journal.subscribe(types=["note"])
    metrics = journal.subscribe(types=["metrics"])
    for step in range(3):
        journal.metrics.record(step, {"loss": 1.0}, 0.0, 0, 0)
        write(journal, 1)
        write(journal, 1, "tick")
    assert seqs(notes) == [1, 4, 7]
    assert seqs(metrics) == [0, 3, 6]


@pytest.mark.parametrize("types", [None, ["note"]])
def test_a_slow_subscriber_gets_a_gap_and_then_the_newest(
    journal: Journal, types: list[str] | None
) -> None:
    mailbox = journal.subscribe(types=types, maxlen=3)
    write(journal, 10)
    assert mailbox.get(0) == Gap(0, 6)
    assert Gap(0, 6).as_dict() == {"from": 0, "to": 6}
    got = [mailbox.get(0) for _ in range(3)]
    assert [event.seq for event in got if not isinstance(event, Gap) and event] == [7, 8, 9]
    assert mailbox.get(0) is None
    write(journal, 5)
    events, gap = mailbox.drain()
    assert gap == Gap(10, 11)
    assert [event.seq for event in events] == [12, 13, 14]


def test_rows_of_other_types_make_no_gap(journal: Journal) -> None:
    mailbox = journal.subscribe(types=["note"], maxlen=2)
    write(journal, 1)
    write(journal, 50, "tick")
    write(journal, 1)
    events, gap = mailbox.drain()
    assert ([event.seq for event in events], gap) == ([0, 51], None)


def test_what_was_dropped_from_memory_is_a_gap_too() -> None:
    journal = Journal(None, MetricStore(), run="r", retain=4)
    mailbox = journal.subscribe()
    picky = journal.subscribe(types=["note"])
    write(journal, 10)
    for each in (mailbox, picky):
        events, gap = each.drain()
        assert (gap, [event.seq for event in events]) == (Gap(0, 5), [6, 7, 8, 9])


def test_get_waits_for_the_next_event_and_not_longer_than_it_was_told(journal: Journal) -> None:
    mailbox = journal.subscribe(types=["note"])
    writer = threading.Timer(0.01, write, (journal, 1))
    writer.start()
    got = mailbox.get(LIMIT_S)
    writer.join(LIMIT_S)
    assert got is not None and not isinstance(got, Gap) and got.seq == 0
    assert mailbox.get(0.001) is None


def test_iterating_ends_when_the_journal_closes_and_everything_was_read(journal: Journal) -> None:
    mailbox = journal.subscribe()
    found: list[int] = []

    def follow() -> None:
        found.extend(item.seq for item in mailbox if not isinstance(item, Gap))

    follower = threading.Thread(target=follow)
    follower.start()
    write(journal, 20)
    journal.close()
    follower.join(LIMIT_S)
    assert not follower.is_alive()
    assert found == list(range(21))


def test_a_closed_subscription_wakes_its_reader_and_is_forgotten(journal: Journal) -> None:
    with journal.subscribe() as mailbox:
        waiting = threading.Thread(target=mailbox.get)
        waiting.start()
        mailbox.close()
        waiting.join(LIMIT_S)
        assert not waiting.is_alive()
    mailbox.close()
    assert journal._subscriptions == ()
    write(journal, 1)
    assert mailbox.get() is None
    assert mailbox.drain() == ([], None)


def test_many_writers_and_a_reader_that_keeps_up_lose_nothing(journal: Journal) -> None:
    mailbox = journal.subscribe(maxlen=10_000)
    writers = [threading.Thread(target=write, args=(journal, 100)) for _ in range(4)]
    for writer in writers:
        writer.start()
    got = [mailbox.get(LIMIT_S) for _ in range(400)]
    for writer in writers:
        writer.join(LIMIT_S)
    assert [None if isinstance(e, Gap) or e is None else e.seq for e in got] == list(range(400))


def test_a_mailbox_has_room_for_one_at_least(journal: Journal) -> None:
    with pytest.raises(ValueError, match="maxlen=0"):
        journal.subscribe(maxlen=0)


def test_an_opened_journal_can_be_followed_to_its_end() -> None:
    journal = Journal(Path("journal.jsonl"), MetricStore(), run="r")
    write(journal, 3)
    journal.close()
    opened = open_journal("journal.jsonl")
    got = [item for item in opened.subscribe(since=1) if not isinstance(item, Gap)]
    assert [event.seq for event in got] == [1, 2, 3]
