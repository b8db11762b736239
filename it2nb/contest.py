"""Arena: controllers against each other, on one workflow, under one budget of steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from it2nb.contest_entries import check_seeds, check_workflow, entries_of
from it2nb.controllers.optuna import OptunaController
from it2nb.controllers.pbt import Population
from it2nb.core.errors import It2nbError
from it2nb.core.rounds import Memory, RoundContext, is_number
from it2nb.session import TrainingSession

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

#: What plays by name.
NAMES = ("none", "rule", "optuna", "pbt", "scripted")
#: The rule that plays as ``rule``, unless a rule's text is given.
RULE = "no improvement of {metric} by 1 % in {steps} steps: lr x 0.5, at most 4 times"

COLUMNS = (
    "controller", "seed", "score", "baseline", "rounds", "improved", "steps", "evaluations",
    "requests", "wall_s", "tokens", "cost", "run_id", "error",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Budget:
    """What each controller may use up for each seed.

    Attributes
    ----------
    rounds : int
        Trainings of the workflow's length: the steps are ``rounds * workflow.steps``. Rounds
        that ended early leave theirs unused.
    evaluations : int, optional
        Evaluations in all; a controller that has used them up begins no further round. Those of
        all rounds by default.
    """

    rounds: int = 4
    evaluations: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("rounds", self.rounds), ("evaluations", self.evaluations)):
            if value is None and name == "evaluations":
                continue
            if type(value) is not int or value < 1:
                raise It2nbError(f"{name}={value!r:.60} of a budget: a whole number from 1")


@dataclass(slots=True)
class Arena:
    """The results of an arena.

    Attributes
    ----------
    rows : list of dict
        One a controller and seed, with `COLUMNS`.
    metric, direction : str
    """

    rows: list[dict[str, Any]]
    metric: str
    direction: str
    reference: str = "none"
    about: dict[str, Any] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """All results, one row a controller and seed."""
        import pandas as pd

        return pd.DataFrame(self.rows, columns=list(COLUMNS))

    def summary(self, seed: int = 0) -> pd.DataFrame:
        """One row a controller: mean with its 95 % bootstrap interval, probability of improvement.

        The probability of improvement over the reference is the share of pairs of seeds in which
        the controller scores better, ties by half (Agarwal et al., 2021, arXiv:2108.13264), with
        a bootstrap interval over the seeds.
        """
        import pandas as pd

        frame = self.frame()
        rng = np.random.default_rng(seed)
        reference = frame[frame.controller == self.reference]["score"].dropna().to_numpy(float)
        found = []
        for name, rows in frame.groupby("controller", sort=False):
            scores = rows["score"].dropna().to_numpy(float)
            low, high = _interval(lambda a: a.mean(), [scores], rng)
            sign = -1.0 if self.direction == "min" else 1.0
            p = p_low = p_high = float("nan")
            if len(scores) and len(reference) and name != self.reference:
                p = probability_of_improvement(sign * scores, sign * reference)
                p_low, p_high = _interval(
                    probability_of_improvement, [sign * scores, sign * reference], rng
                )
            found.append(
                {
                    "controller": name, "seeds": len(rows),
                    "score": scores.mean() if len(scores) else float("nan"),
                    "low": low, "high": high, "p_better": p, "p_low": p_low, "p_high": p_high,
                    "improved": rows["improved"].mean(), "wall_s": rows["wall_s"].mean(),
                    "tokens": rows["tokens"].sum(), "cost": rows["cost"].sum(),
                    "failed": int(rows["error"].notna().sum()),
                }
            )  # fmt: skip
        return pd.DataFrame(found)

    def plot(self) -> go.Figure:
        """Scores with their bootstrap intervals, and each probability of improvement."""
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots

        summary = self.summary()
        titles = (f"{self.metric} ({self.direction})", f"better than {self.reference!r}")
        figure = make_subplots(rows=1, cols=2, shared_yaxes=True, subplot_titles=titles)
        frame = self.frame()
        for column, (middle, low, high) in enumerate(
            (("score", "low", "high"), ("p_better", "p_low", "p_high")), 1
        ):
            figure.add_trace(
                go.Scatter(
                    x=summary[middle], y=summary["controller"], mode="markers", showlegend=False,
                    marker={"size": 10},
                    error_x={
                        "type": "data", "symmetric": False,
                        "array": summary[high] - summary[middle],
                        "arrayminus": summary[middle] - summary[low],
                    },
                ),
                row=1, col=column,
            )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=frame["score"], y=frame["controller"], mode="markers", showlegend=False,
                marker={"size": 5, "opacity": 0.5}, name="seeds",
            ),
            row=1, col=1,
        )  # fmt: skip
        figure.add_vline(x=0.5, row=1, col=2, line_dash="dot")
        figure.update_xaxes(range=[0, 1], row=1, col=2)
        return figure


def probability_of_improvement(one: Any, other: Any) -> float:
    """Share of pairs in which a value of `one` is larger than one of `other`; ties count half."""
    a, b = np.asarray(one, float)[:, None], np.asarray(other, float)[None, :]
    return float((a > b).mean() + 0.5 * (a == b).mean())


def _interval(
    statistic: Callable[..., float], samples: Sequence[Any], rng: Any, draws: int = 2000
) -> tuple[float, float]:
    """Return the ends of the 95 % percentile bootstrap interval over the seeds."""
    if any(len(each) == 0 for each in samples):
        return float("nan"), float("nan")
    found = [
        statistic(*(each[rng.integers(0, len(each), len(each))] for each in samples))
        for _ in range(draws)
    ]
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def arena(
    workflow: Any,
    controllers: Sequence[str] | Mapping[str, Any] = NAMES,
    seeds: Sequence[int] | int = range(5),
    budget: Budget | int = 4,
    *,
    directory: str | Path | None = None,
    knobs: Sequence[str] = ("lr",),
) -> Arena:
    """Let controllers train one workflow under one budget.

    Parameters
    ----------
    workflow : Workflow
        With injected faults if you like; see `it2nb.workflows.faults`.
    controllers : sequence of names, or mapping
        ``"none"``, ``"rule"``, ``"optuna"``, ``"pbt"``, ``"scripted"``; in a mapping also
        ``{"mine": factory}``, where ``factory(seed)`` makes a controller (an `it2nb.LLMAgent`,
        say) or the text of a rule.
    seeds : sequence of int, or int
        Or how many, from 0. Each controller meets the same weights and batches.
    budget : Budget or int
        Or its rounds.
    directory : path, optional
        Of the journals; in memory by default. PBT keeps its checkpoints beside them, or in a
        folder that is removed.
    knobs : sequence of str
        What Optuna and PBT search.

    Returns
    -------
    Arena
        ``frame()``, ``summary()``, ``plot()``. A controller's score is the goal's value at the
        end of its best round, or of its best member.

    Raises
    ------
    It2nbError
        If no controller has a name that is given, the goal has no direction, or seeds or
        budget are none.
    """
    budget = budget if isinstance(budget, Budget) else Budget(budget)
    seeds = _seeds(seeds)
    check_seeds(seeds)
    check_workflow(workflow)
    goal = workflow.goal
    if goal.direction is None:
        raise It2nbError(goal.undecided())
    workflow.check()
    entries = entries_of(controllers, NAMES)
    rows = []
    for seed in seeds:
        for name, what in entries.items():
            play = _Play(workflow, name, what, seed, budget, directory, tuple(knobs))
            rows.append(play.row())
    reference = "none" if "none" in entries else next(iter(entries))
    about = {"workflow": repr(workflow), "budget": budget, "seeds": list(seeds)}
    return Arena(rows, goal.metric, goal.direction, reference, about)


def _seeds(seeds: Any) -> list[int]:
    """Read seeds, or how many there are."""
    if type(seeds) is int and seeds >= 1:
        return list(range(seeds))
    found = list(seeds) if isinstance(seeds, Iterable) and not isinstance(seeds, str) else []
    if not found or not all(type(each) is int for each in found):
        raise It2nbError(f"seeds={seeds!r:.60} has to be whole numbers, or how many from 1")
    return found


class _Play:
    """One controller with one seed."""

    def __init__(
        self,
        workflow: Any,
        name: str,
        what: Any,
        seed: int,
        budget: Budget,
        directory: str | Path | None,
        knobs: tuple[str, ...],
    ) -> None:
        self.workflow = workflow
        self.name = name
        self.what = what
        self.seed = seed
        self.budget = budget
        self.directory = None if directory is None else Path(directory).absolute()
        self.knobs = knobs
        self._evaluations = 0

    def row(self) -> dict[str, Any]:
        """Play; what a controller raises is part of its row."""
        from it2nb.core.faults import guard

        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row.update(controller=self.name, seed=self.seed, tokens=0, cost=0.0)
        began = time.perf_counter()
        # A factory that calls sys.exit() ends its own row, and not the others.
        with guard(f"arena: {self.name}", passes=(KeyboardInterrupt,)) as fault:
            row.update(self._pbt() if self.what == "pbt" else self._rounds())
        row["error"] = fault.error or None
        row["wall_s"] = round(time.perf_counter() - began, 3)
        return row

    def _session(self, part: str = "") -> TrainingSession:
        return TrainingSession(
            self.workflow.goal, directory=self.directory, title=f"{self.name}{part}",
            seed=self.seed, snapshots=False, resources_every_s=3600.0, distributed=False,
        )  # fmt: skip

    # --- rounds ----------------------------------------------------------------------------

    def _rounds(self) -> dict[str, Any]:
        session = self._session()
        controller = self._controller()
        # Without anything that plans, all rounds would be the same one.
        plans = controller is not None and not isinstance(controller, str)
        rounds = self.budget.rounds if plans else 1
        if controller is not None:
            session.attach(controller, blocking=True)
        records = session.run_rounds(self._train, rounds, memory=Memory(), seed=self.seed)
        if not session.is_ended:
            session.finish()
        values = [each["value"] for each in records if is_number(each["value"])]
        spent = [session.policy.spent(source) for source in ("agent", "plan")]
        return {
            "score": self.workflow.goal.best(values),
            "baseline": records[0]["value"] if records else None,
            "rounds": len(records),
            "improved": sum(bool(each["improved"]) for each in records),
            "steps": sum(each["steps"] for each in records),
            "evaluations": self._evaluations,
            "requests": len(session.journal.requests()),
            "tokens": sum(each.tokens for each in spent),
            "cost": sum(each.cost for each in spent),
            "run_id": session.run_id,
        }

    def _train(self, session: TrainingSession, context: RoundContext) -> None:
        limit = self.budget.evaluations
        if limit is not None and self._evaluations >= limit:
            return
        before = session.metrics.series(self.workflow.goal.metric, session.branch_id, session.round)
        self.workflow.train(session, context)
        after = session.metrics.series(self.workflow.goal.metric, session.branch_id, session.round)
        self._evaluations += len(after[0]) - len(before[0])

    def _controller(self) -> Any:
        what = self.what
        if callable(what):
            return what(self.seed)
        if what == "none":
            return None
        if what == "rule":
            steps = max(2, self.workflow.steps // 5)
            return RULE.format(metric=self.workflow.goal.metric, steps=steps)
        if what == "optuna":
            return OptunaController(self.knobs, seed=self.seed)
        if what == "scripted":
            from it2nb.controllers.scripted import ScriptedAgent

            return ScriptedAgent()
        return what

    # --- population ------------------------------------------------------------------------

    def _pbt(self) -> dict[str, Any]:
        import tempfile

        if not hasattr(self.workflow, "prepare"):
            raise It2nbError(f"PBT needs a LoopWorkflow; {self.workflow!r} has a loop of its own")
        size = max(2, self.budget.rounds)
        with tempfile.TemporaryDirectory(prefix="it2nb-arena-") as folder:
            directory = self.directory or folder
            sessions = [
                TrainingSession(
                    self.workflow.goal, directory=directory, title=f"pbt {number}",
                    seed=self.seed, snapshots=False, resources_every_s=3600.0, distributed=False,
                )
                for number in range(size)
            ]  # fmt: skip
            population = Population(
                self.workflow, sessions, knobs=self.knobs, seed=self.seed,
                ready_every=max(1, self.workflow.steps // 5),
            )  # fmt: skip
            best = population.run()
            first = population.members[0]
            return {
                "score": best.score,
                "baseline": None if first.exploited else first.score,
                "rounds": size,
                "improved": sum(len(each.exploited) for each in population.members),
                "steps": size * self.workflow.steps,
                "evaluations": population.evaluations,
                "requests": sum(len(each.journal.requests()) for each in sessions),
                "run_id": best.session.run_id,
            }
