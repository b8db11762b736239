"""Optuna over rounds: it asks for a round's knobs, hears the goal, and ends rounds that lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from it2nb.controllers.base import ControllerError, ControllerSource
from it2nb.core.errors import near, require
from it2nb.core.knob_names import KnobViews
from it2nb.core.rounds import Plan, RoundContext, is_number
from it2nb.core.wire import Action, ActionResult, KnobView

if TYPE_CHECKING:
    from it2nb.controllers.observation import Observation

#: How far a knob without a bound is searched from its value, as a factor.
REACH = 100.0
#: What is searched of each optimizer when nobody says.
SEARCHED = ("lr", "weight_decay", "momentum")


class OptunaController:
    """Searches the knobs over the rounds of `run_rounds`.

    Parameters
    ----------
    knobs : sequence of str or mapping, optional
        Which knobs; with ``{name: (low, high)}`` the range too. By default ``lr``,
        ``weight_decay`` and ``momentum`` of each optimizer, for all its groups. A range comes
        from the knob's bounds and scale; a positive knob without one of them, or with 0 as the
        lower end of a log scale, is searched from a hundredth to a hundredfold of its value, on
        a log scale.
    study : optuna.Study, optional
        Yours, with its sampler, pruner and storage; its direction has to be the goal's.
    prune : bool
        Let the study's pruner end rounds (``end_round``) at evaluations of the goal.
    seed : int
        Of the sampler (TPE), where no study is given.
    startup : int
        Rounds at random before the sampler learns, where no study is given.
    """

    name = "optuna"
    source: ControllerSource = "plan"
    every: ClassVar[int] = 1
    is_quick = True
    needs_goal = True

    def __init__(
        self,
        knobs: Sequence[str] | Mapping[str, tuple[float, float]] | None = None,
        *,
        study: Any = None,
        prune: bool = True,
        seed: int = 0,
        startup: int = 3,
    ) -> None:
        self._optuna = require("optuna", extra="optuna", feature="it2nb.OptunaController")
        _check(knobs, study, seed, startup)
        self.knobs = knobs
        self.study = study
        self.prune = prune
        self._seed = seed
        self._startup = startup
        self._trial: Any = None
        self._told = -1
        self._asked_to_end = False

    def describe(self) -> dict[str, Any]:
        """Say what is searched, as JSON."""
        names = None if self.knobs is None else list(self.knobs)
        return {"knobs": names, "prune": self.prune}

    def knob_names(self) -> list[str]:
        """Name the knobs that were asked for."""
        return [] if self.knobs is None else [str(each) for each in self.knobs]

    def plan(self, context: RoundContext) -> Plan:
        """Ask the study for the values of a round."""
        goal = context.goal
        if goal is None or goal.direction is None:
            raise ControllerError("Optuna needs a goal with a direction: Goal('val_loss', 'min')")
        if self.study is None:
            self.study = self._made(goal.direction)
        space = self.space(context.knobs)
        self._learn_baseline(context, space)
        self._trial = self.study.ask(space)
        self._told, self._asked_to_end = -1, False
        return Plan(settings=dict(self._trial.params), reason=f"trial {self._trial.number}")

    def ask(self, observation: Observation) -> Action | None:
        """Report the goal's newest value; ask to end a round that lags behind."""
        trial, goal = self._trial, observation.goal
        if trial is None or not self.prune or self._asked_to_end or goal is None:
            return None
        history = observation.history.get(goal.metric)
        if not history:
            return None
        step, value = history[-1]
        if step <= self._told or not is_number(value):
            return None
        self._told = step
        trial.report(value, step)
        if not trial.should_prune():
            return None
        self._asked_to_end = True
        return Action(type="end_round", reason=f"trial {trial.number} lags behind at step {step}")

    def tell(self, result: ActionResult) -> None:
        """Nothing to learn from a single request."""

    def reflect(self, context: RoundContext, record: Mapping[str, Any]) -> None:
        """Tell the study what came of the round."""
        trial, self._trial = self._trial, None
        if trial is None:
            return
        states = self._optuna.trial.TrialState
        value = record.get("value")
        if not is_number(value):
            self.study.tell(trial, state=states.FAIL)
        elif self._asked_to_end:
            self.study.tell(trial, state=states.PRUNED)
        else:
            self.study.tell(trial, value)

    def space(self, knobs: Sequence[KnobView]) -> dict[str, Any]:
        """Make Optuna's distributions of the knobs that are searched.

        Raises
        ------
        ControllerError
            If a name is no knob, or nothing can be searched.
        """
        views = KnobViews(knobs)
        chosen = _usual(views) if self.knobs is None else list(self.knobs)
        found: dict[str, Any] = {}
        for name in chosen:
            if name not in views:
                raise ControllerError(f"no knob is named {name!r:.80}{near(name, views)}")
            given = self.knobs.get(name) if isinstance(self.knobs, Mapping) else None
            own = views[name].name
            if own in found:
                raise ControllerError(f"{own} is to be searched twice, also as {name}")
            distribution = self._distribution(views[name], given)
            if distribution is not None:
                found[own] = distribution
            elif self.knobs is not None:
                raise ControllerError(
                    f"{name} has no range that could be searched: give knobs={{{name!r}: (low, "
                    f"high)}}"
                )
        if not found:
            raise ControllerError(
                f"none of {', '.join(SEARCHED)} has a range that could be searched; name knobs, as "
                f"in OptunaController(['lr']){near('', views)}"
            )
        return found

    def _distribution(self, view: KnobView, given: tuple[float, float] | None) -> Any:
        kinds = self._optuna.distributions
        if not view.enabled or view.locked:
            return None
        if view.dtype in ("choice", "bool"):
            choices = [False, True] if view.dtype == "bool" else list(view.choices or ())
            return kinds.CategoricalDistribution(choices) if len(choices) > 1 else None
        if view.dtype not in ("float", "int") or not is_number(view.value):
            return None
        low, high = given if given is not None else (view.min, view.max)
        log = view.scale == "log"
        if given is None and (low is None or high is None or (log and low <= 0)):
            if not view.value > 0:
                return None
            low = max(view.value / REACH, low or 0.0)
            high = view.value * REACH if high is None else min(view.value * REACH, high)
            log = True
        if low is None or high is None or not low < high:
            return None
        if view.dtype == "int":
            return kinds.IntDistribution(int(low), int(high), log=log and low >= 1)
        return kinds.FloatDistribution(float(low), float(high), log=log and low > 0)

    def _made(self, direction: str) -> Any:
        optuna = self._optuna
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        return optuna.create_study(
            direction="minimize" if direction == "min" else "maximize",
            sampler=optuna.samplers.TPESampler(seed=self._seed, n_startup_trials=self._startup),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=2, n_warmup_steps=1),
        )

    def _learn_baseline(self, context: RoundContext, space: Mapping[str, Any]) -> None:
        """The baseline is a trial too, where its values lie in the space."""
        if self.study.trials or not context.memory.records:
            return
        record = context.memory.records[0]
        params = {name: record.get("settings", {}).get(name) for name in space}
        inside = all(
            value is not None and space[name]._contains(space[name].to_internal_repr(value))
            for name, value in params.items()
        )
        if inside and is_number(record.get("value")):
            made = self._optuna.trial.create_trial(
                params=params, distributions=dict(space), value=record["value"]
            )
            self.study.add_trial(made)


def _usual(views: Mapping[str, KnobView]) -> list[str]:
    """What is worth a search: never a switch such as `maximize`, nor eps or betas."""
    found = []
    for name, view in views.items():
        owner, dot, last = name.rpartition(".")
        # A norm has a momentum too: what has a learning rate beside it is an optimizer's.
        if view.dtype == "float" and last in SEARCHED and owner + dot + "lr" in views:
            found.append(name)
    return found


def _check(knobs: Any, study: Any, seed: Any, startup: Any) -> None:
    listed = isinstance(knobs, (Sequence, Mapping)) and not isinstance(knobs, (str, bytes))
    if knobs is not None and not (listed and all(isinstance(each, str) for each in knobs)):
        raise ControllerError(
            f"knobs={knobs!r:.60} has to be names, as in ['lr'], or {{name: (low, high)}}"
        )
    if study is not None and not all(hasattr(study, each) for each in ("ask", "tell", "trials")):
        raise ControllerError(f"study={study!r:.60} has to be an optuna.Study")
    for name, value in (("seed", seed), ("startup", startup)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ControllerError(f"{name}={value!r:.60} has to be a whole number from 0")
