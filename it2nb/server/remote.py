"""A run in another process, with a session's verbs."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from it2nb.core.control import ENDED, RunStatus
from it2nb.core.door import shape
from it2nb.core.errors import Refused, ServerError, Unreachable
from it2nb.core.faults import Fault, guard
from it2nb.core.metrics import MetricStore
from it2nb.core.strict import restore
from it2nb.core.wire import Action, ActionResult, Branch, State
from it2nb.server import calls
from it2nb.server.client import Client
from it2nb.server.cursor import Cursor
from it2nb.server.follow import follow
from it2nb.server.mirror import Mirror
from it2nb.server.remote_handle import RemoteHandle
from it2nb.server.remote_knobs import RemoteKnobs

if TYPE_CHECKING:
    import plotly.graph_objects as go

#: A state that is younger is shown again, seconds.
YOUNG_S = 0.15
#: Seconds until a state is asked for again that did not come, at least.
STATE_AGAIN_S = 1.0


class RemoteSession:
    """Follows a run over HTTP and steers it, with the names of `Session`. Any thread.

    Parameters
    ----------
    url, token, timeout, actor
        As for `Client`.

    Raises
    ------
    Unreachable, Refused
        If the server does not answer, or does not let us.

    Notes
    -----
    A thread keeps `journal` and `metrics` up to date, and takes a broken connection up again.
    What the run's journal says of a request from here has the source ``http``; the local source
    (``panel``, ``python``) becomes its actor where no other is given.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        actor: str | None = None,
    ) -> None:
        self.client = Client(url, token, timeout=timeout, actor=actor, retry_s=float("inf"))
        self._lock = threading.Lock()
        self._pending: dict[str, RemoteHandle] = {}
        self._lost_since: float | None = None
        #: Whether the events come in: then a state that did not come is asked for again.
        self._is_fed = False
        self._again_at = 0.0
        #: Why the run can't be followed any more, if so.
        self.problem: str | None = None
        try:
            self._state = State.model_validate(self.client.state())
        except BaseException:
            self.client.close()
            raise
        self._state_at = time.monotonic()
        self.run_id = self._state.run_id
        self.title = self._state.title
        self.journal = Mirror(self.run_id)
        self.metrics: MetricStore = self.journal.metrics
        self.knobs = RemoteKnobs(self)
        self._status: RunStatus = self._state.status
        #: Up to which event that is known: a state may be newer than the rows, or older.
        self._status_seq = self._state.seq
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._follow, name=f"it2nb attached {self.run_id}", daemon=True
        )
        self._thread.start()
        self.journal.wait_for(self._state.seq, timeout)

    # -------------------------------------------------------------------------------- looking

    @property
    def status(self) -> RunStatus:
        """The run's status, as far as is known here."""
        return self._status

    @property
    def is_ended(self) -> bool:
        """Whether the run is over."""
        return self._status in ENDED

    @property
    def step_count(self) -> int:
        """Optimizer updates completed on the present branch."""
        return self.state().step

    @property
    def branch_id(self) -> int:
        """The present branch."""
        return self.state().branch_id

    @property
    def branches(self) -> list[Branch]:
        """All branches, oldest first."""
        return self.state().branches

    @property
    def error(self) -> str | None:
        """What ended the run, when it failed."""
        return self.state().error

    def state(self) -> State:
        """Where the run is; without a connection what was known last, with a warning."""
        with self._lock:
            began = time.monotonic()
            may_try = self._lost_since is None or (self._is_fed and began >= self._again_at)
            if began - self._state_at >= YOUNG_S and may_try and not self._over.is_set():
                with guard("state of a run elsewhere") as fault:
                    self._renew()
                    self._lost_since = None
                if fault:
                    now = time.monotonic()
                    # Whoever asks is not held up for more than half of the time.
                    self._again_at = now + max(STATE_AGAIN_S, now - began)
                    self._lost_since = self._lost_since or now
            return self._shown()

    def _renew(self) -> None:
        began = time.monotonic()
        self._state = State.model_validate(self.client._run(calls.state(patient=False)))
        self._state_at = began
        self._know(self._state.status, self._state.seq)

    def _know(self, status: RunStatus, seq: int) -> None:
        if seq >= self._status_seq:
            self._status, self._status_seq = status, seq

    def _shown(self) -> State:
        said = self.problem
        if said is None and self._lost_since is not None and not self._over.is_set():
            lost_s = time.monotonic() - self._lost_since
            said = f"no connection to {self.client.address!r} for {lost_s:.0f} s; trying again"
        update: dict[str, Any] = {} if said is None else {
            "warnings": [*self._state.warnings, said]
        }  # fmt: skip
        if self._state.status != self._status:
            update["status"] = self._status
        return self._state.model_copy(update=update) if update else self._state

    def subscribe(self, **options: Any) -> Any:
        """Follow the journal; see `Journal.subscribe`."""
        return self.journal.subscribe(**options)

    def plot(self, metrics: Any = None) -> go.Figure:
        """Draw the metrics with a marker at each intervention."""
        from it2nb.figures import run_figure

        drifts = self.journal.tail(len(self.journal), ("knob_drifted",))
        forks = self.journal.tail(len(self.journal), ("branch_forked",))
        return run_figure(self.metrics.frame(), self.journal.requests(), metrics, drifts, forks)

    def __repr__(self) -> str:
        said = f"<run {self.run_id} at {self.client.address!r}, {self._status}"
        return said + (f": {self.problem}>" if self.problem else ">")

    # A copied namespace holds the same connection.
    def __copy__(self) -> RemoteSession:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> RemoteSession:
        return self

    # --------------------------------------------------------------------------------- asking

    def submit(
        self,
        action: Action | Mapping[str, Any],
        *,
        source: str = "python",
        wait: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Ask the run to do something; see `Session.submit`.

        A request that could not be sent is `failed`; no row of the journal tells of it.
        """
        made, wrong = shape(action)
        actor = made.actor or made.source or self.client.actor or source
        made = made.model_copy(update={"actor": actor})
        handle = RemoteHandle(self, made)
        if wrong is not None:
            handle.settle(_unsent(made, "rejected", wrong, source))
        else:
            self._send(handle, source, 0.0)
        return handle.result(timeout) if wait else handle

    def _send(self, handle: RemoteHandle, source: str, wait_s: float) -> None:
        self._pending[handle.id] = handle
        if self._lost_since is not None and not self._over.is_set():
            said = f"it was not sent: no connection to {self.client.address!r}"
            self._settle(_unsent(handle.action, "failed", said, source))
            return
        with guard("request to a run elsewhere") as fault:
            told = self.client._run(calls.submit(handle.action, wait_s))
            result = calls.result_of(told)
            if result is not None:
                self._settle(result)
        if fault:
            said = f"it was not taken: {fault.error}"
            self._settle(_unsent(handle.action, "failed", said, source))

    def _settle(self, result: ActionResult) -> None:
        self._state_at = 0.0  # what was known before it is old
        handle = self._pending.pop(result.id, None)
        if handle is not None:
            handle.settle(result)

    def do(
        self, action: str, *, reason: str | None = None, timeout: float = 5.0,
        source: str = "python", **args: Any,
    ) -> Any:  # fmt: skip
        """Ask for an action by name, and wait a moment for its result; see `Session.do`."""
        actor = self.client.actor or source
        handle = RemoteHandle(self, Action(type=action, payload=args, actor=actor, reason=reason))
        self._send(handle, source, timeout)
        return handle.result(0) if handle.done() else handle

    def set(
        self, name: str, value: Any, *, mode: str | None = None, reason: str | None = None,
        timeout: float = 5.0, source: str = "python",
    ) -> Any:  # fmt: skip
        """Ask for a knob's value; see `Session.set`."""
        more = {} if mode is None else {"mode": mode}
        return self.do(
            "set_knob", reason=reason, timeout=timeout, source=source, name=name, value=value,
            **more,
        )  # fmt: skip

    def batch(
        self, values: Mapping[str, Any], *, reason: str | None = None, timeout: float = 5.0
    ) -> Any:
        """Ask for several knobs at one control point, all or none."""
        return self.do("batch", reason=reason, timeout=timeout, set=dict(values))

    def pause(self, *, reason: str | None = None) -> Any:
        """Hold the loop between two steps."""
        return self.do("pause", reason=reason)

    def resume(self, *, reason: str | None = None) -> Any:
        """Go on after a pause."""
        return self.do("resume", reason=reason)

    def stop(self, *, reason: str | None = None) -> Any:
        """End the run after the step under way; closing this session does not."""
        return self.do("stop", reason=reason)

    def result(self, action_id: str) -> ActionResult | None:
        """Return the result of a request by its id; None while there is none."""
        return self.client.result(action_id)

    def approve(self, action_id: str, by: str = "human") -> bool:
        """Let a request pass that waits for a person; False when none waits."""
        return self.client.approve(action_id, by)

    def refuse(self, action_id: str, by: str = "human") -> bool:
        """Reject a request that waits for a person; False when none waits."""
        return self.client.refuse(action_id, by)

    def wait(self, timeout: float | None = None) -> RunStatus:
        """Wait for the end of the run; returns its status then.

        Raises
        ------
        TimeoutError
            If it has not ended within `timeout` seconds.
        Unreachable
            If it can't be followed any more.
        """
        deadline = calls.Deadline(timeout)
        while not self._over.wait(min(deadline.left, 0.5)):
            if self.problem is not None:
                raise Unreachable(self.problem)
            if deadline.left <= 0:
                raise TimeoutError(
                    f"run {self.run_id} is still {self._status} after {timeout} s; it goes on"
                )
        return self._status

    def __await__(self) -> Generator[Any, None, RunStatus]:
        """Wait for the end in an event loop."""
        return (yield from asyncio.to_thread(self.wait).__await__())

    def close(self) -> None:
        """Let go of the run, which goes on. Idempotent."""
        self.client.close()
        self._thread.join(2.0)

    def __enter__(self) -> RemoteSession:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # --------------------------------------------------------------------------- the follower

    def _follow(self) -> None:
        cursor = Cursor(packed=True)
        cursor.run = self.run_id
        with guard("following a run") as fault:
            try:
                for rows in follow(self.client, cursor, None, self._lose):
                    self._lost_since, self._is_fed = None, True
                    if rows:
                        self._take(rows)
            except (Refused, ServerError) as err:
                self.problem = str(err)
        if fault:
            self.problem = fault.error
        if self.problem is None and not self.client.closed.is_set():
            self._finish()

    def _take(self, rows: list[dict[str, Any]]) -> None:
        self.journal.take(rows)
        for row in rows:
            match row["type"]:
                case "status_changed":
                    self._know(row["payload"]["status"], int(row["seq"]) + 1)
                    self._state_at = 0.0
                case "action_result":
                    with guard("result of a request"):
                        self._settle(_result_in(row))

    def _finish(self) -> None:
        """The run is over, and all of it is here."""
        with self._lock, guard("last state of a run elsewhere"):
            self._renew()
        self._over.set()
        self.journal.end()
        for handle in list(self._pending.values()):
            self._settle(_unsent(handle.action, "cancelled", "the run is over", "http"))

    def _lose(self, why: str) -> None:
        self._is_fed = False
        if self._lost_since is None:
            self._lost_since = time.monotonic()

    def report(self, fault: Fault) -> None:
        """Show a fault in the state's warnings."""
        self.problem = f"{fault.where}: {fault.error}"


def _result_in(row: Mapping[str, Any]) -> ActionResult:
    payload = restore(row["payload"], row.get("nonfinite"))
    place = {"step": row["step"], "branch_id": row["branch_id"], "round": row["round"]}
    return ActionResult.model_validate({**place, **payload})


def _unsent(action: Action, status: Any, reason: str, source: str) -> ActionResult:
    """Make the result of a request that the run does not know; it has no step."""
    return ActionResult(
        id=action.id, type=action.type, ok=False, status=status, error=reason, reason=reason,
        source=source if source else None, actor=action.actor, durable=False,
    )  # fmt: skip
