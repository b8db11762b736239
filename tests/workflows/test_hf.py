"""Sentiment with the Trainer: steered, replayed, and done in rounds, at ci scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import it2nb
from it2nb.core.wire import Action
from it2nb.session import TrainingSession
from it2nb.workflows.hf import HFSentiment, accuracy_of, dataset

FLOW = HFSentiment("ci", steps=6, evaluate_every=3)


@pytest.fixture(scope="module")
def steered(tmp_path_factory: pytest.TempPathFactory) -> TrainingSession:
    session = TrainingSession(FLOW.goal, directory=tmp_path_factory.mktemp("runs"), title="hf")

    def look(_: Any) -> None:
        if session.step_count == 2:
            for name, value in (("lr", 1e-4), ("max_grad_norm", 0.5), ("betas[0]", 1.5)):
                session.submit(Action(type="set_knob", payload={"name": name, "value": value}))

    session.every(1, look)
    FLOW.run(session, seed=3)
    return session


def test_the_knobs_of_the_trainer_take_what_was_asked_for(steered: TrainingSession) -> None:
    requests = steered.journal.requests().set_index("name")
    assert requests["status"].to_dict() == {
        "lr": "applied", "max_grad_norm": "applied", "betas[0]": "rejected",
    }  # fmt: skip
    assert {"lr", "weight_decay", "betas[0]", "eps", "max_grad_norm"} <= set(steered.knobs)
    frame = steered.metrics.frame().dropna(subset=["eval_loss"])
    assert list(frame["step"]) == [3, 6]
    assert frame["eval_accuracy"].between(0, 1).all()


def test_it_is_replayed_to_the_bit(steered: TrainingSession, tmp_path: Path) -> None:
    replay = it2nb.replay(steered.path or "")
    FLOW.run(TrainingSession(FLOW.goal, directory=tmp_path, replay=replay))
    verdict = replay.verify()
    assert verdict, str(verdict)
    assert verdict.state == "equal"


def test_rounds_begin_with_the_same_weights(tmp_path: Path) -> None:
    session = TrainingSession(FLOW.goal, directory=tmp_path, seed=1)
    records = session.run_rounds(FLOW.train, 2)
    assert [each["status"] for each in records] == ["finished", "finished"]
    assert records[0]["value"] == records[1]["value"]


def test_the_snippets_take_sides_and_both_sources_are_there() -> None:
    rows = dataset("ci", "train", 200)
    assert len(rows) == 200
    assert set(rows.labels) == {0, 1}
    assert 0 not in rows[0]["input_ids"]
    assert accuracy_of((np.array([[0.1, 0.9], [0.8, 0.2]]), np.array([1, 1]))) == {"accuracy": 0.5}


def test_it_says_what_the_paper_scale_needs() -> None:
    needs = HFSentiment("paper").requirements()
    assert needs.gpu_gib > 0
    assert needs.hub == ("google-bert/bert-base-uncased",)
    assert needs.data == ("stanfordnlp/imdb",)
