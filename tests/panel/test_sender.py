from __future__ import annotations

import sys
import threading

import pytest

from it2nb.core.faults import Fault
from it2nb.panel.sender import Sender

from .pages import PATIENCE_S


def test_the_thread_ends_when_there_is_nothing_left_and_comes_back_when_woken() -> None:
    turned = threading.Semaphore(0)
    threads: list[threading.Thread] = []

    def turn() -> float | None:
        threads.append(threading.current_thread())
        turned.release()
        return None

    sender = Sender(turn, lambda fault: None)
    for _ in range(20):
        sender.wake()
        assert turned.acquire(timeout=PATIENCE_S)
        threads[-1].join(PATIENCE_S)
        assert not threads[-1].is_alive()
    assert all(thread.daemon for thread in threads)
    sender.close()


def test_threads_take_turns_often_while_it_lives() -> None:
    before = sys.getswitchinterval()
    seen: list[float] = []

    def turn() -> float | None:
        seen.append(sys.getswitchinterval())
        return None

    sender = Sender(turn, lambda fault: None)
    sender.wake()
    with sender._lock:
        thread = sender._thread
    if thread is not None:
        thread.join(PATIENCE_S)
    assert seen == [pytest.approx(1e-4)]
    assert sys.getswitchinterval() == before
    sender.close()


def test_no_wake_is_lost_while_the_thread_ends() -> None:
    done = 0
    wanted = 0
    reached = threading.Condition()

    def turn() -> float | None:
        nonlocal done
        with reached:
            done = wanted
            reached.notify_all()
        return None

    def caught_up() -> bool:
        return done >= wanted

    sender = Sender(turn, lambda fault: None)
    for number in range(1, 501):
        with reached:
            wanted = number
        sender.wake()
        with reached:
            assert reached.wait_for(caught_up, PATIENCE_S)
    sender.close()


def test_a_turn_that_raises_is_reported_and_tried_again() -> None:
    faults: list[Fault] = []
    again = threading.Event()

    def turn() -> float | None:
        if not faults:
            raise OSError("no room")
        again.set()
        return None

    sender = Sender(turn, faults.append)
    sender.wake()
    assert again.wait(PATIENCE_S)
    assert [fault.error for fault in faults] == ["OSError: no room"]
    sender.close()


def test_a_closed_sender_starts_no_thread() -> None:
    sender = Sender(lambda: None, lambda fault: None)
    sender.close()
    before = threading.active_count()
    sender.wake()
    assert threading.active_count() == before
