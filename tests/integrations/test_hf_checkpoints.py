"""Saving and going back under a Trainer that saves, rotates and loads checkpoints of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from .tiny import Parity, arguments, new_session, series, trainer_of


def weights(trainer: Any) -> list[torch.Tensor]:
    return [each.detach().clone() for each in trainer.model.parameters()]


def best_of(**more: Any) -> Any:
    return arguments(
        eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2,
        save_total_limit=1, load_best_model_at_end=True, metric_for_best_model="eval_loss",
        max_steps=6, **more,
    )  # fmt: skip


def test_a_checkpoint_comes_back_in_place_and_the_knobs_live_on() -> None:
    session = new_session()
    saved: list[Any] = []
    at_3: list[torch.Tensor] = []

    def save() -> None:
        saved.append(session.save_checkpoint("three"))
        at_3.extend(weights(trainer))

    def load() -> Any:
        path = saved[0].result(0).data["path"]
        return [session.load_checkpoint(path), session.set("lr", 5e-4, mode="hold")]

    trainer = trainer_of(session, {3: save, 5: load})
    seen: list[bool] = []
    trainer.at.calls[6] = lambda: seen.append(True)
    model = trainer.model
    trainer.train()
    loaded, changed = (each.result(0) for each in trainer.at.given[5])
    assert (loaded.status, loaded.data["step"], changed.status) == ("applied", 3, "applied")
    assert trainer.model is model
    # The Trainer counted on: 8 updates in all, the last three in the new branch.
    assert trainer.state.global_step == 8
    assert list(series(session, "loss", 1)) == [4, 5, 6]
    assert list(series(session, "lr", 1).values()) == [5e-4] * 3
    assert any("the Trainer counts on" in each for each in loaded.data["notes"])


def test_weights_and_optimizer_are_those_of_the_checkpoint_to_the_bit() -> None:
    session = new_session()
    kept: list[list[torch.Tensor]] = []
    again: list[list[torch.Tensor]] = []

    def save() -> None:
        kept.append(weights(trainer))
        session.save_checkpoint("three")

    trainer = trainer_of(session, {3: save, 5: lambda: session.goto(3)})
    step = session.step

    def look(*args: Any, **kwargs: Any) -> Any:
        control = step(*args, **kwargs)
        if session.branch_id == 1 and not again:
            again.append(weights(trainer))
        return control

    session.step = look  # type: ignore[method-assign]
    trainer.train()
    assert len(again) == 1
    assert all(map(torch.equal, kept[0], again[0]))


# Of transformers 4.57: checkpoints that are made within one second are told apart by number.
@pytest.mark.filterwarnings("ignore:mtime may not be reliable:UserWarning")
def test_rotation_and_the_best_model_are_as_without_a_checkpoint_of_ours() -> None:
    def run(save: bool) -> Any:
        session = new_session()
        calls = {3: lambda: session.save_checkpoint("mine")} if save else {}
        args = best_of(output_dir=f"out-{save}")
        trainer = trainer_of(session, calls, args=args, eval_dataset=Parity(8))
        trainer.train()
        return trainer, session

    bare, _ = run(False)
    ours, session = run(True)
    path = Path(ours.at.given[3].result(0).data["path"])
    assert ours.state.best_metric == bare.state.best_metric
    assert all(map(torch.equal, weights(bare), weights(ours)))
    names = [sorted(each.name for each in Path(f"out-{save}").iterdir()) for save in (False, True)]
    assert names[0] == names[1]
    assert path.is_file()
    assert path.resolve().parent != Path("out-True").resolve()
    notes = [e.payload["text"] for e in session.journal.since(0) if e.type == "note"]
    assert sum("Trainer saved out-True/checkpoint-" in each for each in notes) == 3
    assert any("Trainer loaded its best model" in each for each in notes)
    # It still loads, into another training.
    later = new_session()
    trainer = trainer_of(later, {1: lambda: later.load_checkpoint(path)}, args=arguments())
    trainer.train()
    assert trainer.at.given[1].result(0).data["step"] == 3


@pytest.mark.parametrize("steps", [8])
def test_a_resumed_training_goes_on_with_the_trainers_own_count(steps: int) -> None:
    straight = trainer_of(new_session())
    straight.train()
    first = new_session()
    args = arguments(save_strategy="steps", save_steps=4)
    trainer_of(first, {5: first.stop}, args=args).train()
    session = new_session()
    trainer = trainer_of(session, args=args)
    out = trainer.train(resume_from_checkpoint=True)
    assert out.global_step == session.step_count == session.total_steps == steps
    assert list(series(session, "loss")) == [5, 6, 7, 8]
    assert list(series(session, "lr").values()) == pytest.approx([0.005, 0.00375, 0.0025, 0.00125])
    assert all(map(torch.equal, weights(straight), weights(trainer)))


def test_undo_takes_a_change_back_with_what_was_trained_since() -> None:
    session = new_session()
    kept: list[list[torch.Tensor]] = []

    def change() -> None:
        kept.append(weights(trainer))
        session.batch({"lr": 1e-4, "max_grad_norm": 0.5})

    trainer = trainer_of(session, {3: change, 6: session.undo})
    trainer.train()
    result = trainer.at.given[6].result(0)
    assert (result.status, result.data["step"]) == ("applied", 3)
    assert trainer.args.max_grad_norm == 1.0
    assert list(series(session, "lr", 1).values()) == pytest.approx([0.00625, 0.005])
    assert session.branch_id == 1


def test_what_the_trainer_logs_of_an_update_that_was_left_is_not_the_earlier_ones() -> None:
    # C44: the log of update 5 comes when the run stands at step 3 again.
    session = new_session()
    calls: dict[int, Any] = {3: session.save_checkpoint, 5: session.load_checkpoint}
    args = arguments(eval_strategy="steps", eval_steps=5)
    trainer_of(session, calls, args=args, eval_dataset=Parity(8)).train()
    assert list(series(session, "grad_norm", 0)) == [1, 2, 3, 4]
    assert list(series(session, "grad_norm", 1)) == [4, 5, 6]
    # With the weights of step 3; transformers 5 evaluates at the end too.
    assert list(series(session, "eval_loss", 1)) in ([3], [3, 6])


def test_a_folder_of_the_trainers_own_is_not_taken_for_one_of_ours() -> None:
    session = new_session()
    args = arguments(save_strategy="steps", save_steps=2, max_steps=4)
    trainer = trainer_of(
        session, {3: lambda: session.load_checkpoint("out/checkpoint-2")}, args=args
    )
    trainer.train()
    result = trainer.at.given[3].result(0)
    assert (result.status, session.branch_id) == ("rejected", 0)
    assert "no whole checkpoint" in result.reason
