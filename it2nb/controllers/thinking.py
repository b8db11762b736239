"""Thinking: how a controller is asked at its turns, and how its answers enter the run."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Any

from it2nb.controllers.base import Adapted
from it2nb.controllers.late import Late, fitted, moved_since, seen_values
from it2nb.controllers.observation import Observation, observe
from it2nb.controllers.worker import Worker
from it2nb.core.control import StopTraining
from it2nb.core.door import shape
from it2nb.core.faults import Fault, guard, is_pressed
from it2nb.core.policy import HUMANS
from it2nb.core.redaction import redacted
from it2nb.core.wire import Action, ActionResult

if TYPE_CHECKING:
    from it2nb.core.queue import ActionHandle
    from it2nb.core.session import Session

#: Requests that one answer may hold; what is more is left out, and a row says so.
MAX_REQUESTS = 300
#: Errors in a row after which a controller is paused.
MAX_ERRORS = 10
#: Results that an observation holds.
RESULTS = 20
#: Times that a controller is asked again because the run moved on.
_AGAIN = 2
#: Seconds after which a row says that a controller has not answered yet.
PATIENCE_S = 60.0

#: None of them may leave a controller: it would end the training, or its worker.
_NOT_THEIRS = (CancelledError, GeneratorExit, StopTraining, SystemExit)


class Thinking:
    """The part of an attached controller that asks it; `Attached` fills in the rest."""

    session: Session
    controller: Adapted
    name: str
    source: str
    every: int
    blocking: bool
    late: Late
    timeout_s: float | None
    enabled: bool

    def __init__(self) -> None:
        self.calls = self.errors = self.skipped = self.asked = 0
        self.error: str | None = None
        self._in_a_row = 0
        self._told_slow = False
        self._closed = False
        self._results: deque[ActionResult] = deque(maxlen=RESULTS)
        self._untold: deque[ActionResult] = deque(maxlen=10 * MAX_REQUESTS)
        self._worker = Worker(f"it2nb {self.name}", self._died)

    @property
    def is_thinking(self) -> bool:
        """Whether an answer is awaited. Any thread."""
        return self._worker.is_busy

    def pause(self, reason: str = "") -> None:
        """Ask it no more."""
        raise NotImplementedError

    def show(self) -> None:
        """Put how it is doing into the state of the session."""
        raise NotImplementedError

    # --- turns, training thread --------------------------------------------------------------

    def _turn(self, session: Session) -> None:
        if not self.enabled or self._closed or session.replaying is not None:
            return
        if session.rounds is not None and session.rounds.is_baseline and self.source != "rule":
            return
        if self._worker.is_busy:
            self.skipped += 1
            self._tell_slow()
            return
        if self.controller.is_quick:
            self._tell_results()
            self._think(self._look(keep=False))
            return
        seen = self._look()
        answered = self._worker.post(lambda: self._think(seen), session.t)
        self._told_slow = False
        if self.blocking and not self._wait_for(answered):
            self._tell_slow()

    def _look(self, *, keep: bool = True, moved: Mapping[str, Any] | None = None) -> Observation:
        return observe(self.session, self.source, self._results, keep=keep, moved=moved)

    def _wait_for(self, answered: Event) -> bool:
        """Hold the loop until the answer is there, a stop is asked for, or time is up."""
        queue = self.session.queue
        before, queue.is_awaited = queue.is_awaited, lambda: self._worker.is_here
        try:
            return self._waited_for(answered)
        finally:
            queue.is_awaited = before

    def _waited_for(self, answered: Event) -> bool:
        session, began = self.session, self.session.clock.monotonic()
        while not answered.wait(0.02):
            if self._closed or not self.enabled or session.queue.waits_for("stop"):
                return True
            if any(map(self._is_pausing, session.queue.waiting())):
                return True  # it is served at the control point that waits here
            self._tell_slow("the run waits for it until it is paused or stopped")
            waited = session.clock.monotonic() - began
            if self.timeout_s is not None and waited >= self.timeout_s:
                return False
        return True

    def _is_pausing(self, handle: ActionHandle) -> bool:
        """Whether a person's request is to pause it."""
        asked = handle.action
        return (
            asked.type == "set_agent"
            and asked.payload.get("enabled") is False
            and asked.payload.get("name") in (None, self.name)
            and handle.source in HUMANS
        )

    def _tell_slow(self, so: str = "the training goes on without it") -> None:
        """Write once that an answer takes long."""
        waited = self.session.t - self._worker.since
        limit = PATIENCE_S if self.timeout_s is None else self.timeout_s
        if self._told_slow or waited < limit:
            return
        self._told_slow = True
        text = f"{self.name} has not answered for {waited:.0f} s; {so}"
        self.session.alert(text)
        self.session.emit("note", {"text": text, "level": "warning"}, source=self.source)

    # --- one question, on the worker (rules: on the training thread) -------------------------

    def _think(self, seen: Observation) -> None:
        session = self.session
        self._tell_results()
        began = session.clock.monotonic()
        asked: list[Any] = []
        more = False
        for again in range(_AGAIN + 1):
            fault = Fault(f"controller {self.name}")
            asked, more, fault = self._ask(seen)
            moved = None if self.late != "rebase" or fault else moved_since(asked, seen, session)
            if moved is None or again == _AGAIN or not self._is_live():
                break
            seen = self._look(moved=moved)
        self.calls += 1
        if fault:
            self._failed(fault)
        else:
            self._in_a_row = 0
        handles = self._enter(asked, seen) if self._is_live() else []
        if more:
            text = (
                f"{self.name} asked for more than {MAX_REQUESTS} things at once: "
                f"the rest was left out"
            )
            session.emit("note", {"text": text, "level": "warning"}, source=self.source)
        # A function that is looked at every step would fill the journal with its silence.
        if self.source != "rule":
            took = session.clock.monotonic() - began
            self._write_call(seen, took, len(handles), fault, more)

    def _ask(self, seen: Observation) -> tuple[list[Any], bool, Fault]:
        """Ask once; what it gave before it raised counts."""
        asked: list[Any] = []
        more = False
        with guard(f"controller {self.name}") as fault, contained(self._worker):
            for each in listed(self.controller.ask(seen, self.session)):
                if len(asked) == MAX_REQUESTS:
                    more = True
                    break
                asked.append(_shaped(each))
        return asked, more, fault

    def _enter(self, asked: list[Any], seen: Observation) -> list[ActionHandle]:
        session = self.session
        handles = []
        for each in asked:
            action, wrong = shape(each)
            told: dict[str, Any] = {"actor": self.name}
            if wrong is None:
                with guard(f"answer of {self.name}", session.report):
                    told |= fitted(action, seen, session, self.late, self.every)
                if self.late == "rebase" and moved_since([action], seen, session):
                    # It was asked again as often as is sensible: now only what it saw counts.
                    told["expect"] = {**told.get("expect", {}), **seen_values(action, seen)}
            else:
                told["observed"] = seen.observed()
            handle = session.door.enter(action if wrong is None else each, self.source, **told)
            self.asked += 1
            handle.when_done(self._done)
            handles.append(handle)
        return handles

    def _done(self, handle: ActionHandle) -> None:
        result = handle.result(0)
        self._results.append(result)
        self._untold.append(result)

    def _tell_results(self) -> None:
        while self._untold:
            result = self._untold.popleft()
            with guard(f"tell of {self.name}", self.session.report), contained(self._worker):
                self.controller.tell(result)

    def _failed(self, fault: Fault) -> None:
        self.errors += 1
        self._in_a_row += 1
        self.error = fault.error
        self.session.report(fault)
        if self._in_a_row >= MAX_ERRORS:
            self.pause(f"{self._in_a_row} errors in a row, the last one {fault.error}")

    def _died(self, fault: Fault) -> None:
        """Something beside the answer itself raised on the worker: an error as any other."""
        self.calls += 1
        self._failed(fault)
        if self.source != "rule":
            row = {**self._who(), "requests": 0, "error": fault.error}
            self.session.emit("agent_call", row, source=self.source)
        self.show()

    def _write_call(
        self, seen: Observation, took_s: float, requests: int, fault: Fault, more: bool
    ) -> None:
        row: dict[str, Any] = {
            **self._who(), "round": seen.round, "observed_step": seen.step,
            "took_s": round(took_s, 4), "requests": requests,
        }  # fmt: skip
        if fault:
            row["error"] = fault.error
        if more:
            row["left_out"] = True
        self._write("agent_call", row)

    def _write(self, type: str, row: dict[str, Any]) -> None:
        """Write a row with what the controller says of its call, and book what it cost."""
        session = self.session
        # One that hangs may hold a lock that it needs to tell.
        hangs = self._worker.is_busy and not self._worker.is_here and not self.controller.is_quick
        with guard(f"call_row of {self.name}", session.report), contained(self._worker):
            said = {} if hangs else redacted(self.controller.call_row())
            row = {**said, **row}
            tokens, cost = said.get("tokens"), said.get("cost")
            if tokens is not None or cost is not None:
                session.policy.spend(
                    self.source,
                    tokens=0 if tokens is None else tokens,
                    cost=0.0 if cost is None else cost,
                )
        session.emit(type, row, source=self.source)
        self.show()

    def _is_live(self) -> bool:
        return self.enabled and not self._closed and not self.session.is_ended

    def _who(self) -> dict[str, Any]:
        return {"name": self.name, "source": self.source}


def listed(asked: Any) -> Any:
    """Turn an answer into something to iterate over."""
    if asked is None:
        return ()
    # An Action is a pydantic model, which iterates over its fields.
    if isinstance(asked, (Action, Mapping, str, bytes)) or not hasattr(asked, "__iter__"):
        return (asked,)
    return asked


@contextmanager
def contained(worker: Worker) -> Iterator[None]:
    """Turn what would end a thread into a plain error. Ctrl-C on the training thread passes."""
    try:
        yield
    except (*_NOT_THEIRS, KeyboardInterrupt) as error:
        if isinstance(error, KeyboardInterrupt) and not worker.is_here and is_pressed(error):
            raise
        raise RuntimeError(f"{type(error).__name__} {error}".strip()) from error


def _shaped(each: Any) -> Any:
    """Read an answer where it can be read, so that its id stays the same; else keep it."""
    action, wrong = shape(each)
    return action if wrong is None else each
