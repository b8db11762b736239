"""Hugging Face's Trainer, steered by callbacks: the same training, and every request honoured."""

from __future__ import annotations

import inspect
import math
from typing import Any

import pytest
import torch
from transformers import EarlyStoppingCallback, Seq2SeqTrainer, Trainer, TrainerCallback
from transformers.trainer_utils import TrainOutput

from it2nb.core.errors import SessionEnded
from it2nb.interactive import make_interactive
from it2nb.pytorch.datasets import make_interactive_dataset
from it2nb.pytorch.sources import SourceSampler

from .tiny import At, Parity, arguments, new_session, series, tiny_bert, trainer_of


def weights(trainer: Any) -> list[torch.Tensor]:
    return [each.detach().clone() for each in trainer.model.parameters()]


class Lrs(TrainerCallback):
    """What stands in the optimizer when its step is over and the scheduler's is not."""

    def __init__(self) -> None:
        self.used: list[float] = []
        self.decays: list[list[float]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        kwargs["optimizer"].optimizer.register_step_pre_hook(self._look)

    def _look(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self.used.append(optimizer.param_groups[0]["lr"])
        self.decays.append([group["weight_decay"] for group in optimizer.param_groups])


# --- the same training ---------------------------------------------------------------------


def test_without_requests_it_trains_as_the_bare_trainer_does_to_the_bit() -> None:
    plain = Trainer(tiny_bert(), arguments(), train_dataset=Parity())
    bare = plain.train()
    steered = trainer_of(new_session())
    ours = steered.train()
    assert isinstance(ours, TrainOutput)
    assert (ours.global_step, ours.training_loss) == (bare.global_step, bare.training_loss)
    assert all(map(torch.equal, weights(steered), weights(plain)))
    assert steered.it2nb_callback.session is None


def test_names_signature_and_docstring_are_the_trainers_own() -> None:
    made: Any = make_interactive(Trainer)
    assert issubclass(made, Trainer)
    assert made is make_interactive(Trainer) is make_interactive(made)
    assert list(inspect.signature(made.__init__).parameters)[:3] == ["self", "model", "args"]
    assert made.__doc__ == Trainer.__doc__
    assert not hasattr(Trainer, "it2nb_callback")


@pytest.mark.parametrize("kind", ["class", "instance", "decorator", "seq2seq"])
def test_classes_instances_decorated_ones_and_subclasses_are_steered(kind: str) -> None:
    session = new_session()
    if kind == "class":
        trainer = trainer_of(session)
    elif kind == "seq2seq":
        from transformers import Seq2SeqTrainingArguments

        args = Seq2SeqTrainingArguments(**{
            key: value for key, value in arguments().to_dict().items()
            if key in ("output_dir", "per_device_train_batch_size", "report_to", "use_cpu")
        }, max_steps=8, save_strategy="no", disable_tqdm=True)  # fmt: skip
        trainer = trainer_of(session, kind=Seq2SeqTrainer, args=args)
    elif kind == "instance":
        plain = Trainer(tiny_bert(), arguments(), train_dataset=Parity())
        trainer = make_interactive(plain, session=session)
        assert trainer is plain
    else:

        @make_interactive
        class Mine(Trainer):
            pass

        made: Any = Mine
        trainer = made(tiny_bert(), arguments(), train_dataset=Parity(), session=session)
    trainer.train()
    assert session.status == "finished"
    assert list(series(session, "loss")) == list(range(1, 9))


# --- what was trained is what is written down -----------------------------------------------


@pytest.mark.parametrize("mode", ["rescale", "hold"])
def test_the_lr_of_the_journal_is_the_one_that_the_optimizer_used(mode: str) -> None:
    session, lrs = new_session(), Lrs()
    calls = {3: lambda: session.set("lr", 2e-3, mode=mode)}
    if mode == "hold":
        calls[6] = lambda: session.set("lr", mode="release")
    trainer = trainer_of(session, calls, callbacks=[lrs])
    trainer.train()
    written = series(session, "lr")
    assert list(written.values()) == lrs.used
    assert lrs.used[:3] == pytest.approx([0.01, 0.00875, 0.0075])
    if mode == "rescale":
        assert lrs.used[3:] == pytest.approx([0.002 * left / 5 for left in (5, 4, 3, 2, 1)])
    else:
        assert lrs.used[3:6] == [0.002] * 3
        assert lrs.used[6:] == pytest.approx([0.0025, 0.00125])
    assert all(each.result(0).ok for each in trainer.at.given.values())


def test_groups_without_weight_decay_stay_without_it() -> None:
    session, lrs = new_session(), Lrs()
    trainer = trainer_of(session, {2: lambda: session.set("weight_decay", 0.1)}, callbacks=[lrs])
    trainer.train()
    assert lrs.decays == [[0.0, 0.0]] * 2 + [[0.1, 0.0]] * 6


def test_betas_eps_and_clipping_hold_from_the_next_update() -> None:
    session = new_session()
    norms: list[float] = []

    class Norms(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            grads = [p.grad.norm() for p in kwargs["model"].parameters() if p.grad is not None]
            norms.append(float(torch.stack(grads).norm()))

    def ask() -> Any:
        return [
            session.set("betas[0]", 0.5), session.set("eps", 1e-6),
            session.set("max_grad_norm", 0.01),
        ]  # fmt: skip

    trainer = trainer_of(session, {2: ask}, callbacks=[Norms()])
    trainer.train()
    assert [each.result(0).status for each in trainer.at.given[2]] == ["applied"] * 3
    group = trainer.optimizer.param_groups[0]
    assert (group["betas"][0], group["eps"]) == (0.5, 1e-6)
    assert min(norms[:2]) > 0.02
    assert norms[2:] == pytest.approx([0.01] * 6, rel=1e-3)


def test_steps_are_updates_also_when_gradients_are_accumulated() -> None:
    session = new_session()
    trainer = trainer_of(session, args=arguments(gradient_accumulation_steps=3))
    out = trainer.train()
    assert out.global_step == session.step_count == session.total_steps == 3
    losses = series(session, "loss")
    logged = [each["loss"] for each in trainer.state.log_history if "loss" in each]
    assert list(losses.values()) == pytest.approx(logged, rel=1e-3)


def test_a_loss_of_nan_is_seen_although_the_trainer_logs_0() -> None:
    session = new_session(snapshots={"every": 1, "max_share": 1.0})
    goto: list[Any] = []

    class Breaks(Trainer):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss: Any = super().compute_loss(*args, **kwargs)
            return loss * float("nan") if session.step_count == 2 and not goto else loss

    trainer = trainer_of(
        session, {4: lambda: goto.append(session.do("goto", good=True))}, kind=Breaks
    )
    trainer.train()
    losses = series(session, "loss", 0)
    assert math.isnan(losses[3])
    assert all(math.isfinite(losses[step]) for step in (1, 2))
    assert any("non-finite loss at step 3" in each for each in session.warnings)
    tripped = [e for e in session.journal.since(0) if e.type == "guard_tripped"]
    assert [event.step for event in tripped] == [3]
    (logged,) = [each for each in trainer.state.log_history if each.get("step") == 3]
    assert logged["loss"] == 0.0
    assert goto[0].result(0).data["step"] == 2
    assert all(bool(each.isfinite().all()) for each in trainer.model.parameters())
    assert all(map(math.isfinite, series(session, "loss", 1).values()))


# --- evaluation -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sets, names",
    [
        (None, None),
        (Parity(8), {"eval_loss"}),
        ({"a": Parity(8), "b": Parity(4)}, {"eval_a_loss", "eval_b_loss"}),
    ],
    ids=["none", "one", "several"],
)
def test_evaluate_with_any_number_of_sets(sets: Any, names: Any) -> None:
    session = new_session()
    trainer = trainer_of(session, {2: session.evaluate}, eval_dataset=sets)
    trainer.train()
    result = trainer.at.given[2].result(0)
    if names is None:
        assert (result.status, "no eval_dataset" in result.reason) == ("rejected", True)
    else:
        assert result.status == "applied"
        assert set(result.data) == names
        assert all(series(session, name)[2] == result.data[name] for name in names)


def test_an_evaluation_that_was_asked_for_changes_nothing_else() -> None:
    def run(ask: bool) -> Any:
        session = new_session()
        calls = {2: session.evaluate, 3: session.evaluate} if ask else {}
        args = arguments(
            eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2,
            load_best_model_at_end=True, metric_for_best_model="eval_loss",
        )  # fmt: skip
        stopping = EarlyStoppingCallback(early_stopping_patience=2)
        trainer = trainer_of(
            session, calls, args=args, eval_dataset=Parity(8), callbacks=[stopping]
        )
        trainer.train()
        return trainer, session

    bare, _ = run(False)
    asked, session = run(True)
    assert all(map(torch.equal, weights(bare), weights(asked)))
    assert bare.state.best_metric == asked.state.best_metric
    assert bare.state.global_step == asked.state.global_step
    scheduled = [each["step"] for each in bare.state.log_history if "eval_loss" in each]
    assert set(scheduled) | {3} == set(series(session, "eval_loss"))
    logged = [each["step"] for each in asked.state.log_history if "loss" in each]
    assert logged == list(range(1, asked.state.global_step + 1))


# --- stopping and ending --------------------------------------------------------------------


def test_stop_ends_it_at_the_end_of_the_update_and_train_returns() -> None:
    session = new_session()
    trainer = trainer_of(session, {3: session.stop}, args=arguments(gradient_accumulation_steps=2))
    out = trainer.train()
    assert isinstance(out, TrainOutput)
    assert (out.global_step, session.step_count, session.status) == (3, 3, "stopped")


def test_a_stop_during_an_evaluation_lets_no_further_update_through_c04() -> None:
    session = new_session()

    def measure(_: Any) -> dict[str, float]:
        session.submit({"type": "stop"})
        return {"asked": 1.0}

    trainer = trainer_of(
        session, args=arguments(eval_strategy="steps", eval_steps=2), eval_dataset=Parity(8),
        compute_metrics=measure,
    )  # fmt: skip
    trainer.train()
    assert (trainer.state.global_step, session.step_count, session.status) == (2, 2, "stopped")
    assert series(session, "eval_asked") == {2: 1.0}


def test_a_stop_that_was_asked_for_before_means_no_update_at_all() -> None:
    session = new_session()
    session.stop()
    trainer = trainer_of(session)
    before = weights(trainer)
    out = trainer.train()
    assert isinstance(out, TrainOutput)
    assert (out.global_step, session.status, trainer.is_in_train) == (0, "stopped", False)
    assert all(map(torch.equal, before, weights(trainer)))


def test_a_session_that_is_ended_elsewhere_stops_the_trainer() -> None:
    session = new_session()
    trainer = trainer_of(session, {3: lambda: session.finish("stopped")})
    assert trainer.train().global_step == 3


def test_an_evaluation_of_nan_is_told_once_although_the_loss_is_fine() -> None:
    # C44: the log shows it among other numbers, and early stopping never sees an improvement.
    class Breaks(Trainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            found = super().evaluate(*args, **kwargs)
            self.log({"eval_score": math.nan})
            return found

    session = new_session(goal="eval_score")
    args = arguments(eval_strategy="steps", eval_steps=2)
    trainer_of(session, kind=Breaks, args=args, eval_dataset=Parity(4)).train()
    assert session.warnings == ["non-finite eval_score at step 2: nan"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_the_session_ends_as_failed_when_the_training_raises(error: type[BaseException]) -> None:
    session = new_session()

    def fail() -> None:
        raise error("mine")

    trainer = trainer_of(session, {2: fail})
    with pytest.raises(error, match="mine"):
        trainer.train()
    assert session.status == "failed"
    assert session.error == f"{error.__name__}: mine"


def test_it_ends_when_the_trainer_does_not_even_begin() -> None:
    session = new_session()
    trainer = trainer_of(session, train_dataset=None)
    with pytest.raises(ValueError, match="requires a train_dataset"):
        trainer.train()
    assert session.status == "failed"


def test_a_session_has_one_training_and_a_function_makes_one_for_each() -> None:
    session = new_session()
    trainer = trainer_of(session, args=arguments(max_steps=2))
    trainer.train()
    with pytest.raises(SessionEnded, match="a function that makes one for each"):
        trainer.train()
    made: list[Any] = []

    def make() -> Any:
        made.append(new_session())
        return made[-1]

    several = trainer_of(make, args=arguments(max_steps=2))
    several.train()
    several.train()
    assert [each.status for each in made] == ["finished", "finished"]
    assert [list(series(each, "loss")) for each in made] == [[1, 2], [1, 2]]


def test_a_run_that_is_open_around_it_stays_open() -> None:
    session = new_session()
    with session.run():
        trainer_of(None, args=arguments(max_steps=2)).train()
        assert not session.is_ended
        trainer_of(None, args=arguments(max_steps=3)).train()
        knobs = set(session.knobs)
    assert session.status == "finished"
    assert list(series(session, "loss")) == [1, 2, 3, 4, 5]
    assert "lr" in knobs
    assert not any(name.startswith("optimizer") for name in knobs)


def test_a_trainer_that_begins_anew_with_a_smaller_batch_opens_a_branch() -> None:
    session = new_session()

    class Full(Trainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            if len(inputs["labels"]) > 2 and session.step_count == 2:
                raise RuntimeError("CUDA out of memory.")
            return super().compute_loss(model, inputs, *args, **kwargs)

    trainer = trainer_of(session, kind=Full, args=arguments(auto_find_batch_size=True, max_steps=5))
    trainer.train()
    assert session.status == "finished"
    lengths = [len(series(session, "loss", branch.id)) for branch in session.branches]
    assert lengths == [2, 2, 5]  # batches of 4, of 3, of 2
    assert "lr" in session.knobs


# --- data -----------------------------------------------------------------------------------


def test_sources_and_attributes_of_the_data_are_knobs() -> None:
    session = new_session()
    odd = make_interactive_dataset(Parity)(16, interactive_parameter_names=["size"])
    mix = SourceSampler({"a": Parity(16), "b": odd}, {"b": 0.0})
    trainer = trainer_of(
        session, {2: lambda: session.set("weight[b]", 1.0)}, train_dataset=mix.dataset
    )
    trainer.train()
    result = trainer.at.given[2].result(0)
    # Accelerate's loader reads one batch ahead.
    assert "in force from batch 3 of this pass on; 1 batch before it was" in result.reason
    assert mix.counts["b"] > 0
    other = new_session()
    data = make_interactive_dataset(Parity)(16, interactive_parameter_names=["size"])
    trainer_of(other, train_dataset=data, args=arguments(max_steps=2)).train()
    assert "size" in other.knobs
    assert "reload_dataset" in other.actions


def test_what_is_no_trainer_is_refused_with_what_to_do() -> None:
    with pytest.raises(TypeError, match="for a loop of your own use %%it2"):
        make_interactive(lambda: None)
    with pytest.raises(TypeError, match="has to be a TrainingSession"):
        make_interactive(Trainer, session=3)
    assert At({}).given == {}


@pytest.mark.parametrize(("norm", "most"), [(1.0, 1e3), (0.0, 1e3), (1e9, 1e12)])
def test_a_slider_of_the_clipped_norm_has_room_for_its_use(norm: float, most: float) -> None:
    session = new_session()
    seen: list[Any] = []
    calls = {2: lambda: seen.append(session.knobs["max_grad_norm"].view())}
    trainer_of(session, calls, args=arguments(max_grad_norm=norm)).train()
    (view,) = seen
    assert (view.value, view.min, view.max, view.scale) == (norm, 0.0, most, "log")
