from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from it2nb.core.metrics import MetricStore
from it2nb.panel.curves import LINES, CurveFeed, Packer

Line = tuple[int, int]


class Reader:
    """What a page has of one metric: the steps of each line, by round and branch."""

    def __init__(self) -> None:
        self.lines: dict[Line, list[int]] = {}

    def take(self, packer: Packer) -> None:
        data = np.frombuffer(b"".join(packer.buffers), "<f8")
        for curve in packer.curves:
            have = self.lines.setdefault((curve.round, curve.branch_id), [])
            steps = data[curve.at : curve.at + curve.count].astype(int).tolist()
            have += [step for step in steps if not have or step > have[-1]]


@pytest.fixture
def metrics() -> MetricStore:
    return MetricStore()


@pytest.fixture
def feed(metrics: MetricStore) -> CurveFeed:
    return CurveFeed(metrics)


def record(metrics: Any, round: int, branch_id: int, first: int, last: int) -> None:
    for step in range(first, last + 1):
        t = float(len(metrics))
        metrics.record(step, {"loss": 1 / step}, t, branch_id, round)


def welcome(feed: CurveFeed, page: Reader) -> None:
    feed.follow(["loss"])
    packer = Packer()
    feed.whole(["loss"], packer)
    page.take(packer)


def send(feed: CurveFeed, *pages: Reader) -> int:
    packer = Packer()
    feed.fresh(packer)
    for page in pages:
        page.take(packer)
    return sum(map(len, packer.buffers))


def test_several_lines_that_begin_between_two_batches_are_sent_whole(
    metrics: MetricStore, feed: CurveFeed
) -> None:
    page = Reader()
    record(metrics, 0, 0, 1, 5)
    welcome(feed, page)
    record(metrics, 0, 0, 6, 9)
    record(metrics, 0, 1, 4, 6)
    record(metrics, 0, 2, 5, 7)
    record(metrics, 1, 0, 1, 3)
    send(feed, page)
    assert page.lines == {
        (0, 0): [1, 2, 3, 4, 5, 6, 7, 8, 9],
        (0, 1): [4, 5, 6],
        (0, 2): [5, 6, 7],
        (1, 0): [1, 2, 3],
    }
    assert send(feed, page) == 0


def test_a_line_that_a_second_page_sees_first_comes_whole_to_the_first_one(
    metrics: MetricStore, feed: CurveFeed
) -> None:
    first, second = Reader(), Reader()
    record(metrics, 0, 0, 1, 5)
    welcome(feed, first)
    send(feed, first)
    record(metrics, 0, 1, 3, 6)
    welcome(feed, second)
    record(metrics, 0, 1, 7, 8)
    send(feed, first, second)
    assert first.lines == second.lines == {(0, 0): [1, 2, 3, 4, 5], (0, 1): [3, 4, 5, 6, 7, 8]}


def test_many_short_rounds_between_two_batches_do_not_burst_one(
    metrics: MetricStore, feed: CurveFeed
) -> None:
    page = Reader()
    record(metrics, 0, 0, 1, 5)
    welcome(feed, page)
    for round in range(1, 200):
        record(metrics, round, 0, 1, 50)
    assert send(feed, page) < 20_000
    # As many as a new page is shown.
    assert list(page.lines)[-LINES:] == [(round, 0) for round in range(200 - LINES, 200)]
    record(metrics, 200, 0, 1, 4)
    send(feed, page)
    assert page.lines[200, 0] == [1, 2, 3, 4]
