"""Who may do what: one place that every request passes at its control point."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from it2nb.core.budget import Budget, Spending
from it2nb.core.errors import It2nbError
from it2nb.core.knob_names import usual, without_owner
from it2nb.core.restriction import Rule, asked_of, knobs_of, overlap, too_far
from it2nb.core.rounds import is_number
from it2nb.core.values import shown
from it2nb.core.wire import SOURCES, KnobView

if TYPE_CHECKING:
    from it2nb.core.actions import ActionSpec
    from it2nb.core.knob_registry import KnobRegistry
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session
    from it2nb.core.wire import ActionResult

#: Sources behind which a person sits.
HUMANS = frozenset({"panel", "magic", "python", "http"})
#: Sources that ask by themselves.
CONTROLLERS = frozenset({"rule", "agent", "plan", "guard"})
#: What an agent may not do unless it is allowed: the paper's default.
FORBIDDEN_TO_AGENTS = (
    "load_checkpoint", "pause", "resume", "reset_module", "note", "set_context",
    "set_agent", "configure_agent", "undo", "goto",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Verdict:
    """May this request be carried out?"""

    kind: Literal["allow", "reject", "wait"]
    reason: str | None = None


ALLOW = Verdict("allow")


class Policy:
    """Permissions, limits, budgets and approvals of one session.

    Parameters
    ----------
    approval_timeout_s : float or None
        How long a request waits for a human before it is `expired`.
    human_lock : bool or int
        A person's change of a knob locks it against controllers: for that many steps, or, with
        True, until `unlock`.

    Notes
    -----
    Rules may be changed on any thread; they hold from the next request that is served.
    Replayed requests pass: they were judged when they were recorded.
    """

    def __init__(
        self, *, approval_timeout_s: float | None = 300.0, human_lock: bool | int = False
    ) -> None:
        self.approval_timeout_s = approval_timeout_s
        self.human_lock = human_lock
        self._forbidden: dict[str, frozenset[str]] = {"agent": frozenset(FORBIDDEN_TO_AGENTS)}
        self._rules: dict[str, Rule] = {}
        self._budgets: dict[str, Budget] = {}
        self._spent: dict[str, Spending] = {}
        self._changed_at: dict[str, int] = {}
        self._approved: set[str] = set()
        self._vetoes: list[Callable[[ActionHandle], str | None]] = []
        #: The session's, once it has one: rules may name a knob by an alias.
        self.knobs: KnobRegistry | None = None
        self.actions: Container[str] = ()
        #: Called when a rule is given a name; the session looks whether it means anything.
        self.when_ruled: Callable[[], object] = lambda: None

    # --- rules -----------------------------------------------------------------------------

    def forbid(self, source: str, *names: str) -> Policy:
        """Keep a source from these actions and knobs; ``"*"`` stands for all."""
        _check_sources([source])
        self._forbidden[source] = self._forbidden.get(source, frozenset()) | set(names)
        self.when_ruled()
        return self

    def allow(self, source: str, *names: str) -> Policy:
        """Take `forbid` back for these names; without names for all of the source."""
        _check_sources([source])
        taken = {*names, *map(self._named, names)}
        self._forbidden[source] = frozenset(
            each
            for each in self._forbidden.get(source, frozenset())
            if names and not {each, self._named(each)} & taken
        )
        return self

    def lock(
        self,
        name: str,
        *,
        against: Iterable[str] | None = None,
        reason: str = "",
        until_step: int | None = None,
    ) -> Policy:
        """Lock a knob or an action; against all sources by default."""
        rule = self._rule(name)
        rule.locked_for = _check_sources(SOURCES if against is None else against)
        rule.lock_reason = reason
        rule.locked_until = until_step
        return self

    def unlock(self, name: str) -> Policy:
        """Take `lock` back."""
        self._rule(name).locked_for = frozenset()
        return self

    def hide(self, name: str, hidden: bool = True) -> Policy:
        """Leave a knob or an action out of panel and agents; only Python may still use it."""
        self._rule(name).hidden = hidden
        return self

    def confirm(self, name: str, needed: bool = True) -> Policy:
        """Make the panel ask before it sends; controllers then need an approval."""
        rule = self._rule(name)
        rule.confirm = needed
        rule.approval_for = CONTROLLERS if needed else frozenset()
        return self

    def require_approval(self, *names: str, sources: Iterable[str] = ("agent",)) -> Policy:
        """Let requests of these sources wait for a human; ``"*"`` stands for all."""
        checked = _check_sources(sources)
        for name in names:
            self._rule(name).approval_for = checked
        return self

    def limit(
        self,
        name: str,
        *,
        max_change: float | None = None,
        cooldown: int | None = None,
        sources: Iterable[str] | None = None,
    ) -> Policy:
        """Limit how far and how often a knob may be moved.

        Parameters
        ----------
        max_change : float, > 1
            The largest factor, up or down, between old and new value.
        cooldown : int, optimizer steps
            From one change until the next.
        sources : iterable of str, optional
            For whom; all by default.
        """
        if max_change is not None and not (math.isfinite(max_change) and max_change > 1):
            raise It2nbError(f"max_change={max_change!r} has to be a factor above 1, such as 10")
        if cooldown is not None and cooldown < 1:
            raise It2nbError(f"cooldown={cooldown!r} has to be at least 1 step")
        rule = self._rule(name)
        rule.max_change, rule.cooldown = max_change, cooldown
        rule.limits_for = _check_sources(SOURCES if sources is None else sources)
        return self

    def budget(self, source: str, **limits: float) -> Policy:
        """Bound what a source may use up: see `Budget`."""
        _check_sources([source])
        self._budgets[source] = Budget(**limits)  # type: ignore[arg-type]
        return self

    def spend(self, source: str, *, tokens: int = 0, cost: float = 0.0) -> None:
        """Book tokens and money that a controller used. Any thread.

        Raises
        ------
        It2nbError
            If one of them is negative or no finite number; nothing is booked then.
        """
        for name, used in (("tokens", tokens), ("cost", cost)):
            if not is_number(used) or used < 0:
                raise It2nbError(
                    f"{name}={shown(used)} can't be booked on {source}: it has to be a finite "
                    f"number, 0 or more"
                )
        spent = self._account(source)
        spent.tokens += tokens
        spent.cost += cost

    def _account(self, source: str) -> Spending:
        return self._spent.get(source) or self._spent.setdefault(source, Spending())

    def spent(self, source: str) -> Spending:
        """What a source has used up so far."""
        return self._spent.get(source, Spending())

    def used_up(self, source: str, elapsed_s: float = 0.0) -> str | None:
        """Say which limit of its budget a source has reached; None when none. Any thread."""
        budget = self._budgets.get(source)
        if budget is None:
            return None
        return budget.exceeded(self.spent(source), False, elapsed_s, source)

    def _rule(self, name: str) -> Rule:
        # One rule for a knob, whichever of its names it was given under.
        same = (each for each in self._rules if self._named(each) == self._named(name))
        self.when_ruled()
        return self._rules.setdefault(name if name in self._rules else next(same, name), Rule())

    def veto(self, function: Callable[[ActionHandle], str | None]) -> Policy:
        """Let `function(handle)` reject requests: it returns why, or None."""
        self._vetoes.append(function)
        return self

    def _named(self, name: str) -> str:
        """Return the own name of the knob that is meant, or `name` itself."""
        return name if self.knobs is None else self.knobs.own_name(name)

    def _concerns(self, ruled: str, name: str) -> bool:
        """Whether a rule for `ruled`, which may be an alias, holds for `name`."""
        # As it stands too: an action's name may be some knob's alias.
        if overlap(name, ruled):
            return True
        if self.knobs is None:
            return False
        own, meant = self.knobs.own_name(name), self.knobs.own_name(ruled)
        if (own, meant) != (name, ruled) and overlap(own, meant):
            return True
        # Of several optimizers "lr" is the lr of each: a rule must not come to nothing in silence.
        if "." not in own or ruled in self.actions or ruled in self.knobs:
            return False
        return overlap(without_owner(own), usual(ruled))

    def idle(self, names: Iterable[str]) -> list[str]:
        """Names that rules were given, and that hold for none of these knobs and actions."""
        known = list(names)
        forbidden = frozenset().union(*self._forbidden.values()) - set(FORBIDDEN_TO_AGENTS)
        ruled = [each for each in (*self._rules, *sorted(forbidden)) if each != "*"]
        return [each for each in ruled if not any(self._concerns(each, name) for name in known)]

    # --- deciding --------------------------------------------------------------------------

    def judge(
        self, handle: ActionHandle, spec: ActionSpec, payload: Mapping[str, Any], session: Session
    ) -> Verdict:
        """Decide about one request. Changes nothing; any thread."""
        if handle.source == "replay":
            return ALLOW
        for veto in self._vetoes:
            said = veto(handle)
            if said is not None:
                return Verdict("reject", said)
        verdict = self._judge_for(handle.source, handle.id, spec, payload, session)
        if handle.behalf is not None and verdict.kind != "reject":
            other = self._judge_for(handle.behalf, handle.id, spec, payload, session)
            return verdict if other.kind == "allow" else other
        return verdict

    def _judge_for(
        self, source: str, id: str, spec: ActionSpec, payload: Mapping[str, Any], session: Session
    ) -> Verdict:
        if not (self._rules or self._forbidden.get(source) or source in self._budgets):
            return ALLOW  # most sessions have no rule at all
        knobs = knobs_of(spec, payload, session)
        names = [spec.name, *knobs]
        reason = self._why_not(source, names, session)
        if reason is None:
            reason = self._over_limit(source, spec, payload, session)
        if reason is None:
            reason = self._over_budget(source, bool(knobs), session)
        if reason is not None:
            return Verdict("reject", reason)
        if id not in self._approved:
            for name in ("*", *names):
                if self._needs_approval(name, source):
                    return Verdict("wait", f"{source} needs a person's approval for {name}")
        return ALLOW

    def _why_not(self, source: str, names: list[str], session: Session) -> str | None:
        forbidden = self._forbidden.get(source, frozenset())
        for name in names:
            if "*" in forbidden or any(self._concerns(each, name) for each in forbidden):
                return f"{source} may not use {name}"
            for ruled, rule in list(self._rules.items()):
                if not self._concerns(ruled, name):
                    continue
                if rule.hidden and source not in ("python", "magic", "guard"):
                    return f"{ruled} is hidden: only Python may use it"
                over = rule.locked_until is not None and session.step_count >= rule.locked_until
                if source in rule.locked_for and not over:
                    until = f" until step {rule.locked_until}" if rule.locked_until else ""
                    why = f" ({rule.lock_reason})" if rule.lock_reason else ""
                    return f"{ruled} is locked for {source}{until}{why}"
        return None

    def _over_limit(
        self, source: str, spec: ActionSpec, payload: Mapping[str, Any], session: Session
    ) -> str | None:
        for name, value in asked_of(spec, payload).items():
            if name not in session.knobs:
                continue
            knob = session.knobs[name]
            for ruled, rule in list(self._rules.items()):
                if not self._concerns(ruled, knob.name) or source not in rule.limits_for:
                    continue
                last = self._changed_at.get(knob.name)
                if rule.cooldown is not None and last is not None:
                    since = session.step_count - last
                    if 0 <= since < rule.cooldown:
                        return (
                            f"{knob.name} was changed at step {last}; its cooldown is "
                            f"{rule.cooldown} steps, {rule.cooldown - since} are left"
                        )
                if rule.max_change is not None:
                    said = too_far(knob, value, rule.max_change)
                    if said is not None:
                        return said
        return None

    def _over_budget(self, source: str, changes: bool, session: Session) -> str | None:
        budget = self._budgets.get(source)
        if budget is None:
            return None
        return budget.exceeded(self.spent(source), changes, session.elapsed_s, source)

    def _needs_approval(self, name: str, source: str) -> bool:
        return any(
            source in rule.approval_for and self._concerns(ruled, name)
            for ruled, rule in list(self._rules.items())
        )

    # --- accounting ------------------------------------------------------------------------

    def settled(self, handle: ActionHandle, result: ActionResult, session: Session) -> None:
        """Account for a result. Training thread, or whoever ends the session."""
        self._approved.discard(handle.id)
        if handle.source == "replay":
            return
        spendings = [self._account(handle.source)]
        if handle.behalf is not None:
            spendings.append(self._account(handle.behalf))
        for spent in spendings:
            spent.requests += 1
        if not result.ok:
            return
        changed = [result.name] if result.name else []
        if result.type == "batch" and isinstance(result.data, list):
            changed = [each["name"] for each in result.data]
        spec = session.actions.get(result.type)
        if spec is not None and spec.knobs is not None:
            changed = knobs_of(spec, handle.action.payload, session)
        for spent in spendings:
            spent.changes += bool(changed)
        for name in changed:
            self._changed_at[name] = session.step_count
            if self.human_lock and handle.source in HUMANS:
                forever = self.human_lock is True
                self.lock(
                    name,
                    against=CONTROLLERS,
                    reason=f"set by {handle.actor or handle.source}",
                    until_step=None if forever else session.step_count + int(self.human_lock),
                )

    def approve(self, handle: ActionHandle, by: str) -> None:
        """Let a request pass that waited for approval. Training thread."""
        self._approved.add(handle.id)

    def is_open(self, source: str, name: str) -> bool:
        """Whether a source may know of a knob or an action and ask for it. Any thread."""
        forbidden = self._forbidden.get(source, frozenset())
        if "*" in forbidden or any(self._concerns(each, name) for each in forbidden):
            return False
        return not any(
            rule.hidden and self._concerns(ruled, name) for ruled, rule in list(self._rules.items())
        )

    def left(self, source: str, elapsed_s: float) -> dict[str, float]:
        """Say what a source may still use up, by kind; empty without a budget. Any thread."""
        budget = self._budgets.get(source)
        if budget is None:
            return {}
        spent = {**self.spent(source).describe(), "wall_s": elapsed_s}
        return {name: max(0.0, limit - spent[name]) for name, limit in budget.describe().items()}

    def shown(self, views: list[KnobView], source: str = "panel") -> list[KnobView]:
        """Mark knobs that are locked for a source, leave hidden ones out. Any thread."""
        rules = list(self._rules.items())
        if not rules:
            return views
        kept = []
        for view in views:
            own = [rule for ruled, rule in rules if self._concerns(ruled, view.name)]
            if any(rule.hidden for rule in own):
                continue
            locks = [rule for rule in own if source in rule.locked_for]
            update: dict[str, Any] = {"confirm": any(rule.confirm for rule in own)}
            if locks:
                update |= {"locked": True, "enabled": False}
                update["reason"] = f"locked ({locks[0].lock_reason or 'policy'})"
            kept.append(view.model_copy(update=update))
        return kept

    def describe(self) -> dict[str, Any]:
        """Say the rules in force and what was used up, as JSON. Any thread."""
        return {
            "forbidden": {s: sorted(names) for s, names in self._forbidden.items() if names},
            "rules": {
                name: said for name, rule in list(self._rules.items()) if (said := rule.describe())
            },
            "budgets": {s: each.describe() for s, each in self._budgets.items()},
            "spent": {s: each.describe() for s, each in list(self._spent.items())},
            "approval_timeout_s": self.approval_timeout_s,
            "human_lock": self.human_lock,
            "said": self.sentences(),
        }

    def sentences(self) -> list[str]:
        """The rules in force, one sentence each, for people. Any thread."""
        said = [
            f"{source} may not use {', '.join(sorted(names))}"
            for source, names in self._forbidden.items()
            if names
        ]
        for name, rule in list(self._rules.items()):
            said += [f"{name} {each}" for each in rule.sentences()]
        for source, budget in list(self._budgets.items()):
            limits = ", ".join(f"{limit:g} {what}" for what, limit in budget.describe().items())
            said.append(f"{source} may use up {limits}")
        if self.human_lock:
            until = "" if self.human_lock is True else f" for {self.human_lock} steps"
            said.append(f"a person's change locks its knob against controllers{until}")
        return said


def _check_sources(sources: Iterable[str]) -> frozenset[str]:
    given = frozenset([sources] if isinstance(sources, str) else sources)
    unknown = given - set(SOURCES)
    if unknown:
        raise It2nbError(f"{sorted(unknown)} are no sources; known: {', '.join(SOURCES)}")
    return given
