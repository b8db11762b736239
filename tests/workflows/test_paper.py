"""The paper's scale on a machine that has neither its GPU nor its data: said at once, by all."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import torch

import it2nb
from it2nb.core.errors import WorkflowUnavailable
from it2nb.workflows.base import LoopWorkflow, Workflow
from it2nb.workflows.countdown import Countdown
from it2nb.workflows.hf import HFSentiment
from it2nb.workflows.layerwise import LayerwiseGPT
from it2nb.workflows.mixing import SentimentMixing
from it2nb.workflows.muon import MuonGPT

#: A workflow, and what it reads from the hub.
PAPER: dict[type[Workflow], tuple[str, ...]] = {
    HFSentiment: ("google-bert/bert-base-uncased", "stanfordnlp/imdb"),
    SentimentMixing: ("google-bert/bert-base-uncased", "Yelp/yelp_review_full"),
    LayerwiseGPT: ("HuggingFaceFW/fineweb-edu", "Qwen/Qwen3-0.6B"),
    MuonGPT: ("HuggingFaceFW/fineweb-edu", "Qwen/Qwen3-0.6B"),
    Countdown: ("Qwen/Qwen3-0.6B",),
}


@pytest.mark.parametrize("kind", PAPER, ids=lambda each: each.name)
def test_what_is_missing_is_said_before_any_download_or_allocation(
    kind: type[Workflow], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked, or a parameter was made")

    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path))
    monkeypatch.delenv("IT2NB_DOWNLOAD", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(torch.nn.Parameter, "__new__", refuse)
    flow = kind("paper")
    session = it2nb.TrainingSession(flow.goal, directory=None, seed=1)
    ways: list[Callable[[], Any]] = [
        flow.check,
        lambda: flow.run(session),
        lambda: flow.train(session),
        lambda: flow.prepare(session, 1) if isinstance(flow, LoopWorkflow) else flow.parts(1),  # type: ignore[attr-defined]
    ]
    for way in ways:
        with pytest.raises(WorkflowUnavailable) as caught:
            way()
        said = str(caught.value)
        for part in (f"workflow {flow.name!r} at scale 'paper' can't run here",
                     "CUDA device", "there is none", *PAPER[kind], "set IT2NB_DOWNLOAD=1",
                     "scale='laptop' runs the same code"):  # fmt: skip
            assert part in said
    assert session.step_count == 0
