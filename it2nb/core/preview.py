"""A dry run: what a request would do, were it served now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from it2nb.core.door import shape
from it2nb.core.errors import KnobError, Rejected, UnknownAction
from it2nb.core.faults import guard
from it2nb.core.queue import ActionHandle
from it2nb.core.relative import absolute
from it2nb.core.serving import too_late

if TYPE_CHECKING:
    from it2nb.core.session import Session
    from it2nb.core.wire import Action


@dataclass(frozen=True, slots=True)
class Preview:
    """What a request would do, were it served now.

    Attributes
    ----------
    verdict : {"allow", "reject", "wait"}
    status : str
        The status to expect; ``"applied"`` is no promise, since a setter may still fail.
    value : any
        The coerced value, for requests that set a knob.
    reason : str or None
    """

    verdict: Literal["allow", "reject", "wait"]
    status: str
    value: Any = None
    before: Any = None
    reason: str | None = None
    name: str | None = field(default=None)


def foresee(session: Session, asked: Action | Mapping[str, Any], source: str) -> Preview:
    """Run a request through every check and through no handler. Any thread."""
    action, wrong = shape(asked)
    if wrong is not None:
        return Preview("reject", "rejected", reason=wrong)
    if session.is_ended or session.stop_requested:
        return Preview("reject", "rejected", reason=f"the run is over ({session.status})")
    handle = ActionHandle(action, source, action.actor or action.source, session.t, session.queue)
    late = too_late(session, handle)
    if late is not None:
        return Preview("reject", late[0], reason=late[1])
    try:
        spec = session.actions[action.type]
        payload = absolute(action.type, spec.validate(action.payload), session)
        reason = spec.reason_unavailable()
        if reason is not None:
            raise Rejected(reason)
    except (UnknownAction, Rejected) as err:
        return Preview("reject", "rejected", reason=str(err))
    verdict = session.policy.judge(handle, spec, payload, session)
    if verdict.kind == "reject":
        return Preview("reject", "rejected", reason=verdict.reason)
    if action.type == "set_knob":
        seen = _of_knob(session, payload)
        if seen.verdict == "reject" or verdict.kind == "allow":
            return seen
    if verdict.kind == "wait":
        return Preview("wait", "waiting", reason=verdict.reason)
    return Preview("allow", "applied")


def _of_knob(session: Session, payload: Mapping[str, Any]) -> Preview:
    try:
        knob = session.knobs[payload["name"]]
        reason = knob.reason_unavailable()
        if reason is not None:
            raise Rejected(reason)
        coerced = knob.coerce(payload["value"])
    except (KnobError, Rejected) as err:
        return Preview("reject", "rejected", reason=str(err))
    before: Any = None
    with guard(f"get of {knob.name}"):
        before = knob.value
    status = "clamped" if coerced.clamped else "applied"
    return Preview("allow", status, coerced.value, before, coerced.reason, knob.name)
