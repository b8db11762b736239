"""A run for every test of a controller; no keys and no waits for those of a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import it2nb
from it2nb.controllers import provider

from .contract import Bench


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def no_keys_no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "IT2NB_LLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(provider, "BACKOFF_S", 0.001)


@pytest.fixture
def ended() -> Iterator[None]:
    yield
    for each in it2nb.runs():
        each.end()
