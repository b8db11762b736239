from __future__ import annotations

import math
import os
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.opened import open as open_journal
from it2nb.core.wire import Event
from tests.core.journals import FILE, LIMIT_S, Clock, lines

# --- rows ---------------------------------------------------------------------------------------


def test_a_row_is_on_disk_when_append_returns_and_says_all_there_is_to_say(
    journal: Journal, clock: Clock
) -> None:
    clock.now += 2.5
    event = journal.append(
        "note", {"text": "hé"}, step=7, branch_id=1, round=2, source="python", action_id="x"
    )
    assert event == Event(
        seq=0, type="note", payload={"text": "hé"}, ts=1_800_000_102.5, t=2.5, step=7,
        branch_id=1, round=2, source="python", action_id="x",
    )  # fmt: skip
    (line,) = lines()
    assert {key: line[key] for key in line if key not in ("prev", "hash")} == {
        "v": 2, "seq": 0, "type": "note", "payload": {"text": "hé"}, "ts": 1_800_000_102.5,
        "t": 2.5, "step": 7, "branch_id": 1, "round": 2, "source": "python", "action_id": "x",
    }  # fmt: skip
    assert journal.since() == [event]


def test_rows_of_one_call_are_neighbours_and_one_write(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[bytes] = []
    write = os.write

    def count(fd: int, data: bytes) -> int:
        written.append(bytes(data))
        return write(fd, data)

    monkeypatch.setattr(os, "write", count)
    assert journal.append_many([("note", {"n": 1}), ("note", {"n": 2})], step=3)
    assert len(written) == 1 and written[0].count(b"\n") == 2
    assert [event.payload["n"] for event in journal.since()] == [1, 2]


def test_metrics_that_were_recorded_before_a_row_stand_before_it(journal: Journal) -> None:
    for step in range(1, 4):
        journal.metrics.record(step, {"loss": 1 / step}, step * 0.5, 0, 0)
    journal.append("note", {}, step=3)
    journal.metrics.record(4, {"loss": 0.25}, 2.0, 0, 0)
    events = journal.since()
    assert [(e.seq, e.type, e.step) for e in events] == [
        (0, "metrics", 1), (1, "metrics", 2), (2, "metrics", 3), (3, "note", 3), (4, "metrics", 4),
    ]  # fmt: skip
    assert events[1].payload == {"loss": 0.5}
    assert events[1].ts == 1_800_000_100.0 + 1.0
    first, note, last = lines()
    assert first["seq"] == [0, 2]
    assert first["columns"] == {"loss": [1.0, 0.5, 1 / 3]}
    assert (note["seq"], last["seq"]) == (3, [4, 4])


def test_a_pack_ends_at_a_change_of_branch_round_or_names_and_at_1024_steps(
    journal: Journal,
) -> None:
    record = journal.metrics.record
    for step in range(1, 1_501):
        record(step, {"loss": 1.0}, 0.0, 0, 0)
    record(1_501, {"loss": 1.0, "acc": 1.0}, 0.0, 0, 0)
    record(1_502, {"loss": 1.0}, 0.0, 1, 0)
    record(1, {"loss": 1.0}, 0.0, 1, 1)
    journal.seal()
    assert [line["seq"] for line in lines()] == [
        [0, 1023], [1024, 1499], [1500, 1500], [1501, 1501], [1502, 1502],
    ]  # fmt: skip
    assert [event.seq for event in journal.since(1020, limit=10)] == list(range(1020, 1030))


def test_recorded_metrics_are_sealed_by_themselves(journal: Journal) -> None:
    reached = threading.Event()
    follower = journal.subscribe(wake=reached.set)
    journal.append("note", {})  # the sealing thread starts with the first row
    journal.metrics.record(1, {"loss": 1.0}, 0.0, 0, 0)
    while (got := follower.get(LIMIT_S)) is not None:
        if isinstance(got, Event) and got.type == "metrics":
            break
    assert isinstance(got, Event) and got.payload == {"loss": 1.0}
    assert lines()[-1]["columns"] == {"loss": [1.0]}
    assert reached.is_set()


@pytest.mark.parametrize(
    "payload",
    [
        {"a": None, "b": math.nan},
        {"null": math.inf, "b": None, "c": "null"},
        {"a": None, "b": {"c": None, "d": [-math.inf]}},
        {"a": "null null", "b": None, "c": {"null": None}},
    ],
)
def test_a_number_that_is_none_is_told_from_nothing_and_from_the_word(
    journal: Journal, payload: dict[str, Any]
) -> None:
    journal.append("note", payload)
    (event,) = journal.since(0)
    assert repr(event.payload) == repr(payload)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_c62_a_non_finite_number_is_null_in_the_file_and_itself_again_for_readers(
    journal: Journal, value: float
) -> None:
    journal.append("note", {"deep": [{"x": value}, None]})
    journal.metrics.record(1, {"loss": 1.0, "val.loss": value}, 0.5, 0, 0)
    journal.seal()
    kind = {"nan": "nan", "inf": "inf", "-inf": "-inf"}[repr(value)]
    note, pack = lines()
    assert note["payload"] == {"deep": [{"x": None}, None]}
    assert note["nonfinite"] == {"deep.0.x": kind}
    assert pack["columns"]["val.loss"] == [None]
    assert pack["nonfinite"] == {"val.loss": {"0": kind}}
    for reader in (journal, open_journal(FILE)):
        note_event, metric = reader.since()
        assert repr(note_event.payload["deep"]) == repr([{"x": value}, None])
        assert repr(metric.payload["val.loss"]) == repr(value)


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40)
@given(payloads=st.lists(st.dictionaries(st.text(), plain, max_size=5), min_size=1, max_size=6))
def test_any_payload_comes_back_as_it_was(
    payloads: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("any") / "journal.jsonl"
    journal = Journal(path, MetricStore(), run="r")
    for payload in payloads:
        journal.append("note", payload)
    journal.close()
    for reader in (journal, open_journal(path)):
        found = [event.payload for event in reader.since()][:-1]
        assert repr(found) == repr(payloads)
    lines(path)  # strict JSON throughout


class Odd:
    def __repr__(self) -> str:
        return "<odd>"


def test_a_payload_that_is_no_json_is_written_as_well_as_can_be(journal: Journal) -> None:
    payload: dict[Any, Any] = {
        "array": np.array([1.0, math.nan]), "odd": Odd(), 3: {1}, "big": 10**30,
        "half": "a\ud800b", "np": np.float64("inf"), "path": Path("x"), "tuple": (1, 2),
    }  # fmt: skip
    payload["itself"] = payload
    event = journal.append("note", payload, action_id="\ud800")
    kept = dict(event.payload)
    assert kept.pop("itself")
    assert repr(kept) == repr(
        {"array": [1.0, math.nan], "odd": "<odd>", "3": [1], "big": str(10**30),
         "half": "a?b", "np": math.inf, "path": "x", "tuple": [1, 2]}
    )  # fmt: skip
    assert event.action_id == "?"
    assert repr(open_journal(FILE).since()) == repr([event])


# --- threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [FILE, None])
def test_c15_two_threads_write_and_a_reader_always_sees_a_consistent_prefix(
    where: Path | None,
) -> None:
    metrics = MetricStore()
    journal = Journal(where, metrics, run="r")
    done = threading.Event()
    faults: list[str] = []

    def train() -> None:
        for step in range(400):
            metrics.record(step, {"loss": float(step)}, 0.0, 0, 0)

    def ask() -> None:
        for index in range(400):
            journal.append("note", {"n": index}, step=index)

    def read() -> None:
        while not done.is_set():
            frame = journal.frame()
            if frame["seq"].tolist() != list(range(len(frame))):
                faults.append("seq")
            own = frame[frame["type"] == "note"]["payload"].map(lambda payload: payload["n"])
            if own.tolist() != list(range(len(own))):
                faults.append("order")
            frame.loc[:, "type"] = "spoiled"

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        reader = threading.Thread(target=read)
        writers = [threading.Thread(target=train), threading.Thread(target=ask)]
        for thread in (reader, *writers):
            thread.start()
        for thread in writers:
            thread.join(LIMIT_S)
        done.set()
        reader.join(LIMIT_S)
    finally:
        sys.setswitchinterval(before)
    assert faults == []
    frame = journal.frame()
    assert frame["seq"].tolist() == list(range(800))
    assert frame["type"].value_counts().to_dict() == {"metrics": 400, "note": 400}
    journal.close()
    if where is not None:
        assert len(open_journal(where)) == 801
        journal.verify()


# --- in memory ----------------------------------------------------------------------------------


def test_a_journal_without_a_file_keeps_as_many_events_as_it_was_told() -> None:
    journal = Journal(None, MetricStore(), run="r", retain=10)
    for step in range(1, 31):
        journal.append("note", {"n": step}, step=step)
        journal.metrics.record(step, {"loss": float(step)}, 0.0, 0, 0)
    journal.seal()
    assert (len(journal), journal.oldest) == (60, 50)
    assert [event.seq for event in journal.since(0)] == list(range(50, 60))
    gap = journal.gap(7)
    assert gap is not None and gap.as_dict() == {"from": 7, "to": 49}
    assert journal.gap(50) is None
    assert journal.frame()["seq"].tolist() == list(range(50, 60))
    assert [event.seq for event in journal.tail(100)] == list(range(50, 60))
    assert len(journal.metrics) == 30  # the curves stay
    assert sum(stem is not None for stem in journal._stems) == 5
    assert (journal.anchor(), journal.verify(), journal.path) == (None, None, None)
    assert journal.append("note", {}).durable
