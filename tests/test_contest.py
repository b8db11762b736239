"""The arena, Optuna and population-based training on a training of a few milliseconds."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch

import it2nb
from it2nb.contest import Arena, Budget, arena, probability_of_improvement
from it2nb.controllers.base import ControllerError
from it2nb.controllers.optuna import OptunaController
from it2nb.controllers.pbt import Population
from it2nb.core.errors import It2nbError, It2nbWarning
from it2nb.core.goals import Goal
from it2nb.workflows.base import LoopWorkflow
from it2nb.workflows.requirements import Requirements
from it2nb.workflows.training import Training
from scripts.arena_model import PRICES, says
from scripts.arena_report import table
from tests.controllers.endpoint import Endpoint


class Tiny(LoopWorkflow):
    """A linear regression whose lr is far too small at first."""

    name = "tiny"
    title = "tiny"
    goal = Goal("val_loss", "min")
    sizes = {"ci": (20, 5), "laptop": (20, 5), "paper": (20, 5)}  # noqa: RUF012

    def requirements(self) -> Requirements:
        return Requirements(0.01)

    def fresh(self, seed: int) -> Training:
        generator = torch.Generator().manual_seed(seed)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

        def loss_of(x: torch.Tensor) -> torch.Tensor:
            return (model(x) - x.sum(1, keepdim=True)).square().mean()

        def update(step: int) -> dict[str, Any]:
            loss = loss_of(torch.randn(8, 3, generator=generator))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return {"loss": loss.item()}

        def evaluate() -> dict[str, float]:
            with torch.no_grad():
                x = torch.randn(32, 3, generator=torch.Generator().manual_seed(9))
                return {"val_loss": loss_of(x).item()}

        return Training(model, {"opt": optimizer}, update, evaluate, generator=generator)


@pytest.fixture(scope="module")
def result() -> Arena:
    rule = "every 5 steps: lr x 2"
    entries = {"none": "none", "doubling": rule, "optuna": "optuna", "pbt": "pbt"}
    return arena(Tiny("ci"), entries, seeds=range(2), budget=4)


def test_each_controller_plays_each_seed_within_the_budget(result):
    frame = result.frame()
    assert len(frame) == 8
    assert frame["error"].isna().all(), frame["error"].dropna().tolist()
    assert (frame["steps"] <= 4 * 20).all()
    assert frame["score"].notna().all() and (frame["wall_s"] > 0).all()
    same = frame[frame.controller != "pbt"].groupby("seed")["baseline"].nunique()
    # the rule acts in its first round already
    assert (frame[frame.controller.isin(["none", "optuna"])].groupby("seed")["baseline"].nunique()
            == 1).all(), same  # fmt: skip


def test_a_search_beats_a_training_that_nobody_steers(result):
    summary = result.summary().set_index("controller")
    for name in ("optuna", "pbt", "doubling"):
        assert summary.loc[name, "score"] < summary.loc["none", "score"], name
        assert summary.loc[name, "p_better"] > 0.5
    assert summary.loc["optuna", "low"] <= summary.loc["optuna", "score"]
    assert summary.loc["optuna", "score"] <= summary.loc["optuna", "high"]


def test_the_plot_has_a_mark_with_its_interval_for_each_controller(result):
    figure = result.plot()
    assert list(figure.data[0].y) == ["none", "doubling", "optuna", "pbt"]
    assert figure.data[0].error_x.array is not None


def test_the_same_seed_gives_the_same_scores():
    one, other = (arena(Tiny("ci"), ("optuna", "pbt"), seeds=[3], budget=3) for _ in range(2))
    assert [r["score"] for r in one.rows] == [r["score"] for r in other.rows]


def test_what_a_controller_raises_is_part_of_its_row():
    def broken(seed: int) -> Any:
        raise RuntimeError("no model today")

    def leaving(seed: int) -> Any:
        raise SystemExit(3)

    entries = {"none": "none", "broken": broken, "leaving": leaving}
    rows = arena(Tiny("ci"), entries, seeds=[0], budget=1).rows
    assert rows[0]["error"] is None
    assert rows[1]["error"] == "RuntimeError: no model today"
    assert rows[2]["error"] == "SystemExit: 3"


def test_the_budget_of_evaluations_ends_the_rounds():
    found = arena(Tiny("ci"), ("optuna",), seeds=[0], budget=Budget(rounds=4, evaluations=5))
    assert found.rows[0]["evaluations"] <= 5 + 4


def test_wrong_names_are_refused_with_a_near_one():
    with pytest.raises(It2nbError, match="did you mean 'optuna'"):
        arena(Tiny("ci"), ("optun",))


def test_the_probability_of_improvement_counts_ties_by_half():
    assert probability_of_improvement([1.0, 2.0], [1.0, 0.0]) == pytest.approx(3.5 / 4)
    assert probability_of_improvement(np.ones(3), np.ones(3)) == 0.5


# --- Optuna -------------------------------------------------------------------------------------


def rounds(controller: OptunaController, count: int = 4) -> it2nb.TrainingSession:
    workflow = Tiny("ci")
    session = it2nb.TrainingSession(workflow.goal, directory=None, seed=1)
    session.attach(controller, blocking=True)
    session.run_rounds(workflow.train, count)
    return session


def test_optuna_learns_from_the_baseline_and_from_each_round():
    controller = OptunaController(["lr"], seed=2, prune=False)
    session = rounds(controller)
    trials = controller.study.trials
    assert len(trials) == 4
    assert trials[0].params == {"lr": 1e-4}
    frame = session.journal.requests()
    assert list(frame["source"]) == ["plan"] * 3
    assert [t.params["lr"] for t in trials[1:]] == list(frame["requested"])
    assert [t.value for t in trials] == [r["value"] for r in session.memory]


def test_optuna_ends_rounds_that_lag_behind():
    import optuna

    class Always(optuna.pruners.BasePruner):
        def prune(self, study: Any, trial: Any) -> bool:
            return True

    study = optuna.create_study(direction="minimize", pruner=Always())
    session = rounds(OptunaController(["lr"], study=study), 2)
    ended = session.journal.requests().query("type == 'end_round'")
    assert len(ended) == 1
    assert ended["reason"].iloc[0] is not None
    assert study.trials[-1].state == optuna.trial.TrialState.PRUNED
    assert list(session.memory)[1]["steps"] < 20


def test_optuna_says_which_knob_it_can_not_search():
    views = it2nb.TrainingSession(directory=None)
    views.register_knob("name", lambda: "a", lambda v: None, dtype="str")
    knobs = views.knobs.views()
    with pytest.raises(ControllerError, match="name has no range"):
        OptunaController(["name"]).space(knobs)
    with pytest.raises(ControllerError, match="no knob is named 'nam'; did you mean 'name'"):
        OptunaController(["nam"]).space(knobs)


def test_optuna_by_itself_searches_rates_alone():
    session = it2nb.TrainingSession(directory=None)
    layer = torch.nn.Linear(2, 2)
    groups: list[dict[str, Any]] = [
        {"params": [layer.weight]},
        {"params": [layer.bias], "weight_decay": 0.1},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)
    session.bind(layer, optimizers=[optimizer])
    found = OptunaController().space(session.knobs.views())
    assert set(found) == {"lr", "weight_decay", "momentum"}


@pytest.mark.parametrize("controller", [OptunaController(["lrr"]), it2nb.ScriptedAgent("lrr")])
def test_a_knob_that_is_none_is_told_of_in_the_baseline(controller: Any):
    workflow = Tiny("ci")
    session = it2nb.TrainingSession(workflow.goal, directory=None, seed=1)
    session.attach(controller, blocking=True)
    with pytest.warns(It2nbWarning, match="'lrr', and no knob has that name"):
        session.run_rounds(workflow.train, 1)
    (said,) = [each for each in session.warnings if "'lrr'" in each]
    assert "did you mean 'lr'" in said


def test_a_number_of_seeds_is_taken_and_nonsense_is_not():
    result = it2nb.arena(Tiny("ci"), ["none"], seeds=2, budget=1)
    assert list(result.frame()["seed"]) == [0, 1]
    wrong: list[dict[str, Any]] = [{"seeds": 0}, {"seeds": []}, {"seeds": "ab"}, {"budget": 0},
                                   {"budget": 1.5}]  # fmt: skip
    for options in wrong:
        given: dict[str, Any] = {"seeds": 1, "budget": 1, **options}
        with pytest.raises(It2nbError, match=r"seeds=|rounds="):
            arena(Tiny("ci"), ["none"], **given)


# --- population-based training ------------------------------------------------------------------


def test_a_population_exploits_and_explores_by_requests_in_the_journals(tmp_path):
    sessions = [
        it2nb.TrainingSession("val_loss", directory=tmp_path, title=f"m{n}", snapshots=False)
        for n in range(4)
    ]
    population = Population(Tiny("ci"), sessions, seed=5, ready_every=5, spread=10.0)
    best = population.run()
    scores = [each.score for each in population.members if each.score is not None]
    assert len(scores) == 4 and best.score == min(scores)
    exploited = [m for m in population.members if m.exploited]
    assert exploited
    frame = exploited[0].session.journal.requests()
    assert set(frame["actor"]) == {"pbt"} and set(frame["source"]) == {"plan"}
    assert {"load_checkpoint", "set_knob"} <= set(frame["type"])
    assert (frame["status"] == "applied").all()
    assert all(session.status == "finished" for session in sessions)
    for session in sessions:
        assert session.path is not None
        it2nb.open(session.path).verify()


def test_a_population_leaves_the_global_streams_as_they_were(tmp_path):
    before = torch.get_rng_state()
    sessions = [it2nb.TrainingSession("val_loss", directory=tmp_path) for _ in range(2)]
    Population(Tiny("ci"), sessions, ready_every=10).run()
    assert torch.equal(torch.get_rng_state(), before)


def test_a_population_of_one_is_refused(tmp_path):
    with pytest.raises(It2nbError, match="at least 2 members, not 1"):
        Population(Tiny("ci"), [it2nb.TrainingSession(directory=None)])


@pytest.mark.parametrize(
    "given, said",
    [
        ({"controllers": ()}, "controllers are none"),
        ({"controllers": "none"}, "has to be a list of names"),
        ({"controllers": ("none", "none")}, "would play twice"),
        ({"controllers": (5,)}, "is no name"),
        ({"controllers": {"x": "loss > : pause"}}, "loss > : pause"),
        ({"controllers": {"x": 5}}, "is no controller"),
        ({"workflow": None}, "is no workflow"),
        ({"workflow": Tiny}, "make one, Tiny()"),
        ({"seeds": [1, 1]}, "twice"),
        ({"seeds": [-1]}, "whole numbers"),
        ({"seeds": ["a"]}, "whole numbers"),
        ({"seeds": ()}, "whole numbers"),
        *(({"budget": each}, "of a budget") for each in (0, -1, True, 1.5, "2", None)),
    ],
)
def test_what_makes_no_sense_is_said_before_anything_trains(given: Any, said: str) -> None:
    class Never(Tiny):
        def train(self, *args: Any, **kwargs: Any) -> None:
            raise AssertionError("it trained")

    options: Any = {"workflow": Never("ci"), "controllers": ("none",), "seeds": [0]} | given
    with pytest.raises(It2nbError, match=re.escape(said)):
        arena(options.pop("workflow"), **options)


def test_what_is_searched_may_be_named_by_an_alias():
    one, other = (
        arena(Tiny("ci"), ("optuna", "pbt"), seeds=[3], budget=3, knobs=[name]).frame()
        for name in ("lr", "learning_rate")
    )
    assert one["error"].isna().all() and other["error"].isna().all()
    assert one["score"].tolist() == other["score"].tolist()


def test_the_reports_stand_in_plays_as_a_model_does():
    def agent(seed: int) -> it2nb.LLMAgent:
        return it2nb.LLMAgent("scripted", base_url=endpoint.url, prices=PRICES, every=5, retries=0)

    with Endpoint(says) as endpoint:
        found = arena(Tiny("ci"), {"none": "none", "llm": agent}, seeds=[0], budget=3)
    _, row = found.rows
    assert row["error"] is None and row["rounds"] == 3
    assert row["requests"] >= 4, "two plans, and a half of lr late in two rounds"
    assert row["tokens"] > 1000
    assert 3.0 < row["cost"] / row["tokens"] * 1e6 < 15.0
    assert "| llm |" in table(found)
