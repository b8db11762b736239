"""The control points of all ranks but the first: they do what rank 0 tells."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from it2nb.core.actions import Owed
from it2nb.core.control import CONTINUE, StepControl, StopTraining
from it2nb.core.errors import Rejected, UnknownAction
from it2nb.core.faults import guard
from it2nb.core.gate import Gate
from it2nb.core.queue import ActionHandle
from it2nb.core.ranks import Ranks
from it2nb.core.serving import Attempt, Debt, conclude, settle
from it2nb.core.wire import Action, Branch
from it2nb.pytorch import rewind
from it2nb.pytorch.agreeing import affording
from it2nb.pytorch.everywhere import Try, carry_out_here, packed_streams, take_back
from it2nb.pytorch.knob_state import read_knobs
from it2nb.pytorch.line import Line, RankLost

if TYPE_CHECKING:
    from it2nb.core.session import Session


class FollowerGate(Gate):
    """The gate of a rank that rank 0 leads."""

    def __init__(self, session: Session, ranks: Ranks, line: Line) -> None:
        super().__init__(session)
        self.ranks = ranks
        self.line = line
        self.lost: str | None = None
        self._left = 1

    def pass_through(self) -> StepControl:
        """See `Gate.pass_through`; at a meeting it stays until rank 0 goes on."""
        session = self._session
        if self.only is not None and not self.only:
            return CONTINUE
        if session.stop_requested and (self._told_stop or not session.honours_control):
            raise StopTraining
        session.results.clear()
        if session.step_count >= session.turns.due:
            session.turns.run_due(session)
        if self.lost is not None:
            return self._control()
        if self._left > 1:
            self._left -= 1
            return CONTINUE
        try:
            self._follow()
        except RankLost as error:
            self._part(str(error))
        session._attention = True
        return self._control()

    def drain(self) -> None:
        """Nobody asks here."""

    def _follow(self) -> None:
        """Do what rank 0 tells until it goes on."""
        while self.lost is None:
            number, message = self.line.read()
            what = message["do"]
            if what == "go":
                self._left = int(message["next"])
                return
            if what == "request":
                self._request(number, message)
            elif what == "snapshot":
                self._snapshot()
            elif what == "debts":
                unpaid = sorted({debt.owed.kind for debt in self._debts})
                self._fail_debts()
                self.line.answer(number, {"unpaid": unpaid})
            elif what == "join":
                self._join(number, message["run_id"])
            elif what == "over":
                self._part(f"rank 0 is over: {message['reason']}")

    def _join(self, number: int, run_id: str) -> None:
        self._session.led_by = run_id
        self.line.answer(
            number,
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "knobs": list(self._session.knobs),
            },
        )
        self._fresh = False
        self._write_configuration()

    def _snapshot(self) -> None:
        known = rewind.of(self._session)
        if known is not None:
            with affording(self._session, True), guard("snapshot", self._session.report):
                known.past.take_in_passing(self._session)

    # --- requests --------------------------------------------------------------------------

    def _request(self, number: int, message: dict[str, Any]) -> None:
        session = self._session
        action = Action.model_validate(message["action"])
        handle = ActionHandle(action, message["source"], message["actor"], session.t, session.queue)
        handle.served = session.place()
        handle._seen = True  # whoever asked sits at rank 0, and is told there
        session.queue.remember(handle)
        session.door._write(handle)
        if "checkpoints" in message:
            session.checkpoints[:] = message["checkpoints"]
        with affording(session, bool(message["keep"])), self._open_door():
            done = self._try(handle)
        answer = done.told()
        if action.type == "save_checkpoint" and done.did:
            answer["streams"] = packed_streams()
        self.line.answer(number, answer)
        self._verdict(done)

    def _try(self, handle: ActionHandle) -> Try:
        session, action = self._session, handle.action
        here = (session.step_count, session.branch_id)
        try:
            spec = session.actions[action.type]
            payload = spec.validate(action.payload)
            reason = spec.reason_unavailable()
        except (UnknownAction, Rejected) as error:
            reason = str(error)
        if reason is not None:
            refusal = Attempt("rejected", reason)
            return Try(handle, action.type, refusal, read_knobs(session), here, here)
        if action.type == "save_checkpoint" and session.actions[action.type].args is not None:
            saving = rewind.of(session)
            if saving is not None and saving.saving.is_ours:
                told = Attempt("applied", data={"note": "rank 0 saves"})
                return Try(handle, action.type, told, read_knobs(session), here, here)
        return carry_out_here(session, self.ranks.rank, handle, spec, payload)

    def _verdict(self, done: Try) -> None:
        session, tried = self._session, done.tried
        while True:
            number, message = self.line.read()
            if message["do"] != "wait":
                break
        if message["do"] == "over":
            self._part(f"rank 0 is over: {message['reason']}")
            settle(session, done.handle, "failed", "rank 0 ended before it was decided")
        elif not message["ok"]:
            self.line.answer(number, {"notes": take_back(session, done)})
            self._count_branches(int(message["branches"]))
            settle(session, done.handle, "failed", message["reason"])
        elif isinstance(tried, Owed):
            self._debts.append(Debt(done.handle, tried, session.step_count))
        else:
            conclude(session, done.handle, tried)
        session.finish_put_off()

    def _count_branches(self, count: int) -> None:
        """Branches are numbered alike on all ranks, also after one that some did not make."""
        branches = self._session._branches
        del branches[count:]
        while len(branches) < count:
            branches.append(Branch(id=len(branches), reason="of rank 0, taken back"))

    @contextmanager
    def _open_door(self) -> Iterator[None]:
        """What a handler asks for is served here: it asks on every rank."""
        door = self._session.door
        closed, door._closed = door._closed, None
        try:
            yield
        finally:
            door._closed = closed

    def _part(self, reason: str) -> None:
        """Rank 0 is gone: the training goes on, and ends by itself if it needs it."""
        session = self._session
        self.lost = reason
        self.line.close()
        session.emit("ranks_lost", {"reason": reason, "size": self.ranks.size})
        session.alert(reason)
        if session.status == "paused":
            session.change_status("running")

    def close(self, reason: str) -> None:
        """See `Gate.close`."""
        super().close(reason)
        self.lost = self.lost or reason
        self.line.close()
