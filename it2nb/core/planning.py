"""The plan of a round: who makes it, and asking for what it sets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from it2nb.core.faults import guard
from it2nb.core.rounds import Plan, RoundContext
from it2nb.core.wire import Action

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session


def ask_plan(session: Session, context: RoundContext) -> tuple[Plan | None, Any]:
    """Ask the controllers for a plan: the first one that has any, and who it was."""
    for controller in session.controllers:
        if not controller.plans:
            continue
        answer = controller.plan(context)
        plan: Plan | None = None
        with guard(f"plan of {controller.name}", session.report):
            plan = Plan.parse(answer)
        if plan is not None:
            return plan, controller
    return None, None


def plan_round(session: Session, context: RoundContext | None = None) -> Plan | None:
    """Ask for a plan; see `TrainingSession.plan_round`."""
    if context is None:
        number = session.round + 1
        context = RoundContext(
            round=number, max_rounds=session.max_rounds or number + 1, goal=session.goal,
            memory=session.memory, context=session.context, seed=session.seed or 0,
            knobs=session.policy.shown(session.knobs.views(), "plan"),
        )  # fmt: skip
    return ask_plan(session, context)[0]


def apply_plan(session: Session, plan: Any) -> list[ActionHandle]:
    """Ask for what a plan sets; see `TrainingSession.apply_plan`."""
    parsed = Plan.parse(plan)
    if parsed is None:
        return []
    here = session.on_training_thread
    if session.replaying is not None:
        if here:
            session.replaying.serve_plan()
        return []
    told = {"actor": "plan", "reason": parsed.reason or None}
    handles = []
    for name, value in parsed.settings.items():
        action = Action(type="set_knob", payload={"name": name, "value": value})
        handle = session.door.enter(action, "plan", **told)
        if here:
            session.gate.serve_first(handle)
        handles.append(handle)
    return handles
