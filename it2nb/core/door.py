"""The one door through which every request comes: shape, row, queue, handle."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from pydantic import ValidationError

from it2nb.core.actions import explain
from it2nb.core.depth import MAX_DEPTH, too_deep
from it2nb.core.errors import QueueFull
from it2nb.core.faults import guard
from it2nb.core.policy import CONTROLLERS
from it2nb.core.queue import ActionHandle, RequestQueue
from it2nb.core.redaction import redacted
from it2nb.core.serving import KNOB_ACTIONS, describe_knob, settle
from it2nb.core.strict import plain, strict
from it2nb.core.wire import SOURCES, Action, ActionResult, new_id

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Largest payload, bytes of JSON; so that a request costs a bounded amount of memory.
MAX_PAYLOAD = 16_384
_TOO_DEEP = f"the request is nested too deep; at most {MAX_DEPTH} levels are taken"
#: A replay brings what these asked for, also on the training thread.
_BROUGHT = CONTROLLERS | {"replay"}
#: What may change after it was given.
_HELD = (dict, list, tuple, set, np.ndarray)


class Door:
    """Checks a request's shape, writes ``action_submitted``, queues it. Any thread."""

    def __init__(self, session: Session, size: int) -> None:
        self._session = session
        self._lock = threading.RLock()
        self._closed: str | None = None
        self.queue = RequestQueue(
            size, self._cancelled, lambda handle: session.gate.withdraw(handle)
        )

    def enter(
        self,
        asked: object,
        source: str,
        *,
        behalf: str | None = None,
        wrong: str | None = None,
        **told: Any,
    ) -> ActionHandle:
        """Take one request; always gives a handle, if only to a `rejected` result.

        Parameters
        ----------
        asked : Action or mapping
            Anything else is refused, in a row of its own.
        source : str
        behalf : str, optional
            A further source whose rules hold for it.
        wrong : str, optional
            Why it is rejected, where the entry knows that already.
        **told
            Fields of the action (`actor`, `observed`...) that the entry sets itself.
        """
        session = self._session
        if source not in SOURCES:
            raise ValueError(f"source={source!r} is none of {', '.join(SOURCES)}")
        action, misshapen = shape(asked)
        wrong = wrong or misshapen
        if told:
            action = action.model_copy(update=told)
        # A replay brings its requests on the training thread too; nobody else will again.
        here = session.on_training_thread and not session.turns.is_running
        own = here and source not in _BROUGHT
        if own and session.replaying is not None and wrong is None:
            action = session.replaying.own.recognise(action)
        known = self.queue.known(action.id)
        if known is not None:
            return known
        actor = action.actor or action.source
        handle = ActionHandle(action, source, actor, session.t, self.queue)
        handle.own = own
        handle.behalf = behalf
        if own and session.replaying is not None:
            session.replaying.own.came(handle)
        with self._lock:
            known = self.queue.known(action.id)
            if known is not None:
                return known
            if self._closed is not None:
                return self._refuse(handle, self._closed)
            try:
                self._admit(handle, wrong)
            except BaseException as error:
                # An interrupt in the midst of it: there is a row, so there has to be a result.
                if self.queue.known(handle.id) is None and not handle.done():
                    self.queue.remember(handle)
                    said = f"{type(error).__name__} came while it was submitted"
                    settle(session, handle, "failed", said)
                raise
        session.call_attention()
        return handle

    def _admit(self, handle: ActionHandle, wrong: str | None) -> None:
        """Write the row, then queue the request or reject it. Under the door's lock."""
        session = self._session
        self._write(handle)
        if wrong is None and session.stop_requested:
            wrong = "the run was stopped"
        if wrong is None:
            try:
                self.queue.put(handle)
            except QueueFull as err:
                wrong = str(err)
        if wrong is not None:
            self.queue.remember(handle)
            settle(session, handle, "rejected", wrong)

    def _write(self, handle: ActionHandle) -> None:
        action = handle.action
        payload: dict[str, Any] = {
            "id": action.id, "type": action.type, "payload": redacted(action.payload),
            "source": handle.source, "actor": handle.actor,
        }  # fmt: skip
        for name in ("observed", "valid_until_step", "expect", "reason"):
            value = getattr(action, name)
            if value is not None:
                payload[name] = value
        if handle.own:
            payload["own"] = True
        self._session.write_rows(
            [("action_submitted", payload)], source=handle.source, action_id=action.id
        )

    def _refuse(self, handle: ActionHandle, reason: str) -> ActionHandle:
        """After the end nothing can be journalled any more; the answer says so."""
        session = self._session
        self.queue.remember(handle)
        action = handle.action
        name, requested, before, after = (
            describe_knob(session, action.payload) if action.type in KNOB_ACTIONS else (None,) * 4
        )
        result = ActionResult(
            id=action.id, type=action.type, ok=False, status="rejected", error=reason,
            reason=reason, source=handle.source, actor=handle.actor, durable=False,
            step=session.step_count, branch_id=session.branch_id, round=session.round,
            name=name, requested=plain(requested), before=before, after=after,
        )  # fmt: skip
        self.queue.resolve(handle, result)
        return handle

    def _cancelled(self, handle: ActionHandle) -> None:
        settle(self._session, handle, "cancelled", "taken back before it was served")

    def _withdrawn(self, handle: ActionHandle) -> bool:
        return self._session.gate.withdraw(handle)

    def close(self, reason: str) -> None:
        """Take no more requests, and give every one that waits its result."""
        session = self._session
        with self._lock:
            self._closed = reason
        session.gate.close(reason)
        while (handle := self.queue.pop()) is not None:
            settle(session, handle, "cancelled", reason)


def shape(asked: object) -> tuple[Action, str | None]:
    """Make an Action of what came in; with the reason when it is none."""
    if isinstance(asked, Action):
        if any(map(too_deep, (asked.payload, asked.observed, asked.expect))):
            bare: dict[str, Any] = {"payload": {}, "observed": None, "expect": None}
            return asked.model_copy(update=bare), _TOO_DEEP
        action, wrong = asked, None
    elif isinstance(asked, Mapping) and too_deep(asked, MAX_DEPTH + 1):
        return _stand_in(asked), _TOO_DEEP
    elif isinstance(asked, Mapping):
        try:
            action, wrong = Action.model_validate(dict(asked)), None
        except ValidationError as err:
            action, wrong = _stand_in(asked), explain(err)
    else:
        return Action(type="invalid", payload={}), (
            f"a request is an Action or a mapping with 'type', not {type(asked).__name__}"
        )
    return _bounded(action, wrong)


def _stand_in(asked: Mapping[Any, Any]) -> Action:
    """Something to hang the rejection on, keeping type and id where they can be kept."""
    kind, given = asked.get("type"), asked.get("id")
    kind = strict(kind)[0] if isinstance(kind, str) else None
    if isinstance(given, str) and strict(given)[0] != given:
        given = None  # no Unicode text
    return Action(
        type=kind[:200] if isinstance(kind, str) and kind else "invalid",
        id=given if isinstance(given, str) and 0 < len(given) <= 128 else new_id(),
        payload={},
    )


def _bounded(action: Action, wrong: str | None) -> tuple[Action, str | None]:
    size = 0
    try:
        # The usual payload is plain JSON and small: one fast pass.
        size = len(orjson.dumps(action.payload))
    except TypeError:
        with guard("size of a payload"):
            size = len(orjson.dumps(strict(action.payload)[0]))
    if size > MAX_PAYLOAD:
        bare = action.model_copy(update={"payload": {}})
        return bare, f"the payload has {size} bytes; at most {MAX_PAYLOAD} are taken"
    if any(isinstance(each, _HELD) for each in action.payload.values()):
        # What is carried out later is what was asked now, whatever the asker does to its lists.
        action = action.model_copy(update={"payload": _copied(action.payload)})
    return action, wrong


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    if isinstance(value, (set, np.ndarray)):
        return value.copy()
    return value
