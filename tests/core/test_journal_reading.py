"""What readers of a journal get: stretches, tails, packs, frames, requests."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import orjson
import pandas as pd
import pytest

import it2nb
from it2nb.core.journal import Journal
from it2nb.core.metrics import MetricStore
from it2nb.core.opened import open as open_journal
from it2nb.core.wire import Event
from tests.conftest import dtypes_here
from tests.core.journals import FILE, Clock, settle, submit

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
