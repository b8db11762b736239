"""State: what a new onlooker needs, at a cost that does not grow with the run."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from it2nb.core.control import ENDED
from it2nb.core.faults import guard
from it2nb.core.strict import kind_of
from it2nb.core.wire import Latest, State

if TYPE_CHECKING:
    from it2nb.core.session import Session


class Pace:
    """Steps a second over the last seconds, sampled by whoever asks. Any thread."""

    def __init__(self, window_s: float = 4.0) -> None:
        self._window_s = window_s
        self._seen: deque[tuple[float, int]] = deque(maxlen=64)
        self._lock = threading.Lock()

    def rate(self, t: float, step: int, status: str) -> float | None:
        """Note the step count at `t` seconds and return the rate; None before it can be told."""
        with self._lock:
            seen = self._seen
            if seen and step < seen[-1][1]:
                seen.clear()
            if not seen or t - seen[-1][0] >= 0.1:
                seen.append((t, step))
            while len(seen) > 2 and t - seen[1][0] > self._window_s:
                seen.popleft()
            first_t, first_step = seen[0]
            if status != "running" or t - first_t < 0.05:
                return None
            return (step - first_step) / (t - first_t)


def overview(session: Session) -> State:
    """Collect the state of a session. Any thread; foreign getters that raise are told in it."""
    metrics = {name: _latest(session, each) for name, each in session.live_line.latest().items()}
    policy: dict[str, object] = {}
    with guard("policy description"):
        policy = session.policy.describe()
    return State(
        run_id=session.run_id,
        title=session.title,
        status=session.status,
        step=session.step_count,
        total_steps=session.total_steps,
        steps_per_s=session.steps_per_s,
        elapsed_s=session.elapsed_s,
        branch_id=session.branch_id,
        round=session.round,
        max_rounds=session.max_rounds,
        branches=session.branches[-200:],
        seq=session.journal.next_seq,
        knobs=session.policy.shown(session.knobs.views()),
        actions=_actions(session),
        metrics=metrics,
        watch=list(session.watch),
        pending=len(session.queue),
        waiting=session.gate.held(),
        goal=None if session.goal is None else session.goal.describe(),
        context=session.context,
        agent=session.agent,
        checkpoints=session.checkpoints[-100:],
        model_tree=session.model_tree,
        stepper=session.stepper,
        error=session.error,
        error_line=session.error_line,
        warnings=list(session.warnings),
        policy=policy,
        journal_path=None if session.path is None else str(session.path),
        degraded=session.journal.degraded or None,
    )


def _latest(session: Session, newest: tuple[int, float] | None) -> Latest:
    if newest is None:  # recorded on a branch that was left, and on no other
        return Latest(step=session.step_count)
    step, value = newest
    kind = kind_of(value)
    return Latest(step=step, value=value if kind is None else None, nonfinite=kind)


def _actions(session: Session) -> list[object]:
    schemas = session.actions.schemas()
    if session.status not in ENDED:
        return list(schemas)
    reason = f"the run is over ({session.status})"
    return [each.model_copy(update={"enabled": False, "reason": reason}) for each in schemas]
