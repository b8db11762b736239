"""The control point itself: debts, turns, the queue, the pause."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from it2nb.core.actions import ActionSpec, Owed
from it2nb.core.control import CONTINUE, StepControl, StopTraining
from it2nb.core.queue import ActionHandle
from it2nb.core.redaction import redacted
from it2nb.core.serving import Debt, carry_out, serve, settle
from it2nb.core.wire import Waiting

if TYPE_CHECKING:
    from it2nb.core.session import Session


@dataclass(slots=True)
class Held:
    """A request that waits for a human, until a moment of the session's clock."""

    handle: ActionHandle
    reason: str
    until: float | None


class Gate:
    """What happens when the training thread stands between two optimizer steps."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.wake = threading.Event()
        self._waits = False
        self._asked = False
        self._debts: list[Debt] = []
        self._held: dict[str, Held] = {}
        self._approved: list[tuple[ActionHandle, bool, str]] = []
        #: While it is set only requests of these types are served, the others wait: the steps
        #: are of a trial (see `Turns.leave_alone`). Empty: this is no control point at all.
        self.only: frozenset[str] | None = None
        self._told_stop = False
        self._fresh = True

    def begin_round(self) -> None:
        """The next control point is the first of a round."""
        self._fresh = True
        self._told_stop = False

    @property
    def is_fresh(self) -> bool:
        """Whether the next control point is the first of a round."""
        return self._fresh

    @property
    def has_told_stop(self) -> bool:
        """Whether a control point has told the loop to leave."""
        return self._told_stop

    def pass_through(self) -> StepControl:
        """Stand at a control point until nothing more is asked. Training thread."""
        session = self._session
        if self.only is not None and not self.only:
            return CONTINUE
        if session.must_leave:
            self._fail_debts()
            if self._told_stop or not session.honours_control:
                raise StopTraining
        self._fail_debts()
        if self._fresh:
            self._fresh = False
            if session.rounds is not None:
                session.rounds.first_point()
            self._write_configuration()
        session.results.clear()
        if session.step_count >= session.turns.due:
            session.turns.run_due(session)
        if session.replaying is not None:
            session.replaying.serve_due()
        self.drain()
        if session.status == "paused":
            self._tell_pause()
        while session.status == "paused" and not session.is_ended:
            self._wait_for_requests()
            self.drain()
        return self._control()

    def _tell_pause(self) -> None:
        """A script that waits on its main thread says why: nobody may be looking at a panel."""
        session = self._session
        if threading.current_thread() is threading.main_thread():
            why = f" ({session.warnings[-1]})" if session.warnings else ""
            sys.stderr.write(
                f"it2nb: {session.run_id} is paused after step {session.step_count}{why}; it goes "
                f"on with resume or stop, from another thread, the panel or its server\n"
            )

    def drain(self) -> None:
        """Serve the requests that wait now; those that come meanwhile meet the next point."""
        session = self._session
        session._attention = self._asked = False
        aside: list[ActionHandle] = []
        try:
            if self._held or self._approved:
                self._settle_approvals()
            for _ in range(len(session.queue)):
                if session.stop_requested:
                    break
                handle = session.queue.pop()
                if handle is None:
                    break
                if self.only is not None and handle.action.type not in self.only:
                    aside.append(handle)
                else:
                    self._serve(handle)
        finally:
            # Also when an interrupt goes through: the others are served at the next point.
            session.queue.put_back(aside)
            if (
                len(session.queue)
                or session.stop_requested
                or session.status == "paused"
                or self._held
                or self._approved
            ):
                session._attention = True
        if session.stop_requested:
            self._refuse_rest()

    def _serve(self, handle: ActionHandle) -> None:
        try:
            owed = serve(self._session, handle)
        except BaseException as error:
            # An interrupt, or a handler that wants the process to exit: it goes on its way, but
            # the request gets its result first.
            if not handle.done():
                said = f"{type(error).__name__} came while it was carried out"
                settle(self._session, handle, "failed", said)
            raise
        finally:
            self._session.finish_put_off()
        if owed is not None:
            self._debts.append(Debt(handle, owed, self._session.step_count))
            self._session._attention = True

    def carry_out(
        self, handle: ActionHandle, spec: ActionSpec, payload: dict[str, Any]
    ) -> Owed | None:
        """Carry out a request that may be; on several ranks all of them do. Training thread."""
        return carry_out(self._session, handle, spec, payload)

    def serve_now(self, handle: ActionHandle) -> None:
        """Serve up to and including `handle`: the training thread waits for its own request."""
        if self._session.serving is not None:
            # Asked from inside a handler: its turn is now, before those that came earlier.
            if self._session.queue.known(handle.id) is handle:
                self.serve_first(handle)
            return
        self._session._pumps += 1
        while not handle.done():
            waiting = self._session.queue.pop()
            if waiting is None:
                break
            self._serve(waiting)

    def serve_first(self, handle: ActionHandle) -> None:
        """Serve a request that waits before all others. Training thread, control point."""
        try:
            self._session.queue._waiting.remove(handle)
        except ValueError:
            return
        self._serve(handle)

    def brief_wait(self, handle: ActionHandle, timeout: float) -> Any:
        """Return the result if it comes within `timeout` seconds, else the handle."""
        session = self._session
        if handle.done():
            return handle.result(0)
        if session.on_training_thread:
            if session.serving is not None:
                self.serve_now(handle)
        elif session.owner is not None and not session.queue.is_awaited():
            session.queue.wait_for(handle, timeout)
        return handle.result(0) if handle.done() else handle

    def paid(self, kind: str, data: Any) -> None:
        """The loop did what it owed: its requests are applied now. Training thread."""
        for debt in [each for each in self._debts if each.owed.kind == kind]:
            self._debts.remove(debt)
            settle(self._session, debt.handle, "applied", data=data)

    def _fail_debts(self) -> None:
        while self._debts:
            debt = self._debts.pop(0)
            settle(self._session, debt.handle, "failed",
                   f"the loop did not do it ({_REMEDY[debt.owed.kind]})")  # fmt: skip

    def _control(self) -> StepControl:
        session = self._session
        stop = session.must_leave
        if stop:
            self._told_stop = True
            if not session.honours_control:
                raise StopTraining
        if not stop and not session.results and not self._debts:
            return CONTINUE
        applied = tuple(each for each in session.results if each.ok)
        if not self._debts:
            return StepControl.plain(stop, applied)
        owed = [debt.owed for debt in self._debts]
        tags = [each.value for each in owed if each.kind == "save" and each.value]
        loads = [each.value for each in owed if each.kind == "load"]
        return StepControl(
            stop=stop,
            evaluate=any(each.kind == "evaluate" for each in owed),
            save=any(each.kind == "save" for each in owed),
            tag=tags[-1] if tags else None,
            load=loads[-1] if loads else None,
            reset=tuple(each.value or "" for each in owed if each.kind == "reset"),
            applied=applied,
        )

    def _wait_for_requests(self) -> None:
        self.wake.clear()
        # Said first and looked at afterwards; `rouse` does it the other way round, so that one of
        # the two finds the other, and the event is set only when somebody waits for it.
        self._waits = True
        if not self._asked:
            # Held requests expire by the clock, so look at them now and then.
            self.wake.wait(0.2 if self._held else 5.0)
        self._waits = False

    def rouse(self) -> None:
        """Let a paused loop look what it is asked for. Any thread."""
        self._asked = True
        if self._waits:
            self.wake.set()

    def _refuse_rest(self) -> None:
        session = self._session
        while (handle := session.queue.pop()) is not None:
            settle(session, handle, "cancelled", "the run was stopped before it was served")

    def _write_configuration(self) -> None:
        session = self._session
        knobs = [knob.model_dump(exclude={"v"}) for knob in session.knobs.views()]
        session.emit("knobs_registered", {"knobs": knobs})

    def close(self, reason: str) -> None:
        """The run is over: give what waits or is owed its result."""
        session = self._session
        while self._debts:
            debt = self._debts.pop(0)
            settle(session, debt.handle, "failed", "the loop ended before it did it")
        for held in list(self._held.values()):
            self._held.pop(held.handle.id, None)
            settle(session, held.handle, "expired", f"not approved before {reason}")
        self.rouse()

    # --- approvals -------------------------------------------------------------------------

    def hold(self, handle: ActionHandle, reason: str) -> None:
        """Let a request wait for a human. Training thread."""
        session = self._session
        limit = session.policy.approval_timeout_s
        until = None if limit is None else session.t + limit
        handle.waiting = True
        self._held[handle.id] = Held(handle, reason, until)
        session.emit(
            "approval_requested",
            {"id": handle.id, "type": handle.action.type,
             "payload": redacted(handle.action.payload), "reason": reason, "until_t": until},
            source=handle.source, action_id=handle.id,
        )  # fmt: skip

    def answer(self, action_id: str, approve: bool, by: str) -> bool:
        """Approve or refuse a held request; False when there is none. Any thread."""
        held = self._held.get(action_id)
        if held is None:
            return False
        self._approved.append((held.handle, approve, by))
        self._session.call_attention()
        return True

    def withdraw(self, handle: ActionHandle) -> bool:
        """Take back a request that waits for a human; False when it does not. Any thread."""
        # One atomic step: whoever takes it out of the dict owns its result.
        if self._held.pop(handle.id, None) is None:
            return False
        handle.waiting = False
        return True

    def held(self) -> list[Waiting]:
        """Describe the requests that wait for a human. Any thread."""
        return [
            Waiting(
                id=each.handle.id, type=each.handle.action.type,
                payload=redacted(each.handle.action.payload), source=each.handle.source,
                actor=each.handle.actor, reason=each.reason, until=each.until,
            )
            for each in list(self._held.values())
        ]  # fmt: skip

    def _settle_approvals(self) -> None:
        session = self._session
        for answer in list(self._approved):
            handle, approve, by = answer
            if approve and self.only is not None and handle.action.type not in self.only:
                continue  # the steps are of a trial: it meets the first one after that
            self._approved.remove(answer)
            if self._held.pop(handle.id, None) is None:
                continue
            handle.waiting = False
            session.emit("approval_given" if approve else "approval_refused",
                         {"id": handle.id, "by": by}, action_id=handle.id)  # fmt: skip
            if approve:
                session.policy.approve(handle, by)
                self._serve(handle)
            else:
                settle(session, handle, "rejected", f"refused by {by}")
        answered = {handle.id for handle, _, _ in self._approved}
        for held in list(self._held.values()):
            if held.handle.id in answered:
                continue
            if held.until is not None and session.t >= held.until:
                self._held.pop(held.handle.id, None)
                held.handle.waiting = False
                settle(session, held.handle, "expired", "nobody approved it in time")


_REMEDY = {
    "evaluate": "it has to look at control.evaluate and call session.report_eval(metrics)",
    "save": "it has to look at control.save and call session.checkpoint_saved(path)",
    "load": "it has to look at control.load and call session.checkpoint_loaded(path)",
    "reset": "it has to look at control.reset and call session.module_reset(name)",
}

__all__ = ["Gate", "Owed"]
