"""A run elsewhere with a session's names: `RemoteSession`, and `it2nb.attach` with the panel."""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import it2nb
from it2nb.attached import AttachedRun
from it2nb.core.errors import Refused, UnknownKnob, Unreachable
from it2nb.core.subscription import Gap
from it2nb.panel.bridge import Bridge
from it2nb.server.mirror import Mirror
from it2nb.server.remote import RemoteSession
from it2nb.server.server import serve
from tests.core.driving import LIMIT_S, until
from tests.panel.pages import Page

from .conftest import Served
from .line import Line


@pytest.fixture
def remote(served: Served) -> Iterator[RemoteSession]:
    served.loop.advance(3)
    with RemoteSession(served.server.url, served.server.token, timeout=LIMIT_S) as made:
        yield made


def step_on(served: Served, done: threading.Event) -> threading.Thread:
    """Let the loop go on until `done` is set."""

    def go() -> None:
        while not done.is_set():
            served.loop.advance(wait=False)
            done.wait(0.005)

    thread = threading.Thread(target=go)
    thread.start()
    return thread


def test_what_happened_before_is_here_when_one_has_attached(
    served: Served, remote: RemoteSession
) -> None:
    assert (remote.run_id, remote.title, remote.status) == (
        served.session.run_id, "served", "running",
    )  # fmt: skip
    assert remote.step_count == 3
    assert remote.metrics.frame()["loss"].tolist() == [1.0, 0.5, 1 / 3]
    assert remote.branches == served.session.branches
    assert not remote.is_ended


def test_journal_and_metrics_are_the_same_to_the_bit(served: Served, remote: RemoteSession) -> None:
    odd = iter([float("nan"), float("inf"), float("-inf"), 1e-320, 0.1 + 0.2])
    served.loop._loss = lambda step: next(odd)
    for value in (0.2, 7.0, 0.3):
        served.session.submit({"type": "set_knob", "payload": {"name": "lr", "value": value}})
        served.loop.advance()
    served.session.emit("note", {"text": "ü", "odd": float("nan"), "level": "info"})
    served.loop.advance(2)
    served.loop.finish()
    assert remote.wait(LIMIT_S) == "finished"
    ours, theirs = remote.journal, served.session.journal
    assert ours.lines() == theirs.lines()
    assert ours.requests().equals(theirs.requests())
    assert remote.metrics.frame().equals(served.session.metrics.frame())
    assert ours.packed() == theirs.packed()
    assert ours.is_closed


def test_verbs_reach_the_run_and_the_state_follows(served: Served, remote: RemoteSession) -> None:
    done = threading.Event()
    thread = step_on(served, done)
    try:
        assert remote.set("lr", 0.25).status == "applied"
        assert remote.knobs["lr"].value == 0.25
        assert remote.set("lr", 9.0).status == "rejected"
        assert remote.batch({"lr": 0.3, "wd": 0.2}).ok
        assert remote.do("note", text="hello").ok
        assert remote.pause().ok
        assert remote.state().status == remote.status == "paused"
        assert remote.resume().ok
        handle = remote.submit({"type": "set_knob", "payload": {"name": "wd", "value": 0.4}})
        assert handle.result(LIMIT_S).after == 0.4
        assert handle.done()
        assert remote.result(handle.id) == handle.result(0)
        assert remote.stop().ok
        assert remote.wait(LIMIT_S) == "stopped"
    finally:
        done.set()
        thread.join()
    sources = set(served.session.journal.requests()["source"])
    assert sources == {"http"}
    assert remote.set("lr", 0.1).status == "rejected"


def test_the_local_entry_becomes_the_actor(served: Served, remote: RemoteSession) -> None:
    for source, action in (
        ("panel", {"type": "note", "payload": {"text": "1"}}),
        ("python", {"type": "note", "payload": {"text": "2"}, "actor": "human:anna"}),
    ):
        handle = remote.submit(action, source=source)
        served.loop.advance()
        handle.result(LIMIT_S)
    assert served.session.journal.requests()["actor"].tolist() == ["panel", "human:anna"]


def test_a_request_that_is_none_is_rejected_here(served: Served, remote: RemoteSession) -> None:
    result = remote.submit({"payload": 3}, wait=True)
    assert (result.status, result.durable, result.step) == ("rejected", False, None)
    assert "type" in (result.reason or "")


def test_knobs_read_like_those_of_a_session(served: Served, remote: RemoteSession) -> None:
    assert set(remote.knobs) == {"lr", "wd"}
    assert len(remote.knobs) == 2
    assert "lr" in remote.knobs
    assert "no" not in remote.knobs
    with pytest.raises(UnknownKnob, match="lr"):
        remote.knobs["lt"]
    assert "lr=0.1" in repr(remote.knobs)


def test_a_request_of_another_client_is_seen(served: Served, remote: RemoteSession) -> None:
    with remote.subscribe(types=["action_result"]) as following:
        served.post("note", {"text": "x"})
        served.loop.advance()
        event = following.get(LIMIT_S)
    assert event is not None
    assert not isinstance(event, Gap)
    assert event.payload["type"] == "note"


def test_waiting_ends_in_time_and_in_a_loop(served: Served, remote: RemoteSession) -> None:
    with pytest.raises(TimeoutError, match="running"):
        remote.wait(0.02)

    async def main() -> str:
        served.loop.finish()
        return await remote

    assert asyncio.run(main()) == "finished"


def test_a_wrong_token_or_nobody_is_told_at_once(served: Served) -> None:
    with pytest.raises(Refused):
        it2nb.attach(served.server.url, "a-wrong-token-of-length")
    served.server.close()
    with pytest.raises(Unreachable):
        it2nb.attach(served.server.url, served.server.token, timeout=0.2)


def test_a_lost_connection_is_shown_and_got_back(served: Served) -> None:
    served.loop.advance(3)
    line = Line(served.server.port)
    with RemoteSession(f"http://127.0.0.1:{line.port}", served.server.token) as remote:
        port, token = served.server.port, served.server.token
        served.server.close()
        until(lambda: not remote._is_fed)
        until(lambda: any("no connection" in text for text in remote.state().warnings))
        assert remote.state().step == 3, "the last state stays"
        failed = remote.set("lr", 0.2)
        assert (failed.status, failed.ok, failed.step) == ("failed", False, None)
        assert "no connection" in failed.reason
        served.loop.advance(4)
        served.server = serve(served.session, port=port, token=token)
        until(lambda: remote.state().step == 7)
        assert remote.state().warnings == []
        until(lambda: len(remote.metrics) == 7)
        served.loop.finish()
        assert remote.wait(LIMIT_S) == "finished"
        assert remote.journal.lines() == served.session.journal.lines()
    line.close()


def test_a_connection_that_is_back_is_known_of_a_run_that_stands_still(served: Served) -> None:
    served.loop.advance(3)
    line = Line(served.server.port)
    with RemoteSession(f"http://127.0.0.1:{line.port}", served.server.token) as remote:
        until(lambda: served.server._serving.streams == 1)
        before = line.count
        line.cut()
        until(lambda: line.count > before and served.server._serving.streams == 1)
        # No event comes that would tell.
        until(lambda: remote.state().warnings == [])
        handle = remote.submit({"type": "set_knob", "payload": {"name": "lr", "value": 0.2}})
        served.loop.advance()
        assert handle.result(LIMIT_S).status == "applied"
    line.close()


def test_a_state_that_did_not_come_once_is_asked_for_again(
    served: Served, remote: RemoteSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: remote._is_fed)
    answers = remote.client._http.request

    def late(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(remote.client._http, "request", answers)
        raise httpx.ReadTimeout("the network was busy")

    monkeypatch.setattr(remote.client._http, "request", late)
    until(lambda: any("no connection" in text for text in remote.state().warnings))
    until(lambda: remote.state().warnings == [])


def test_a_run_that_can_not_be_followed_any_more_says_why(served: Served) -> None:
    port = served.server.port
    with RemoteSession(served.server.url, served.server.token) as remote:
        pending = remote.submit({"type": "note", "payload": {"text": "x"}})
        served.server.close()
        other = Served(None, port=port, token="another-token-of-length")
        until(lambda: remote.problem is not None)
        assert "401" in str(remote.problem)
        assert any("401" in text for text in remote.state().warnings)
        with pytest.raises(Unreachable, match="401"):
            remote.wait(LIMIT_S)
        with pytest.raises(Unreachable, match="401"):
            pending.result(LIMIT_S)
        assert "401" in repr(remote)
        other.close()


def test_closing_lets_go_of_the_run_which_goes_on(served: Served) -> None:
    threads = threading.active_count()
    remote = RemoteSession(served.server.url, served.server.token)
    remote.close()
    remote.close()
    until(lambda: served.server._serving.streams == 0)
    served.loop.advance(2)
    assert served.session.status == "running"
    assert copy.deepcopy(remote) is remote
    until(lambda: threading.active_count() <= threads + 2)  # the server's own workers


def test_a_run_without_a_file_is_mirrored_from_where_it_remembers() -> None:
    made = Served(None, retain=20)
    made.loop.advance(100)
    with RemoteSession(made.server.url, made.server.token) as remote:
        made.loop.finish()
        remote.wait(LIMIT_S)
        assert remote.journal.oldest > 50
        oldest = made.session.journal.oldest
        assert remote.journal.lines(oldest) == made.session.journal.lines()
        assert [e.seq for e in remote.journal.tail(3)] == [
            e.seq for e in made.session.journal.tail(3)
        ]
    made.close()


def test_a_mirror_reads_like_a_journal() -> None:
    mirror = Mirror("run")
    pack = {
        "seq": [1, 3], "type": "metrics", "epoch": 50.0, "branch_id": 0, "round": 0,
        "step": [1, 2, 3], "t": [0.5, 1.0, 1.5], "columns": {"loss": [3.0, 2.0, None]},
        "nonfinite": {"loss": {"2": "inf"}},
    }  # fmt: skip
    note = {
        "v": 2, "seq": 0, "type": "note", "ts": 50.1, "t": 0.1, "step": 0, "branch_id": 0,
        "round": 0, "source": None, "action_id": None, "payload": {"text": "x"},
    }  # fmt: skip
    assert not mirror.wait_for(1, 0.0)
    mirror.take([note])
    mirror.take([pack])
    assert mirror.wait_for(4, 0.0)
    assert [e.type for e in mirror.since()] == ["note", "metrics", "metrics", "metrics"]
    assert mirror.since(3)[0].payload == {"loss": float("inf")}
    assert mirror.since(2)[0].ts == 51.0
    assert np.array_equal(mirror.metrics.series("loss")[1], [3.0, 2.0, np.inf])
    assert not mirror.is_closed
    mirror.end()
    assert mirror.wait_for(99, 0.0)


def test_the_panel_takes_a_run_elsewhere(served: Served, remote: RemoteSession) -> None:
    page = Page()
    bridge = Bridge(remote, page.send, heartbeat_s=None)
    done = threading.Event()
    try:
        bridge.receive({"v": 2, "kind": "hello", "client": page.name})
        until(lambda: any(m["kind"] == "snapshot" for m in page.messages))
        thread = step_on(served, done)
        action = {"type": "set_knob", "payload": {"name": "lr", "value": 0.4}, "id": "mine"}
        bridge.receive({"v": 2, "kind": "submit", "client": page.name, "action": action})
        until(lambda: any(r.get("action_id") == "mine" for m in page.messages
                          for r in m.get("rows", [])))  # fmt: skip
        until(lambda: len(page.curves.get("loss", {})) > 3)
    finally:
        done.set()
        bridge.close()
    thread.join()
    assert served.values["lr"] == 0.4


def test_a_request_that_could_not_be_sent_is_told_in_the_panel(
    served: Served, remote: RemoteSession
) -> None:
    page = Page()
    bridge = Bridge(remote, page.send, heartbeat_s=None)
    try:
        bridge.receive({"v": 2, "kind": "hello", "client": page.name})
        until(lambda: any(m["kind"] == "snapshot" for m in page.messages))
        served.server.close()
        until(lambda: remote._lost_since is not None)
        action = {"type": "set_knob", "payload": {"name": "lr", "value": 0.4}, "id": "lost"}
        bridge.receive({"v": 2, "kind": "submit", "client": page.name, "action": action})
        until(
            lambda: any(
                row["action_id"] == "lost" and row["status"] == "failed"
                for message in page.messages
                for row in message.get("unrecorded") or []
            )
        )
    finally:
        bridge.close()


def test_attach_gives_panel_journal_metrics_and_verbs(served: Served, tmp_path: Path) -> None:
    served.loop.advance(2)
    run = it2nb.attach(served.server.link, variable="other")
    assert isinstance(run, AttachedRun)
    assert run.panel is run.panel
    assert run.panel.variable == "other"
    assert "other.set(" in repr(run.panel)
    assert served.server.token not in repr(run) + repr(run.panel)
    assert list(run.metrics.frame()["loss"]) == [1.0, 0.5]
    assert run.plot().data
    run.close()
