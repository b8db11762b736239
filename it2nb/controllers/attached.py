"""Attached: a controller beside a run, as people handle it; and its part in rounds."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from it2nb.controllers.base import Adapted, ControllerError
from it2nb.controllers.fixed import is_fixed
from it2nb.controllers.late import LATE, Late
from it2nb.controllers.thinking import Thinking, contained
from it2nb.controllers.worker import within
from it2nb.core.depth import MAX_DEPTH, too_deep
from it2nb.core.faults import Fault, guard
from it2nb.core.redaction import redacted
from it2nb.core.rounds import Plan, RoundContext, is_number
from it2nb.core.strict import strict

if TYPE_CHECKING:
    from it2nb.core.session import Session

#: Seconds that a controller may take to say how it is, or to take its options.
QUICK_S = 5.0


class Attached(Thinking):
    """A controller beside one session. Every public method may be called on any thread.

    Attributes
    ----------
    controller : Adapted
    name : str
        The actor of its requests; one of a kind in the session.
    source : str
    every : int
        Optimizer steps between two turns.
    blocking : bool
        Whether the loop waits for its answers.
    late : {"apply", "expire", "rebase"}
    enabled : bool
    calls, errors, skipped, asked : int
        Answers so far, those of them that were errors, turns at which it was still thinking,
        and requests.
    error : str or None
        The last error.
    """

    def __init__(
        self,
        session: Session,
        controller: Adapted,
        *,
        name: str,
        every: int,
        blocking: bool,
        late: Late,
        timeout_s: float | None,
        target: Any = None,
    ) -> None:
        if late not in LATE:
            raise ControllerError(f"late={late!r} has to be one of {', '.join(LATE)}")
        if timeout_s is not None and not (is_number(timeout_s) and timeout_s > 0):
            raise ControllerError(f"timeout_s={timeout_s!r} has to be above 0 seconds, or None")
        self.session = session
        self.controller = controller
        #: What was given to `attach`.
        self.target = target
        #: Whether the training of a round attached it: then it lasts for that round.
        self.is_of_training = session.rounds is not None and session.on_training_thread
        self.name = name
        self.source = controller.source
        self.every = every
        self.blocking = blocking
        self.late: Late = late
        self.timeout_s = timeout_s
        self.enabled = True
        #: What it last said of itself, and whether it hung when it was asked to.
        self._told: dict[str, Any] | None = None
        self._is_mute = False
        super().__init__()
        self._remove: Callable[[], None] = lambda: None
        if controller.acts:
            self._remove = session.turns.add(every, self._turn, f"controller {name}")

    def __repr__(self) -> str:
        state = "enabled" if self.enabled else "paused"
        if self._closed:
            state = "ended" if self.session.is_ended else "detached"
        return f"<{self.source} {self.name}: {state}, {self.calls} calls, {self.asked} requests>"

    # --- for people --------------------------------------------------------------------------

    def pause(self, reason: str = "") -> None:
        """Ask it no more until `resume`; an answer that is under way is dropped."""
        self._enable(False, reason)

    def resume(self) -> None:
        """Ask it again."""
        self._in_a_row = 0
        self._enable(True, "")

    def detach(self) -> None:
        """Take it away. An answer that is under way is dropped. Idempotent."""
        if self._closed:
            return
        self.close()
        self.session.controllers = [each for each in self.session.controllers if each is not self]
        self.session.emit("agent_enabled", {**self._who(), "enabled": False, "reason": "detached"})
        self.show()

    def close(self) -> None:
        """Let go of turn and worker; a worker that hangs is not waited for."""
        if self._closed:
            return
        self._closed = True
        self._remove()
        # The last results: told where it thinks, and not waited for.
        if self.controller.is_quick:
            self._tell_results()
        elif self._untold:
            self._worker.post(self._tell_results, self.session.t)
        self._worker.close()

    def configure(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Change `every`, `late`, or what the controller itself lets be changed.

        Raises
        ------
        ControllerError
            For any other name; an address or a key of an endpoint is never among them.
        """
        own = {name: value for name, value in options.items() if name not in ("every", "late")}
        self.controller_takes(own)
        every, late = options.get("every", self.every), options.get("late", self.late)
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise ControllerError(f"every={every!r:.60} has to be a whole number of steps from 1")
        if late not in LATE:
            raise ControllerError(f"late={late!r:.60} has to be one of {', '.join(LATE)}")
        configure = self.controller.hook("configure")
        if own and configure is not None:
            within(QUICK_S, f"configure of {self.name}", lambda: configure(**own))
        self.late = late
        if every != self.every and self.controller.acts:
            self.every = every
            self.session.turns.retime(self._turn, every)
        done = {"every": self.every, "late": self.late, **redacted(own)}
        self.session.emit("agent_configured", {**self._who(), "options": done})
        self.show()
        return done

    def controller_takes(self, options: Mapping[str, Any]) -> None:
        """Check that the controller lets these options be changed by a request.

        Raises
        ------
        ControllerError
        """
        for name in options:
            if is_fixed(name):
                raise ControllerError(
                    f"{name!r:.60} can't be changed by a request: where a controller gets its "
                    f"answers from, and with which key, is set in Python alone"
                )
            if name not in self.controller.configurable:
                known = ", ".join(sorted({"every", "late", *self.controller.configurable}))
                raise ControllerError(f"{self.name} has no option {name!r:.60}; it has {known}")

    def describe(self) -> dict[str, Any]:
        """Say how it is doing, as plain JSON."""
        told: dict[str, Any] = {
            **self._who(), "enabled": self.enabled, "thinking": self.is_thinking,
            "every": self.every, "blocking": self.blocking, "late": self.late,
            "calls": self.calls, "errors": self.errors, "skipped": self.skipped,
            "requests": self.asked, "error": self.error,
            "plans": self.controller.plans, "reflects": self.controller.reflects,
        }  # fmt: skip
        with guard(f"description of {self.name}"), contained(self._worker):
            told["about"] = self._about()
        return told

    def knob_names(self) -> list[str]:
        """Name the knobs that it is to set, as far as it says so. Training thread."""
        named = self.controller.hook("knob_names")
        if named is None:
            return []
        return within(QUICK_S, f"knobs of {self.name}", lambda: [str(each) for each in named()])

    def _about(self) -> dict[str, Any]:
        """What it says of itself; what it said last where it might keep us waiting."""
        own = self._worker.is_here or self.controller.is_quick or self._closed
        if own or (self._told is None and not self._worker.is_busy):
            self._told = redacted(self.controller.describe())
        elif self.session.on_training_thread and not self._worker.is_busy and not self._is_mute:
            try:
                said = within(QUICK_S, f"describe of {self.name}", self.controller.describe)
                self._told = redacted(said)
            except TimeoutError:
                self._is_mute = True
        return self._told or {}

    # --- rounds ------------------------------------------------------------------------------

    @property
    def plans(self) -> bool:
        """Whether it plans rounds and is enabled."""
        return self.controller.plans and self.enabled and not self._closed

    @property
    def reflects(self) -> bool:
        """Whether it looks back at rounds and is enabled."""
        return self.controller.reflects and self.enabled and not self._closed

    def plan(self, context: RoundContext) -> Any:
        """Let it plan a round: what it returned, or None. Training thread."""
        return self._between_rounds(
            "agent_plan", "plan", context, lambda: self.controller.plan(context)
        )

    def reflect(self, context: RoundContext, record: Mapping[str, Any]) -> Any:
        """Let it look back at a round: what it returned, or None. Training thread."""
        return self._between_rounds(
            "agent_reflection",
            "reflection",
            context,
            lambda: self.controller.reflect(context, copy.deepcopy(dict(record))),
        )

    def _between_rounds(
        self, type: str, key: str, context: RoundContext, call: Callable[[], Any]
    ) -> Any:
        found: list[Any] = []
        fault = Fault(f"{key} of {self.name}")

        def work() -> None:
            with guard(fault.where, passes=()) as caught:
                found.append(call())
            if caught:
                fault.error, fault.traceback = caught.error, caught.traceback

        session = self.session
        began = session.clock.monotonic()
        if self._worker.is_busy and not self._wait_idle():
            fault.error = "it still thinks about an earlier question"
        elif not self._wait_for(self._worker.post(work, session.t)):
            fault.error = f"no answer in {self.timeout_s:g} s"
        row: dict[str, Any] = {**self._who(), "round": context.round}
        row["took_s"] = round(session.clock.monotonic() - began, 4)
        answer = found[0] if found else None
        with guard(fault.where) as caught, contained(self._worker):
            told = answer.describe() if isinstance(answer, Plan) else answer
            if too_deep(told):
                raise ControllerError(f"the {key} is nested more than {MAX_DEPTH} deep")
            row[key] = strict(redacted({key: told})[key])[0]
        if caught:
            # What can't be written can't be done either.
            answer, row[key] = None, None
            fault.error, fault.traceback = caught.error, caught.traceback
        if fault:
            row["error"] = fault.error
            self._failed(fault)
        self._write(type, row)
        return answer

    def _wait_idle(self) -> bool:
        """Wait for an answer that is under way; False when it does not come in time."""
        return self._wait_for(self._worker.post(lambda: None, self._worker.since))

    def _enable(self, enabled: bool, reason: str) -> None:
        if self.enabled == enabled or self._closed:
            return
        self.enabled = enabled
        row: dict[str, Any] = {**self._who(), "enabled": enabled}
        if reason:
            row["reason"] = reason
            self.session.alert(f"{self.name} was paused: {reason}")
        self.session.emit("agent_enabled", row)
        self.show()

    def show(self) -> None:
        """Put the controllers into the state, the first agent before all others. Any thread."""
        session = self.session
        told = [each.describe() for each in session.controllers]
        first = next((each for each in told if each["source"] != "rule"), None)
        first = first or (told[0] if told else None)
        session.agent = None if first is None else {**first, "controllers": told}
