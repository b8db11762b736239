"""Late answers: what a controller asked for while the run went on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from it2nb.controllers.observation import Observation
from it2nb.core.faults import guard
from it2nb.core.rounds import is_number
from it2nb.core.wire import Action

if TYPE_CHECKING:
    from it2nb.core.knobs import Knob
    from it2nb.core.session import Session

#: What becomes of an answer to an observation that is no longer the newest.
#:
#: ``"apply"``: as it was asked. ``"expire"``: only until the controller's next turn would be.
#: ``"rebase"``: a change of a number that moved meanwhile becomes the same change of the number
#: that is there now; whatever else has moved is asked again.
Late = Literal["apply", "expire", "rebase"]
LATE: tuple[str, ...] = ("apply", "expire", "rebase")


def fitted(
    action: Action, seen: Observation, session: Session, late: Late, every: int
) -> dict[str, Any]:
    """Work out what to change on an action before it enters. Any thread.

    Returns
    -------
    dict
        Fields of the action: `observed` always, and what `late` asks for.
    """
    concerned = knobs_of(action)
    told: dict[str, Any] = {"observed": seen.observed(concerned)}
    expect = dict(action.expect or {})
    # Another round is another training: what was seen there says nothing here.
    if session.rounds is not None:
        expect.setdefault("round", seen.round)
    if late == "expire":
        limit = seen.step + every
        given = action.valid_until_step
        told["valid_until_step"] = limit if given is None else min(limit, given)
        if len(session.branches) > 1 or seen.branch_id:
            expect.setdefault("branch_id", seen.branch_id)
    elif late == "rebase":
        told |= _rebased(action, seen, session, told["observed"])
    if expect:
        told["expect"] = expect
    return told


def moved_since(asked: list[Any], seen: Observation, session: Session) -> dict[str, Any] | None:
    """Say what moved that an answer was about and that can't be rebased; None if nothing."""
    moved: dict[str, list[Any]] = {}
    for action in asked:
        if not isinstance(action, Action):
            continue
        for name in knobs_of(action):
            then, now = seen.values.get(name), _now(session, name)
            relative = action.type == "set_knob" and _change(action, seen, session) is not None
            if name in seen.values and then != now and not relative:
                moved[name] = [then, now]
    elsewhere = (seen.round, seen.branch_id) != (session.round, session.branch_id)
    if not moved and not elsewhere:
        return None
    return {
        "from_step": seen.step, "to_step": session.step_count, "knobs": moved,
        "round": session.round, "branch_id": session.branch_id,
    }  # fmt: skip


def knobs_of(action: Action) -> list[str]:
    """Name the knobs that an action sets."""
    if action.type in ("set_knob", "set_mode"):
        name = action.payload.get("name")
        return [name] if isinstance(name, str) else []
    if action.type == "batch" and isinstance(action.payload.get("set"), Mapping):
        return [str(name) for name in action.payload["set"]]
    return []


def seen_values(action: Action, seen: Observation) -> dict[str, Any]:
    """Return what was seen of the knobs that an action sets."""
    return {name: seen.values[name] for name in knobs_of(action) if name in seen.values}


def _rebased(
    action: Action, seen: Observation, session: Session, observed: dict[str, Any]
) -> dict[str, Any]:
    change = _change(action, seen, session)
    if change is None:
        return {}
    name, then, now = action.payload["name"], *_then_and_now(action, seen, session)
    if now == then:
        return {}
    kind, by = change
    payload = {key: each for key, each in action.payload.items() if key != "value"}
    how = f"x {by:.6g}" if kind == "factor" else f"{by:+.6g}"
    said = (
        f"rebased: {name} was {then!r} at step {seen.step} and is {now!r} at step "
        f"{session.step_count}, so {action.payload['value']!r} became {how}"
    )
    observed["rebased"] = {"asked": action.payload["value"], "was": then, "is": now}
    reason = f"{action.reason}; {said}" if action.reason else said
    return {"payload": {**payload, kind: by}, "reason": reason[:4000]}


def _change(
    action: Action, seen: Observation, session: Session
) -> tuple[Literal["factor", "add"], float] | None:
    """Read an asked value as a change of the value that was seen; None where it is none."""
    value: Any = action.payload.get("value")
    if action.type != "set_knob" or not is_number(value):
        return None
    then: Any
    then, now = _then_and_now(action, seen, session)
    if not is_number(then) or not is_number(now):
        return None
    knob: Knob | None = None
    with guard("knob of a late answer"):
        knob = session.knobs[action.payload["name"]]
    if knob is None:
        return None
    if then != 0 and (knob.scale == "log" or (then > 0 and value > 0 and knob.dtype == "float")):
        return "factor", float(value / then)
    return "add", value - then


def _then_and_now(action: Action, seen: Observation, session: Session) -> tuple[Any, Any]:
    name = action.payload.get("name")
    if not isinstance(name, str):
        return None, None
    return seen.values.get(name), _now(session, name)


def _now(session: Session, name: str) -> Any:
    value: Any = None
    with guard(f"get of {name}"):
        value = session.knobs[name].value
    return value
