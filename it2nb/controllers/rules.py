"""Rules and schedules: what to ask for when, as objects; `grammar` reads them from a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, overload

from it2nb.controllers.base import Asked, ControllerError
from it2nb.controllers.conditions import (
    At,
    Check,
    Compare,
    Condition,
    Every,
    Watch,
    check_steps,
    metrics_of,
    quoted,
    say,
)
from it2nb.controllers.observation import Observation
from it2nb.core.expected import missed
from it2nb.core.wire import Action, ActionResult


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition, what to ask for when it is met, and how often. Immutable.

    Each method that asks for something returns a rule that asks for that too, in their order.
    Attached to a session it is watched at every control point, in constant time, on the
    training thread, so that what it asks for holds from the next step.

    Attributes
    ----------
    condition : Condition
    actions : tuple of (str, dict)
        Types and payloads.
    most : int or None
        How many times it asks.
    rest : int or None
        Optimizer steps for which it is quiet afterwards. Without one, a rule whose condition
        goes on being met asks once, and again after it was not met in between.
    start, end : int or None
        First and last step at which it is watched.
    """

    condition: Condition
    actions: tuple[tuple[str, dict[str, Any]], ...] = ()
    most: int | None = None
    rest: int | None = None
    start: int | None = None
    end: int | None = None

    # --- what to ask for -----------------------------------------------------------------------

    def do(self, action: str, **payload: Any) -> Rule:
        """Ask for any action."""
        return replace(self, actions=(*self.actions, (action, payload)))

    def set(self, name: str, value: Any, mode: str | None = None) -> Rule:
        """Set a knob."""
        more = {} if mode is None else {"mode": mode}
        return self.do("set_knob", name=name, value=value, **more)

    def multiply(self, name: str, factor: float) -> Rule:
        """Multiply what a knob is when the request is served."""
        return self.do("set_knob", name=name, factor=_number("factor", factor))

    def add(self, name: str, amount: float) -> Rule:
        """Add to what a knob is when the request is served."""
        return self.do("set_knob", name=name, add=_number("amount", amount))

    def pause(self) -> Rule:
        """Hold the loop."""
        return self.do("pause")

    def stop(self) -> Rule:
        """End the run."""
        return self.do("stop")

    def evaluate(self) -> Rule:
        """Evaluate."""
        return self.do("evaluate")

    def save(self, tag: str | None = None) -> Rule:
        """Save a checkpoint."""
        return self.do("save_checkpoint", **({} if tag is None else {"tag": tag}))

    def note(self, text: str) -> Rule:
        """Write a remark into the journal."""
        return self.do("note", text=text)

    def undo(self) -> Rule:
        """Take the last change back."""
        return self.do("undo")

    # --- how often -----------------------------------------------------------------------------

    def at_most(self, times: int) -> Rule:
        """Ask so many times, in each round."""
        if type(times) is not int or times < 1:
            raise ControllerError(f"at_most({times!r:.60}) has to be a whole number from 1")
        return replace(self, most=times)

    def once(self) -> Rule:
        """Ask once."""
        return self.at_most(1)

    def cooldown(self, steps: int) -> Rule:
        """Be quiet for so many steps afterwards; then ask again, also if it is met all the time."""
        return replace(self, rest=check_steps(steps, "cooldown"))

    def between(self, start: int | None = None, end: int | None = None) -> Rule:
        """Watch from step `start` until step `end` only, both included."""
        for what, step in (("start", start), ("end", end)):
            if step is not None:
                check_steps(step, what, 0)
        return replace(self, start=start, end=end)

    # --- as text, and under way ----------------------------------------------------------------

    @property
    def text(self) -> str:
        """The rule in the words of the grammar; `rule` reads the same one from it."""
        parts = [f"{self.condition.text}: " + " then ".join(map(_said, self.actions))]
        if self.most is not None:
            parts.append("once" if self.most == 1 else f"at most {self.most} times")
        if self.rest is not None:
            parts.append(f"cooldown {self.rest}")
        if self.start is not None:
            parts.append(f"from step {self.start}")
        if self.end is not None:
            parts.append(f"until step {self.end}")
        return ", ".join(parts)

    def __str__(self) -> str:
        return self.text

    def begin(self) -> Watching:
        """Make what watches it: one for each session.

        Raises
        ------
        ControllerError
            If it asks for nothing.
        """
        if not self.actions:
            raise ControllerError(
                f"the rule {self.condition.text!r} asks for nothing: add .set(...), "
                f".multiply(...), .pause(), .evaluate() or the like"
            )
        return Watching(self)


def knobs_of(rule: Rule) -> list[str]:
    """Return the knobs that a rule would set."""
    named = (payload.get("name") for type, payload in rule.actions if type == "set_knob")
    return [name for name in named if isinstance(name, str)]


def who_waits(rule: Rule) -> str:
    """Name a rule where it is told what it waits for in vain."""
    return f"the rule {rule.text!r:.200}"


class Watching:
    """A rule under way: the controller that `attach` makes of it."""

    source = "rule"
    every = 1
    is_quick = True

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.name = rule.text[:200]
        self.fired = 0
        self._round: int | None = None
        self._step = -1
        self._quiet_until = -1
        self._held = False
        self._watch: Watch = rule.condition.begin(-1)

    def on_attach(self, attached: Any) -> None:
        """Begin where the run is: a schedule's past steps do not count.

        Raises
        ------
        ControllerError
            If it would set a knob that a run that trains already does not have.
        """
        step = attached.session.step_count or -1
        self._watch = self.rule.condition.begin(step)
        self._step = step
        session, who = attached.session, who_waits(self.rule)
        for name in knobs_of(self.rule):
            said = missed(session, "knob", name) if session.step_count else ""
            if said:
                raise ControllerError(f"{said}: the rule {self.rule.text!r:.200} is not watched")
            session.expected.add(name, who, kind="knob", is_rule=True)
        for metric in metrics_of(self.rule.condition):
            session.expected.add(metric, who, is_rule=True)

    def ask(self, seen: Observation) -> Asked:
        """Look once; what the rule asks for if it is met."""
        self._keep_up(seen)
        rule = self.rule
        why = self._watch.look(seen)
        held, self._held = self._held, why is not None
        if why is None or not self._is_on(seen.step):
            return None
        if held and rule.rest is None and not rule.condition.is_moment:
            return None
        self.fired += 1
        self._quiet_until = -1 if rule.rest is None else seen.step + rule.rest
        return [Action(type=type, payload=dict(payload), reason=why[:4000])
                for type, payload in rule.actions]  # fmt: skip

    def tell(self, result: ActionResult) -> None:
        """Nothing to learn."""

    def describe(self) -> dict[str, Any]:
        """The rule as text, and how often it was met."""
        return {"rule": self.rule.text, "fired": self.fired}

    def _is_on(self, step: int) -> bool:
        rule = self.rule
        if rule.most is not None and self.fired >= rule.most:
            return False
        if (rule.start is not None and step < rule.start) or (
            rule.end is not None and step > rule.end
        ):
            return False
        return step >= self._quiet_until

    def _keep_up(self, seen: Observation) -> None:
        """Begin anew with a round; after going back count the steps from there."""
        if self._round != seen.round:
            if self._round is not None:
                self.fired, self._step = 0, -1
                self._quiet_until, self._held = -1, False
                self._watch = self.rule.condition.begin(-1)
            self._round = seen.round
        elif seen.step < self._step:
            self._quiet_until, self._held = -1, False
            self._watch = self.rule.condition.begin(seen.step)
        self._step = seen.step


class Function:
    """A function of an observation as a rule: called on the training thread, so be quick."""

    source = "rule"
    is_quick = True

    def __init__(self, function: Callable[[Observation], Asked], every: int, name: str) -> None:
        self.ask = function
        self.every = every
        self.name = name

    def __call__(self, seen: Observation) -> Asked:
        """Call the function itself."""
        return self.ask(seen)

    def describe(self) -> dict[str, Any]:
        """Its name."""
        return {"rule": f"the function {self.name}"}


def at(step: int) -> Rule:
    """Begin a rule for one step: ``at(1000).set("lr", 1e-4)``.

    Parameters
    ----------
    step : int
        Updates completed; what is asked for holds from the next one.
    """
    return Rule(At(step))


def every(steps: int) -> Rule:
    """Begin a rule for each `steps` steps: ``every(500).multiply("lr", 0.5)``."""
    return Rule(Every(steps))


def when(condition: str | Condition | Callable[[Observation], Any], *, steps: int = 1) -> Rule:
    """Begin a rule for a condition: ``when("loss > 5", steps=20).pause()``.

    Parameters
    ----------
    condition : str, Condition or function
        In the words of the grammar; or a function of an `Observation` that returns whether the
        condition is met, or in words why.
    steps : int, optimizer steps
        For how long a comparison has to hold.

    Raises
    ------
    RuleError
        If the text can't be read.
    """
    made = _condition(condition)
    if steps != 1:
        if not isinstance(made, Compare):
            raise ControllerError("steps= goes with a comparison, such as when('loss > 5')")
        made = replace(made, steps=steps)
    return Rule(made)


def _condition(told: Any) -> Condition:
    if isinstance(told, str):
        from it2nb.controllers.grammar import parse_condition

        return parse_condition(told)
    if hasattr(told, "begin"):
        return told  # type: ignore[no-any-return]
    if not callable(told):
        raise ControllerError(f"{told!r:.60} is no condition, text or function")
    return Check(told)


@overload
def rule(what: str) -> Rule: ...


@overload
def rule(
    what: Callable[[Observation], Any], *, every: int = 1, name: str | None = None
) -> Function: ...


def rule(
    what: str | Callable[[Observation], Any], *, every: int = 1, name: str | None = None
) -> Rule | Function:
    """Read a rule from a text, or make one of a function.

    ::

        rule("no improvement of val_loss by 1 % in 300 steps: lr x 0.5, at most 3 times")
        rule("loss > 5 for 20 steps: pause")


        @rule
        def warm_up(seen):
            if seen.step < 100:
                return {"type": "set_knob", "payload": {"name": "lr", "value": 1e-5 * seen.step}}

    Parameters
    ----------
    what : str or function
        A function gets an `Observation` and returns actions or None, on the training thread.
    every : int, optimizer steps
        Between two calls of a function.
    name : str, optional
        Of a function.

    Raises
    ------
    RuleError
        If the text can't be read; it marks the place.
    """
    if isinstance(what, str):
        from it2nb.controllers.grammar import parse

        return parse(what)
    if not callable(what):
        raise ControllerError(f"{what!r:.60} is no rule: give a text, or a function")
    return Function(what, check_steps(every, "every"), name or _name_of(what))


def _name_of(function: Any) -> str:
    return str(getattr(function, "__name__", type(function).__name__))[:200]


def _number(what: str, value: float) -> float:
    if isinstance(value, bool) or not math.isfinite(value):
        raise ControllerError(f"{what}={value!r:.60} has to be a finite number")
    return value


def _said(action: tuple[str, Mapping[str, Any]]) -> str:
    """Write one action in the words of the grammar."""
    type, payload = action
    if type == "set_knob" and len(payload) == 2 and "name" in payload:
        name = quoted(str(payload["name"]))
        if "factor" in payload:
            return f"{name} x {say(payload['factor'])}"
        if "add" in payload:
            amount = payload["add"]
            return f"{name} {'-' if amount < 0 else '+'} {say(abs(amount))}"
        if "value" in payload:
            return f"{name} = {_literal(payload['value'])}"
    if type == "save_checkpoint":
        return "save" + (f" {quoted(payload['tag'])}" if payload.get("tag") else "")
    if type == "note":
        return f"note {_literal(str(payload.get('text', '')))}"
    if not payload and type in ("pause", "resume", "stop", "evaluate", "undo", "end_round"):
        return type
    return f"do {quoted(type)}" + "".join(f" {k}={_literal(v)}" for k, v in payload.items())


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    text = str(value)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
