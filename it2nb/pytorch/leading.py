"""Rank 0's control points: it decides, and every rank does the same at the same one."""

from __future__ import annotations

import os
import socket
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from it2nb.core.actions import ActionSpec, Owed
from it2nb.core.control import CONTINUE, StepControl, StopTraining
from it2nb.core.errors import It2nbError, Rejected
from it2nb.core.gate import Gate
from it2nb.core.queue import ActionHandle
from it2nb.core.ranks import Ranks
from it2nb.core.serving import Attempt, Debt, conclude, settle
from it2nb.pytorch import everywhere, rewind
from it2nb.pytorch.agreeing import (
    affording,
    agreed,
    can_afford,
    collected,
    disagreement,
    refused,
)
from it2nb.pytorch.everywhere import Try, carry_out_here, take_back, which_file
from it2nb.pytorch.line import Line, RankLost
from it2nb.pytorch.past import HUMAN

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: How long a request waits about, where `check_every` is not given, seconds.
MEET_EVERY_S = 0.05
#: While the run is paused the others hear of rank 0 that often, seconds.
PAUSE_NEWS_S = 1.0


class LeaderGate(Gate):
    """The gate of rank 0.

    At every so many control points, its ranks meet: rank 0 tells what was asked and admitted,
    all carry it out, and it counts when all of them did. Between two meetings nothing is sent.
    """

    def __init__(self, session: Session, ranks: Ranks, line: Line) -> None:
        super().__init__(session)
        self.ranks = ranks
        self.line = line
        #: Why the others can't be reached any more.
        self.lost: str | None = None
        self._joined = False
        self._left = 1
        self._distance = 1
        self._met_at = time.monotonic()
        self._done: list[tuple[Debt, Any]] = []
        self._wants_snapshot = False

    # --- control points --------------------------------------------------------------------

    def pass_through(self) -> StepControl:
        """See `Gate.pass_through`."""
        session = self._session
        if self.only is not None and not self.only:
            return CONTINUE
        if self.lost is not None:
            return super().pass_through()
        if session.stop_requested and (self._told_stop or not session.honours_control):
            self._settle_debts()
            raise StopTraining
        if self._left > 1:
            self._left -= 1
            session.results.clear()
            if session.step_count >= session.turns.due:
                session.turns.run_due(session)
            return CONTINUE
        try:
            return self._meet()
        except RankLost as error:
            self._lose(error)
            return self._control()

    def _meet(self) -> StepControl:
        session = self._session
        if not self._joined:
            self._join()
        self._settle_debts()
        if self._fresh:
            self._fresh = False
            self._write_configuration()
        session.results.clear()
        if session.step_count >= session.turns.due:
            session.turns.run_due(session)
        self._take_snapshot()
        self.drain()
        if session.status == "paused":
            self._tell_pause()
        while session.status == "paused" and not session.is_ended and self.lost is None:
            self.wake.wait(0.2 if self._held else PAUSE_NEWS_S)
            self.line.tell({"do": "wait"})
            self.line.check()
            self.drain()
        if self.lost is None:
            self._left = self._distance = self._choose_distance()
            self.line.tell({"do": "go", "next": self._left})
            # Every control point comes here: it counts towards the next meeting.
            session._attention = True
        return self._control()

    def _choose_distance(self) -> int:
        if self.ranks.check_every is not None:
            return self.ranks.check_every
        now = time.monotonic()
        a_point_s = (now - self._met_at) / self._distance
        self._met_at = now
        return min(1000, max(1, int(MEET_EVERY_S / max(a_point_s, 1e-6))))

    def _join(self) -> None:
        """Wait until every rank has come to its first control point."""
        session, line = self._session, self.line
        deadline = time.monotonic() + self.ranks.join_timeout_s
        told = time.monotonic() + 10.0
        while missing := [r for r in range(1, self.ranks.size) if not line.has_joined(r)]:
            now = time.monotonic()
            if now > deadline:
                raise It2nbError(
                    f"rank {missing[0]} has made no session within {self.ranks.join_timeout_s:g} "
                    f"s: make the TrainingSession on every rank, or with distributed=False to "
                    f"steer rank 0 alone"
                )
            if now > told:
                told = deadline
                sys.stderr.write(f"it2nb: waiting for the session of rank {missing[0]}\n")
            time.sleep(0.02)
        answers = line.collect(line.tell({"do": "join", "run_id": session.run_id}))
        self._joined = True
        members = [{"rank": 0, "host": socket.gethostname(), "pid": os.getpid()}]
        members += [{"rank": r, "host": a["host"], "pid": a["pid"]} for r, a in answers.items()]
        every = self.ranks.check_every
        session.emit(
            "ranks_joined",
            {
                "size": self.ranks.size,
                "check_every": every,
                "delay": "about 50 ms" if every is None else f"up to {every} control points",
                "members": members,
            },
        )
        for rank, answer in answers.items():
            odd = set(answer["knobs"]) ^ set(session.knobs)
            if odd:
                session.warn(
                    f"rank {rank} has other knobs than rank 0 ({', '.join(sorted(odd)[:5])}): "
                    f"requests for them will fail"
                )

    # --- requests --------------------------------------------------------------------------

    def serve_now(self, handle: ActionHandle) -> None:
        """See `Gate.serve_now`: only from inside of a handler, which every rank runs."""
        if self._session.serving is not None or self.lost is not None:
            super().serve_now(handle)
            return
        try:
            self._session.queue._waiting.remove(handle)
        except ValueError:
            return
        settle(
            self._session, handle, "rejected",
            "on several ranks the training thread can't wait for its own request, the others are "
            "not at a control point: ask without wait=True, it is served at the next one",
        )  # fmt: skip

    def carry_out(
        self, handle: ActionHandle, spec: ActionSpec, payload: dict[str, Any]
    ) -> Owed | None:
        """Let every rank carry out a request; see `Gate.carry_out`."""
        session = self._session
        alone = spec.name in everywhere.LOCAL or session.serving is not None
        if alone or (self.lost is not None and spec.name in ("stop", "resume")):
            return super().carry_out(handle, spec, payload)
        if self.lost is not None:
            settle(session, handle, "rejected", f"{self.lost}: only rank 0 could do it")
            return None
        if spec.name == "fork":
            settle(session, handle, "rejected", "fork is not possible on several ranks")
            return None
        try:
            tried = self._everywhere(handle, spec, payload)
        except RankLost as error:
            self._lose(error)
            tried = Attempt("failed", f"{error}; what it did there is not known")
        except TypeError as error:
            tried = Attempt("rejected", f"it can't be sent to the other ranks: {error}")
        if isinstance(tried, Owed):
            return tried
        conclude(session, handle, tried)
        return None

    def _everywhere(
        self, handle: ActionHandle, spec: ActionSpec, payload: dict[str, Any]
    ) -> Attempt | Owed:
        session, line = self._session, self.line
        keep = handle.source in HUMAN or can_afford(session)
        try:
            payload = which_file(session, spec, payload)
        except Rejected as error:
            return Attempt("rejected", str(error))
        action = handle.action.model_dump()
        if spec.name == "load_checkpoint":
            action["payload"] = payload
        message: dict[str, Any] = {
            "do": "request", "action": action, "source": handle.source, "actor": handle.actor,
            "keep": keep,
        }  # fmt: skip
        if spec.name == "goto":
            # Rank 0 alone saves: the files among which a step is looked for are its own.
            message["checkpoints"] = session.checkpoints
        saves = spec.name == "save_checkpoint"
        number = line.tell(message)
        answers = line.collect(number) if saves else {}
        with collected(session, answers), affording(session, keep):
            own = carry_out_here(session, 0, handle, spec, payload)
        try:
            answers = answers or line.collect(number)
        except RankLost:
            take_back(session, own)
            raise
        wrong = disagreement(own, answers)
        if wrong is None:
            line.tell({"do": "verdict", "ok": True})
            return agreed(own, self.ranks, self._distance)
        return self._take_back(own, answers, wrong)

    def _take_back(self, own: Try, answers: dict[int, dict[str, Any]], wrong: str) -> Attempt:
        notes = [f"rank 0: {each}" for each in take_back(self._session, own)]
        branches = len(self._session.branches)
        number = self.line.tell(
            {"do": "verdict", "ok": False, "reason": wrong, "branches": branches}
        )
        for rank, answer in self.line.collect(number).items():
            notes += [f"rank {rank}: {each}" for each in answer["notes"]]
        return refused(own, answers, wrong, notes)

    # --- what the loop has to do -----------------------------------------------------------

    def paid(self, kind: str, data: Any) -> None:
        """The loop of rank 0 did what it owed; whether all did is asked at the next meeting."""
        if self.lost is not None:
            super().paid(kind, data)
            return
        for debt in [each for each in self._debts if each.owed.kind == kind]:
            self._debts.remove(debt)
            self._done.append((debt, data))

    def _settle_debts(self) -> None:
        if not self._debts and not self._done:
            return
        answers = self.line.collect(self.line.tell({"do": "debts"}))
        for debt, data in self._done:
            owing = [r for r, each in answers.items() if debt.owed.kind in each["unpaid"]]
            if owing:
                reason = f"the loop of rank {owing[0]} did not do it"
                settle(self._session, debt.handle, "failed", reason)
            else:
                settle(self._session, debt.handle, "applied", data=data)
        self._done.clear()
        self._fail_debts()

    # --- snapshots, losses, the end --------------------------------------------------------

    def snapshot_due(self, session: Session) -> None:
        """The turn of the snapshots came: at the next meeting, on every rank."""
        self._wants_snapshot = True

    def _take_snapshot(self) -> None:
        if self._wants_snapshot:
            self._wants_snapshot = False
            known = rewind.of(self._session)
            if known is not None and known.past.is_affordable(in_passing=True):
                self.line.tell({"do": "snapshot"})
                known.past.take_in_passing(self._session)

    def _lose(self, error: RankLost) -> None:
        """Go on alone: the training ends by itself if it needs the others."""
        session = self._session
        self.lost = str(error)
        self.line.close()
        session.emit("ranks_lost", {"reason": self.lost, "size": self.ranks.size})
        session.alert(f"{self.lost}: the run goes on without requests")
        if session.status == "paused":
            session.change_status("running")
        for debt, data in self._done:
            settle(session, debt.handle, "applied", f"on rank 0; {self.lost}", data=data)
        self._done.clear()

    def close(self, reason: str) -> None:
        """See `Gate.close`; the others hear of it."""
        for debt, data in self._done:
            said = "the run ended before the other ranks were asked"
            settle(self._session, debt.handle, "applied", said, data=data)
        self._done.clear()
        super().close(reason)
        if self.lost is None:
            self.lost = reason
            with suppress(RankLost):  # then nobody is there to hear it
                self.line.tell({"do": "over", "reason": reason})
            self.line.close()
