"""Serving one request at a control point: policy, handler, read-back, its rows, its waiters."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from it2nb.core.actions import ActionSpec, Deferred, Owed
from it2nb.core.errors import Rejected, UnknownAction
from it2nb.core.faults import guard
from it2nb.core.knobs import Outcome
from it2nb.core.queue import ActionHandle
from it2nb.core.readable import asked_text
from it2nb.core.redaction import redacted
from it2nb.core.relative import absolute
from it2nb.core.strict import plain
from it2nb.core.values import shown
from it2nb.core.wire import EFFECTIVE, ActionResult, Status

if TYPE_CHECKING:
    from it2nb.core.session import Session


class KnobChange(NamedTuple):
    """What a handler returns that moved a knob; it fills requested, before and after."""

    name: str
    requested: Any
    outcome: Outcome


class Said(NamedTuple):
    """What a handler returns that did its work and has to say something about it."""

    data: Any
    reason: str


@dataclass(frozen=True, slots=True)
class Debt:
    """A request that the loop has to carry out itself before its next control point."""

    handle: ActionHandle
    owed: Owed
    step: int


def serve(session: Session, handle: ActionHandle) -> Owed | None:
    """Give one request its end, or hand it to the loop. Training thread, control point only.

    Returns
    -------
    Owed or None
        What the loop has to do itself; its result then comes later.
    """
    handle.served = session.place()
    decided: Decided | None = None
    with guard(f"decision about {handle.action.type}") as fault:
        decided = _decide(session, handle)
    if decided is None:
        # A foreign getter or check raised: nothing was touched yet.
        settle(session, handle, "failed", f"it could not be decided: {fault.error}")
    elif decided.status == "waiting":
        session.hold_for_approval(handle, decided.reason or "")
    elif decided.status is not None or decided.spec is None or decided.payload is None:
        settle(session, handle, decided.status or "rejected", decided.reason)
    else:
        return session.gate.carry_out(handle, decided.spec, decided.payload)
    return None


class Decided(NamedTuple):
    """Whether a request may be carried out: then it has spec and payload, else a status."""

    spec: ActionSpec | None = None
    payload: dict[str, Any] | None = None
    status: Status | None = None
    reason: str | None = None


def _decide(session: Session, handle: ActionHandle) -> Decided:
    """Expiry, precondition, arguments, availability, policy; in this order."""
    action = handle.action
    late = too_late(session, handle)
    if late is not None:
        return Decided(status=late[0], reason=late[1])
    try:
        spec = session.actions[action.type]
        payload = absolute(action.type, spec.validate(action.payload), session)
        reason = spec.reason_unavailable()
    except (UnknownAction, Rejected) as err:
        return Decided(status="rejected", reason=str(err))
    if reason is not None:
        return Decided(status="rejected", reason=reason)
    verdict = session.policy.judge(handle, spec, payload, session)
    if verdict.kind == "allow":
        return Decided(spec, payload)
    return Decided(
        status="waiting" if verdict.kind == "wait" else "rejected", reason=verdict.reason
    )


def too_late(session: Session, handle: ActionHandle) -> tuple[Status, str] | None:
    """Check expiry and the compare-and-set precondition."""
    action = handle.action
    limit = action.valid_until_step
    if limit is not None and session.step_count > limit:
        return "expired", f"was valid until step {limit}; it is step {session.step_count} now"
    if action.expect:
        stale = unmet(session, action.expect)
        if stale is not None:
            return "rejected", f"stale: {stale}"
    return None


def unmet(session: Session, expect: Mapping[str, Any]) -> str | None:
    """Name the first expectation that does not hold; None when all do."""
    own = {
        "step": session.step_count,
        "branch_id": session.branch_id,
        "round": session.round,
        "status": session.status,
    }
    for name, wanted in expect.items():
        found: Any = own.get(name)
        if name not in own:
            if name not in session.knobs:
                return f"expected {name} = {shown(wanted)}, but there is no such knob"
            with guard(f"get of {name}") as fault:
                found = session.knobs[name].value
            if fault:
                return f"expected {name} = {shown(wanted)}, but it could not be read: {fault.error}"
        # True == 1 in Python, but whoever expects one of them does not mean the other.
        if isinstance(found, bool) != isinstance(wanted, bool) or found != wanted:
            return f"expected {name} = {shown(wanted)}, but it is {shown(found)}"
    return None


class Attempt(NamedTuple):
    """What became of a request on its way through the handler, before any row is written."""

    status: Status
    reason: str | None = None
    error: str | None = None
    data: Any = None
    change: KnobChange | None = None


def carry_out(
    session: Session, handle: ActionHandle, spec: ActionSpec, payload: dict[str, Any]
) -> Owed | None:
    """Run the handler of an admitted request and write its result. Training thread."""
    tried = attempt(session, handle, spec, payload)
    if isinstance(tried, Attempt):
        conclude(session, handle, tried)
        return None
    return tried if isinstance(tried, Owed) else None


def attempt(
    session: Session, handle: ActionHandle, spec: ActionSpec, payload: dict[str, Any]
) -> Attempt | Owed | Deferred:
    """Run the handler and tell what came of it; nothing is written yet. Training thread."""
    data: Any = None
    previous, session.serving = session.serving, handle
    session.about_to_apply(handle, spec)
    try:
        with guard(f"handler of {spec.name}") as fault:
            data = _call(spec, payload, session)
    finally:
        session.serving = previous
    if fault.kind == "Rejected":
        return Attempt("rejected", fault.error.removeprefix("Rejected: "))
    if fault.kind == "It2nbError":  # ours: it says itself what to do
        said = fault.error.removeprefix("It2nbError: ")
        return Attempt("failed", said, said)
    if fault:
        return Attempt("failed", f"the handler raised {fault.error}", fault.error)
    if isinstance(data, (Owed, Deferred)):
        return data
    if isinstance(data, Said):
        return Attempt("applied", data.reason, data=data.data)
    if isinstance(data, KnobChange):
        outcome = data.outcome
        return Attempt(outcome.status, outcome.reason, outcome.error, outcome.data, change=data)
    return Attempt("applied", data=data)


def conclude(session: Session, handle: ActionHandle, tried: Attempt) -> ActionResult:
    """Write the result of an attempt. Training thread."""
    change = tried.change
    if change is None:
        return settle(
            session, handle, tried.status, tried.reason, error=tried.error, data=tried.data
        )
    return settle(
        session,
        handle,
        tried.status,
        tried.reason,
        error=tried.error,
        data=tried.data,
        name=change.name,
        requested=change.requested,
        before=change.outcome.before,
        after=change.outcome.after,
    )


def _call(spec: ActionSpec, payload: dict[str, Any], session: Session) -> Any:
    try:
        return spec.handler(payload, session)
    except (CancelledError, GeneratorExit) as error:
        # No Exception, and yet a fault of the handler: nobody wants the training to end.
        raise RuntimeError(f"{type(error).__name__} {error}".strip()) from error


def settle(
    session: Session,
    handle: ActionHandle,
    status: Status,
    reason: str | None = None,
    *,
    error: str | None = None,
    data: Any = None,
    name: str | None = None,
    requested: Any = None,
    before: Any = None,
    after: Any = None,
) -> ActionResult:
    """Write the one result of a request, then wake whoever waits for it.

    The rows are on disk before a future, a subscriber or the panel can see the result
    (DESIGN section 3, rule 7).
    """
    action = handle.action
    ok = status in EFFECTIVE
    if name is None and action.type in KNOB_ACTIONS:
        name, requested, before, after = describe_knob(session, action.payload, before, after)
    # Plain values: a result is kept for as long as the session, a tensor in it would be too.
    fields: dict[str, Any] = {
        "id": action.id, "type": action.type, "ok": ok, "status": status, "data": plain(data),
        "error": None if ok else error or reason or status, "source": handle.source,
        "actor": handle.actor, "name": name, "requested": plain(requested), "before": before,
        "after": after, "reason": reason,
    }  # fmt: skip
    rows: list[tuple[str, dict[str, Any]]] = []
    if ok and name is not None:
        rows.append(("knob_changed", {"name": name, "value": after, "before": before}))
    if handle.served is not None:
        fields["served"] = handle.served
    if action.reason is not None:
        fields["why"] = action.reason
    if name is None and action.type != "batch":
        # So that a row says by itself what it is about; what a batch set is in its data.
        spec = session.actions.get(action.type)
        payload = action.payload if spec is None else spec.telling(action.payload)
        fields["asked"] = asked_text(redacted(payload))
    rows.append(("action_result", fields))
    durable = session.write_rows(rows, source=handle.source, action_id=action.id)
    # The row is bytes by now, and its fields become the result's.
    fields.pop("served", None)
    fields.pop("why", None)
    fields.pop("asked", None)
    fields["v"] = 2
    fields["step"] = session.step_count
    fields["durable"] = durable
    fields["branch_id"] = session.branch_id
    fields["round"] = session.round
    result = ActionResult.trusted(fields)
    knob = None if name is None else session.knobs.find(name)
    if knob is not None:
        knob.last = result
    with guard("accounting of a result", session.report):
        session.policy.settled(handle, result, session)
        if knob is not None and ok:
            session.overwritten.note(knob, before, after)
    session.queue.resolve(handle, result)
    session.note_result(result)
    return result


KNOB_ACTIONS = frozenset({"set_knob", "set_mode"})


def describe_knob(
    session: Session, payload: Mapping[str, Any], before: Any = None, after: Any = None
) -> tuple[str | None, Any, Any, Any]:
    """Fill in knob and value of a request that never reached its setter."""
    asked = payload.get("name")
    if not isinstance(asked, str):
        return None, payload.get("value"), before, after
    value: Any = None
    name = asked
    knob = session.knobs.find(asked)
    if knob is not None:
        name = knob.name
        with guard(f"get of {name}"):
            value = knob.value
    return name, payload.get("value", payload.get("mode")), value, value
