from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from it2nb.core.session import Session
from it2nb.core.wire import Action
from it2nb.notebook import paused
from it2nb.notebook.paused import LOOKS, PausedWatch, RunStaysPaused
from it2nb.notebook.waiting import await_end


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def session() -> Iterator[Session]:
    made = Session(directory=None)
    made.start()
    yield made
    made.finish()


def pause(session: Session) -> None:
    session.change_status("paused")


def test_a_pause_is_told_once_and_borne_for_its_time(
    session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    time = Time()
    watch = PausedWatch(session, 30.0, time)
    watch.look()
    pause(session)
    for _ in range(LOOKS + 3):
        watch.look()
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "is paused after step 0;" in told and "fails in 30 s" in told
    time.now = 29.9
    watch.look()
    time.now = 30.0
    with pytest.raises(RunStaysPaused, match="after step 0, and nobody resumed it for 30 s"):
        watch.look()


def test_each_pause_has_its_own_time(session: Session, capsys: pytest.CaptureFixture[str]) -> None:
    time = Time()
    watch = PausedWatch(session, 30.0, time)
    for now in (0.0, 20.0, 40.0):
        # Resumed and paused again between two looks.
        session.change_status("running")
        pause(session)
        time.now = now
        for _ in range(LOOKS + 1):
            watch.look()
    assert capsys.readouterr().err.count("\n") == 3


def test_it_is_told_who_paused_it_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    session = Session(directory=None)
    asked = session.submit(Action(type="pause", reason="loss is no number"), source="guard")

    def train() -> None:
        with session.run():
            session.step({"loss": 1.0})

    thread = threading.Thread(target=train)
    thread.start()
    try:
        assert asked.result(60).ok
        watch = PausedWatch(session, 0.0)
        watch.look()
        assert "after step 1 by guard (loss is no number)" in capsys.readouterr().err
        with pytest.raises(RunStaysPaused, match=r"after step 1 by guard \(loss is no number\)"):
            for _ in range(LOOKS):
                watch.look()
    finally:
        session.resume()
        thread.join(60)
    watch.look()
    assert session.status == "finished"


def test_an_await_without_a_panel_fails_as_a_wait_does_and_one_with_a_panel_goes_on(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(paused, "PAUSED_S", 0.0)
    pause(session)
    with pytest.raises(RunStaysPaused, match="nobody resumed it"):
        asyncio.run(asyncio.wait_for(await_end(session, headless=True), 60))
    assert "is paused after step 0" in capsys.readouterr().err

    async def ended_by_another_thread() -> None:
        waiting = asyncio.ensure_future(await_end(session))
        await asyncio.sleep(0)
        threading.Timer(0.1, session.finish).start()
        await asyncio.wait_for(waiting, 60)

    asyncio.run(ended_by_another_thread())
    assert session.is_ended
