"""A workflow's loop: every request is honoured, evaluation is on schedule, needs are checked."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import it2nb
from it2nb.core.errors import (
    It2nbError,
    MissingDependency,
    SessionEnded,
    WorkflowUnavailable,
)
from it2nb.core.session import Session
from it2nb.workflows.base import scale_of_environment, training_of
from it2nb.workflows.digits import Digits
from it2nb.workflows.requirements import Requirements, absent_from_cache


def asked_at(session: Session, plan: dict[int, Callable[[Session], Any]]) -> dict[int, Any]:
    """Ask for things on the training thread at given steps; returns the handles."""
    handles: dict[int, Any] = {}

    def look(session: Session) -> None:
        if session.step_count in plan:
            handles[session.step_count] = plan[session.step_count](session)

    session.every(1, look)
    return handles


def request(kind: str, **payload: Any) -> Callable[[Session], Any]:
    return lambda session: session.submit(it2nb.Action(type=kind, payload=payload))


def evaluations(session: Session) -> list[int]:
    return [
        event.step or 0
        for event in session.journal.since(0)
        if event.type == "metrics" and "val_loss" in event.payload.get("metrics", event.payload)
    ]


def test_it_evaluates_on_schedule_and_learns() -> None:
    flow = Digits("ci")
    session = it2nb.TrainingSession(title="digits")
    assert flow.run(session, seed=1) == "finished"
    frame = session.metrics.frame().dropna(subset=["val_loss"])
    assert list(frame["step"]) == [20, 40, 60]
    assert frame["val_loss"].iloc[-1] < 0.6 * frame["val_loss"].iloc[0]
    assert session.goal == flow.goal


def test_the_same_seed_is_the_same_run_and_another_one_is_not() -> None:
    flow = Digits("ci", steps=6, evaluate_every=3)

    def run(seed: int) -> list[float]:
        session = it2nb.TrainingSession(directory=None)
        flow.run(session, seed=seed)
        return [float(each) for each in session.metrics.frame()["loss"]]

    assert run(1) == run(1) != run(2)


def test_a_steered_run_is_replayed_to_the_bit_also_through_undo_and_load() -> None:
    flow = Digits("ci", steps=24, evaluate_every=6)
    first = it2nb.TrainingSession(title="first", snapshots={"every": 4, "max_share": 1.0})
    asked_at(
        first,
        {
            3: request("set_knob", name="lr", value=1e-3),
            5: request("set_knob", name="shift", value=1),
            8: request("save_checkpoint", tag="a"),
            11: request("undo"),
            14: request("evaluate"),
            18: request("load_checkpoint", path="a"),
        },
    )
    flow.run(first, seed=2)
    asked = first.journal.requests()
    went_back = asked[asked["status"] == "applied"]["type"].isin(["undo", "load_checkpoint"])
    assert first.branch_id == went_back.sum() == 5  # what the loop came by again included
    assert (asked[asked["type"] == "load_checkpoint"]["status"] == "applied").any()
    replay = it2nb.replay(first.path or "")
    flow.run(it2nb.TrainingSession(replay=replay, snapshots={"every": 4, "max_share": 1.0}))
    verdict = replay.verify()
    assert verdict, str(verdict)
    assert verdict.state == "equal"


def test_the_loop_honours_what_a_plain_session_leaves_to_it(tmp_path: Path) -> None:
    """`core.Session` knows no PyTorch: everything comes through StepControl."""
    flow = Digits("ci", steps=20, evaluate_every=50)
    session = Session(directory=tmp_path)
    weights: dict[str, torch.Tensor] = {}

    def keep(name: str) -> Callable[[Session], None]:
        def look(session: Session) -> None:
            training = training_of(session)
            assert training is not None
            weights[name] = training.model[9].weight.detach().clone()  # type: ignore[index]

        return look

    asked = asked_at(
        session,
        {
            2: request("save_checkpoint", tag="two"),
            4: lambda s: s.submit(
                it2nb.Action(type="load_checkpoint", payload={"path": s.checkpoints[0]["path"]})
            ),
            6: request("evaluate"),
            7: keep("before"),
            8: request("reset_module", name="9"),
            10: request("load_checkpoint", path="nowhere.pt"),
            15: request("stop"),
        },
    )
    session.every(1, lambda s: keep("after")(s) if s.step_count == 9 else None)
    assert flow.run(session, seed=0) == "stopped"
    said = {step: handle.result(0).status for step, handle in asked.items() if handle is not None}
    assert said == {2: "applied", 4: "applied", 6: "applied", 8: "applied", 10: "failed",
                    15: "applied"}  # fmt: skip
    assert session.step_count == 15
    assert "val_loss" in asked[6].result(0).data
    assert (weights["after"] - weights["before"]).abs().max() > 0.02
    notes = [e.payload["text"] for e in session.journal.since(0) if e.type == "note"]
    assert any("nowhere.pt" in each and "ask with the path" in each for each in notes)


def test_a_fork_trains_both_ways_by_the_workflows_own_update() -> None:
    flow = Digits("ci", steps=16, evaluate_every=8)
    session = it2nb.TrainingSession(snapshots={"every": 2, "max_share": 1.0})
    asked = asked_at(
        session,
        {4: request("set_knob", name="lr", value=1e-1), 8: request("fork", steps=4)},
    )
    flow.run(session, seed=0)
    result = asked[8].result(0)
    assert result.status == "applied", result
    assert session.step_count == 16


def test_rounds_begin_with_fresh_weights_and_the_same_knobs() -> None:
    flow = Digits("ci", steps=4, evaluate_every=2)
    session = it2nb.TrainingSession(seed=5)
    with session.run():
        flow.train(session)
        names = list(session.knobs)
        first = training_of(session)
        flow.train(session)
    assert sorted(session.knobs) == sorted(names)
    losses = list(session.metrics.frame()["loss"])
    assert losses[:4] == losses[4:8]
    assert training_of(session) is not first


def test_the_scale_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("IT2NB_SCALE", raising=False)
    assert scale_of_environment() == "laptop"
    for asked, scale in {"ci": "ci", "0.05": "ci", "1": "laptop", "paper": "paper"}.items():
        monkeypatch.setenv("IT2NB_SCALE", asked)
        assert scale_of_environment() == scale
    monkeypatch.setenv("IT2NB_SCALE", "lap")
    with pytest.raises(It2nbError, match="'lap' is none of ours; did you mean 'laptop'"):
        scale_of_environment()


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "3", True])
def test_a_count_that_is_none_is_refused(wrong: Any) -> None:
    for name in ("steps", "evaluate_every"):
        with pytest.raises(It2nbError, match=f"{name}={wrong!r} has to be a whole number"):
            Digits("ci", **{name: wrong})


def test_a_session_whose_run_is_over_takes_no_second_one() -> None:
    flow = Digits("ci", steps=2)
    session = it2nb.TrainingSession(directory=None)
    flow.run(session)
    with pytest.raises(SessionEnded, match=r"is over \(finished\): each run takes a session"):
        flow.run(session)


def test_what_is_missing_is_said_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("IT2NB_DOWNLOAD", raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    needs = Requirements(90, memory_gib=1e6, gpu_gib=24, hub=("some/model",), data=("a/set",))
    assert str(needs).startswith("about 90 min on a CUDA device with 24 GiB; 1e+06 GiB")
    with pytest.raises(WorkflowUnavailable) as caught:
        needs.check("workflow 'x'")
    for part in ("1e+06 GiB of memory", "CUDA device with 24 GiB, and there is none",
                 "'some/model', 'a/set' are not in", "IT2NB_DOWNLOAD=1", "hf download some/model",
                 "scale='laptop'"):  # fmt: skip
        assert part in str(caught.value)
    assert "hf download a/set" not in str(caught.value)
    with pytest.raises(MissingDependency, match=r"needs no_such_thing: pip install 'it2nb\["):
        Requirements(1, packages=("no_such_thing",)).check("workflow 'x'")
    with pytest.raises(MissingDependency, match=r"no_such_thing.*Beside that it needs a CUDA"):
        Requirements(1, gpu_gib=24, packages=("no_such_thing",)).check("workflow 'x'")


def test_a_hub_out_of_reach_is_told_before_anything_is_asked_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("IT2NB_DOWNLOAD", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    needs = Requirements(90, hub=("some/model",))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}")
        needs.check("workflow 'x'")
    with pytest.raises(WorkflowUnavailable, match=r"out of reach \(127\.0\.0\.1: .*HF_ENDPOINT"):
        needs.check("workflow 'x'")


def test_a_model_in_the_cache_needs_no_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    (tmp_path / "models--some--model" / "snapshots").mkdir(parents=True)
    assert absent_from_cache("some/model") is None
    assert "hf download other/model" in (absent_from_cache("other/model") or "")
    monkeypatch.setenv("IT2NB_DOWNLOAD", "1")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert absent_from_cache("other/model") is None
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert absent_from_cache("other/model") is not None
