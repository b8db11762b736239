from __future__ import annotations

import asyncio
import threading

from it2nb.server.bell import Bell
from it2nb.server.limits import Bucket
from tests.core.driving import LIMIT_S


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_gives_its_burst_at_once_and_then_its_rate() -> None:
    clock = Clock()
    bucket = Bucket(10.0, 3.0, clock)
    assert [bucket.take() for _ in range(3)] == [0.0, 0.0, 0.0]
    assert bucket.take() == 0.1
    clock.now += 0.25
    assert [bucket.take(), bucket.take()] == [0.0, 0.0]
    assert bucket.take() > 0
    clock.now += 1000.0  # never more than the burst
    assert [bucket.take() for _ in range(4)].count(0.0) == 3


def test_what_was_spent_has_to_be_made_up_for() -> None:
    clock = Clock()
    bucket = Bucket(0.5, 0.0, clock)
    assert bucket.spend(1.0) == 2.0
    clock.now += 1.0
    assert bucket.spend(0.0) == 1.0
    clock.now += 1.0
    assert bucket.spend(0.0) == 0.0


def test_a_bell_wakes_who_looked_before_it_rang_and_counts_many_rings_as_one() -> None:
    async def main() -> int:
        bell = Bell(asyncio.get_running_loop())
        strokes = 0
        for _ in range(20):
            stroke = bell.next
            threads = [threading.Thread(target=bell.ring) for _ in range(5)]
            for thread in threads:
                thread.start()
            async with asyncio.timeout(LIMIT_S):
                await stroke.wait()
            strokes += 1
            for thread in threads:
                thread.join()
        return strokes

    assert asyncio.run(main()) == 20


def test_a_bell_of_a_closed_loop_is_silent() -> None:
    loop = asyncio.new_event_loop()
    bell = Bell(loop)
    loop.close()
    bell.ring()
