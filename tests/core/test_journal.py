from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import it2nb
from it2nb.core.errors import JournalError
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.opened import open as open_journal
from it2nb.core.wire import Event
from tests.conftest import dtypes_here

LIMIT_S = 30.0
FILE = Path("it2runs/r/journal.jsonl")


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_800_000_000.0 + self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def journal(clock: Clock) -> Iterator[Journal]:
    made = Journal(FILE, MetricStore(), run="r", clock=clock)
    yield made
    made.close()


def lines(path: Path = FILE) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_bytes().splitlines()]


def submit(journal: Journal, id: str = "a1", value: Any = 0.5, step: int = 1) -> None:
    journal.append(
        "action_submitted",
        {"id": id, "type": "set_knob", "payload": {"name": "lr", "value": value},
         "source": "panel", "actor": "human:anna"},
        step=step, source="panel", action_id=id,
    )  # fmt: skip


def settle(journal: Journal, id: str = "a1", status: str = "applied", **more: Any) -> None:
    payload = {
        "id": id, "type": "set_knob", "ok": True, "status": status, "data": None, "error": None,
        "source": "panel", "actor": "human:anna", "name": "lr", "requested": 0.5, "before": 0.1,
        "after": 0.5, "reason": None, **more,
    }  # fmt: skip
    journal.append_many(
        [("knob_changed", {"name": "lr", "value": 0.5, "before": 0.1}), ("action_result", payload)],
        step=2, branch_id=0, round=0, source="panel", action_id=id,
    )  # fmt: skip


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


# --- reading ------------------------------------------------------------------------------------


@pytest.fixture
def mixed(journal: Journal) -> Journal:
    """Metrics and rows in turns: 0..4 metrics, 5 note, 6..10 metrics, 11 note, 12 tick, ..."""
    step = 0
    for turn in range(4):
        for _ in range(5):
            step += 1
            journal.metrics.record(step, {"loss": float(step)}, float(step), 0, 0)
        journal.append("note", {"turn": turn}, step=step)
        if turn % 2:
            journal.append("tick", {"turn": turn}, step=step)
    journal.metrics.record(step + 1, {"loss": 0.0}, 0.0, 0, 0)
    return journal


def test_since_gives_any_stretch_and_agrees_with_the_file(mixed: Journal) -> None:
    events = mixed.since()
    assert [event.seq for event in events] == list(range(27))
    assert len(mixed) == mixed.next_seq == 27
    for reader in (mixed, open_journal(FILE)):
        for start in range(28):
            for limit in (None, 0, 1, 7):
                stop = None if limit is None else start + limit
                assert reader.since(start, limit=limit) == events[start:stop]
            assert reader.since(start, after=True, limit=2) == events[start + 1 : start + 3]
        assert reader.since(-5, limit=1) == [] or reader.since(-5)[:1] == events[:1]


@pytest.mark.parametrize(
    "types", [None, ["note"], ["tick"], ["metrics"], ["metrics", "tick"], ["note", "tick"], ["no"]]
)
def test_tail_gives_the_newest_of_some_types(mixed: Journal, types: list[str] | None) -> None:
    events = [event for event in mixed.since() if types is None or event.type in types]
    for count in (0, 1, 2, 6, 19, 100):
        assert mixed.tail(count, types) == events[max(0, len(events) - count) :]


def test_lines_are_the_events_as_they_travel(mixed: Journal) -> None:
    mixed.append("note", {"x": math.nan})
    for text, event in zip(mixed.lines(3), mixed.since(3), strict=True):
        row = orjson.loads(text)
        assert set(row) - {"nonfinite"} == set(Event.model_fields) - {"durable"}
        assert (row["seq"], row["type"], row["ts"]) == (event.seq, event.type, event.ts)
    assert row["payload"] == {"x": None} and row["nonfinite"] == {"x": "nan"}


def test_packs_hold_the_same_events_whatever_stretch_is_asked_for(mixed: Journal) -> None:
    events = mixed.since()
    for start in (0, 3, 5, 26):
        found = [orjson.loads(text) for text in mixed.packed(start, limit=20)]
        ends = [row["seq"] if isinstance(row["seq"], list) else [row["seq"]] * 2 for row in found]
        covered = [seq for first, last in ends for seq in range(first, last + 1)]
        assert covered == list(range(start, min(27, start + 20)))
        for row in found:
            if isinstance(row["seq"], list):
                first, last = row["seq"]
                own = [event.payload["loss"] for event in events[first : last + 1]]
                assert row["columns"] == {"loss": own}


def test_the_frame_has_every_event_with_fixed_dtypes(mixed: Journal) -> None:
    submit(mixed)
    frame = mixed.frame()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == dtypes_here({
        "seq": "int64", "ts": "datetime64[ns, UTC]", "t": "float64", "step": "int64",
        "branch_id": "int64", "round": "int64", "type": "str", "source": "str",
        "action_id": "str", "name": "str", "payload": "object",
    })  # fmt: skip
    events = mixed.since()
    assert frame["seq"].tolist() == list(range(len(events)))
    for column in ("type", "payload", "step", "t"):
        assert frame[column].tolist() == [getattr(event, column) for event in events]
    last = frame.iloc[-1]
    assert (last["name"], last["source"], last["action_id"]) == ("lr", "panel", "a1")
    assert frame["source"].isna().sum() == len(events) - 1
    assert frame["ts"].iloc[5] == pd.Timestamp(events[5].ts, unit="s", tz="UTC")
    pd.testing.assert_frame_equal(frame, open_journal(FILE).frame())


def test_frames_are_private_copies(mixed: Journal) -> None:
    submit(mixed)
    for make in (mixed.frame, mixed.requests, mixed.metrics.frame):
        frame, before = make(), make()
        frame.loc[:, "step"] = -1
        if "payload" in frame:
            frame["payload"].iloc[0]["loss"] = -1.0
        del frame["step"]
        pd.testing.assert_frame_equal(make(), before)


def test_an_empty_journal_has_empty_frames_with_the_same_dtypes(
    journal: Journal, mixed: Journal
) -> None:
    empty = Journal(None, MetricStore(), run="e")
    assert len(empty.frame()) == len(empty.requests()) == len(empty.effects()) == 0
    assert empty.frame().dtypes.to_dict() == mixed.frame().dtypes.to_dict()
    assert empty.since() == empty.tail(5) == []
    submit(mixed)
    assert empty.requests().dtypes.to_dict() == mixed.requests().dtypes.to_dict()


# --- requests -----------------------------------------------------------------------------------


def test_a_request_stands_beside_its_result(journal: Journal, clock: Clock) -> None:
    submit(journal, "a1", 0.5)
    clock.now += 0.75
    settle(journal, "a1", "clamped", requested=7.0, reason="the bound is 0.5")
    submit(journal, "a2", math.nan, step=5)
    submit(journal, "a3", "fast", step=6)
    journal.append("approval_requested", {"id": "a3"}, step=6, action_id="a3")
    journal.append(
        "action_result",
        {"id": "a4", "type": "evaluate", "status": "failed", "error": "ValueError: x"},
        step=9, source="python", action_id="a4",
    )  # fmt: skip
    frame = journal.requests()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == dtypes_here({
        "action_id": "str", "type": "str", "name": "str", "source": "str", "actor": "str",
        "requested": "object", "asked": "str", "before": "object", "after": "object",
        "status": "str", "reason": "str", "data": "object",
        "step": "int64", "branch_id": "int64", "round": "int64",
        "submitted_at": "datetime64[ns, UTC]", "wait_s": "float64",
    })  # fmt: skip
    first = frame.iloc[0]
    assert first[["type", "name", "source", "actor", "status", "reason"]].tolist() == [
        "set_knob", "lr", "panel", "human:anna", "clamped", "the bound is 0.5",
    ]  # fmt: skip
    assert (first["requested"], first["before"], first["after"]) == (7.0, 0.1, 0.5)
    assert (first["step"], first["wait_s"]) == (2, 0.75)
    assert first["submitted_at"] == pd.Timestamp(1_800_000_100, unit="s", tz="UTC")
    assert frame["status"].tolist() == ["clamped", "pending", "waiting", "failed"]
    assert math.isnan(frame["requested"].iloc[1]) and frame["requested"].iloc[2] == "fast"
    assert frame["wait_s"].isna().tolist() == [False, True, True, True]
    assert frame["step"].tolist() == [2, 5, 6, 9]
    assert frame["reason"].iloc[3] == "ValueError: x"
    assert pd.isna(frame["submitted_at"].iloc[3])
    assert len(frame.query("source == 'panel' and status == 'clamped'")) == 1
    pd.testing.assert_frame_equal(frame, open_journal(FILE).requests())


def test_what_was_asked_and_what_came_of_it_stands_in_the_frame(tmp_path: Path) -> None:
    session = it2nb.TrainingSession(directory=tmp_path, run_id="r")
    session.evaluator = lambda: {"val_loss": 0.25}
    text = "a long note " * 100
    with session.run():
        session.step({"loss": 1.0})
        session.do("note", text=text)
        session.evaluate()
        session.do("nonsense", x=1)
        session.step({"loss": 0.5})
        session.do("note", text="waits")
        frame = session.journal.requests()
    assert frame["asked"].tolist()[:1] + frame["asked"].tolist()[2:] == [text, "1", "waits"]
    assert pd.isna(frame["asked"].iloc[1])
    assert frame["data"].iloc[1] == {"val_loss": 0.25}
    assert frame["data"].iloc[2] is None
    assert session.path is not None
    assert it2nb.open(session.path).requests()["asked"].iloc[0] == text


def test_a_request_costs_at_most_two_kilobytes_of_memory(journal: Journal) -> None:
    # What is kept are the bytes of its rows.
    count = 200
    for index in range(count):
        submit(journal, f"{index:024d}")
        settle(journal, f"{index:024d}")
    size = sum(sys.getsizeof(stem) for stem in journal._stems)
    assert size <= 2_000 * count


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


# --- the end ------------------------------------------------------------------------------------


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
    def threads() -> int:
        return sum(thread.name.startswith("it2nb journal") for thread in threading.enumerate())

    before = threads()
    for _ in range(3):
        journal = Journal(FILE, MetricStore(), run="r")
        journal.append("note", {})
        assert threads() == before + 1
        journal.close(seal=False)
        assert threads() == before
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
