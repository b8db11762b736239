"""A client of a run's server; every method may be called on any thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from it2nb.core.control import ENDED
from it2nb.core.errors import Refused, ServerError, require
from it2nb.core.wire import Action, ActionResult, Event, Status
from it2nb.server import calls
from it2nb.server.calls import Address, Answer, Asked, Call, Deadline, Pause
from it2nb.server.cursor import Cursor
from it2nb.server.follow import follow as follow_events

T = TypeVar("T")


class Handle:
    """A request that was sent: ask whether it is done, wait for its result, take it back."""

    def __init__(self, client: Client, action: Action, told: Mapping[str, Any]) -> None:
        self._client = client
        self.action = action
        self.id = str(told.get("id") or action.id)
        self._status: Status = told.get("status") or "pending"
        self._result = calls.result_of(told)

    @property
    def status(self) -> Status:
        """As far as is known here; `done` asks the server."""
        return self._status if self._result is None else self._result.status

    def done(self) -> bool:
        """Whether the result is there; asks the server."""
        return self._result is not None or self._look(0.0) is not None

    def result(self, timeout: float | None = None) -> ActionResult:
        """Wait for the result.

        Raises
        ------
        TimeoutError
            If it is not there within `timeout` seconds. The request stays in force.
        """
        deadline = Deadline(timeout)
        while self._result is None:
            if self._look(deadline.wait_s()) is None and deadline.left <= 0:
                raise TimeoutError(
                    f"{self.action.type} {self.id} has no result after {timeout} s; it is still "
                    f"{self._status} and is served at the run's next control point"
                )
        return self._result

    def cancel(self) -> bool:
        """Take the request back if it was not served yet; True when that succeeded."""
        return self._client._run(calls.cancel(self.id))

    def _look(self, wait_s: float) -> ActionResult | None:
        told = self._client._look(self.id, wait_s)
        self._status = told.get("status") or self._status
        self._result = calls.result_of(told)
        return self._result

    def __repr__(self) -> str:
        return f"<{self._result or f'{self.action.type}: {self._status}'}>"


class Client:
    """Steers and reads a run over HTTP.

    Parameters
    ----------
    url : str
        Of the server; a link that holds the token will do.
    token : str, optional
        From the link, or from ``IT2NB_TOKEN``.
    timeout : float, seconds
        Until a call is given up. A call that finds nobody is tried again until then: sending a
        request twice is safe, since its id is used once.
    retry_s : float, seconds
        How long `events` tries to get a broken connection back.
    actor : str, optional
        Who asks, ``"human:anna"``; written into the journal.

    Notes
    -----
    Every call raises `Unreachable` when nobody answers and `Refused` when the server says no.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 10.0,
        retry_s: float = 30.0,
        actor: str | None = None,
    ) -> None:
        require("httpx", extra="server", feature="it2nb.Client")
        require("websockets", extra="server", feature="it2nb.Client")
        import httpx

        self.address = Address(url, token)
        self.timeout = timeout
        self.retry_s = retry_s
        self.actor = actor
        self._http = httpx.Client(
            headers=self.address.headers,
            timeout=timeout,
            # A proxy of the environment can't reach this machine's own addresses.
            trust_env=not self.address.is_local,
        )
        #: Set by `close`.
        self.closed = threading.Event()

    # ---------------------------------------------------------------------------------- asking

    def state(self) -> dict[str, Any]:
        """Where the run is, as the server sends it; `it2nb.core.wire.State` names the fields."""
        return self._run(calls.state())

    def submit(
        self,
        action: Action | Mapping[str, Any] | str,
        payload: Mapping[str, Any] | None = None,
        *,
        wait: bool = False,
        timeout: float | None = None,
        **more: Any,
    ) -> Any:
        """Ask the run to do something.

        Parameters
        ----------
        action : Action, mapping or str
            A name goes with `payload`, and with fields of `Action`: ``reason``, ``expect``...
        wait : bool
            Wait for the result.
        timeout : float, optional
            Seconds to wait; without end by default.

        Returns
        -------
        ActionResult or Handle
            The result with ``wait=True``, else at once a handle.

        Raises
        ------
        TimeoutError
            If the result is not there in time; the request stays in force.
        """
        made = calls.action_of(action, payload, self.actor, more)
        deadline = Deadline(timeout)
        told = self._run(calls.submit(made, deadline.wait_s() if wait else 0.0))
        handle = Handle(self, made, told)
        return handle.result(deadline.left if timeout is not None else None) if wait else handle

    def do(
        self, action: str, *, reason: str | None = None, timeout: float = 5.0, **args: Any
    ) -> Any:
        """Ask for an action by name, and wait up to `timeout` seconds for its result.

        Returns
        -------
        ActionResult or Handle
            The handle when there is no result in time.
        """
        made = calls.action_of(action, args, self.actor, {"reason": reason})
        handle = Handle(self, made, self._run(calls.submit(made, timeout)))
        return handle._result or handle

    def set(
        self, name: str, value: Any, *, mode: str | None = None, reason: str | None = None,
        timeout: float = 5.0,
    ) -> Any:  # fmt: skip
        """Ask for a knob's value; see `do`."""
        more = {} if mode is None else {"mode": mode}
        return self.do("set_knob", reason=reason, timeout=timeout, name=name, value=value, **more)

    def batch(
        self, values: Mapping[str, Any], *, reason: str | None = None, timeout: float = 5.0
    ) -> Any:
        """Ask for several knobs at one control point, all or none; see `do`."""
        return self.do("batch", reason=reason, timeout=timeout, set=dict(values))

    def pause(self, *, reason: str | None = None) -> Any:
        """Hold the loop between two steps; see `do`."""
        return self.do("pause", reason=reason)

    def resume(self, *, reason: str | None = None) -> Any:
        """Go on after a pause; see `do`."""
        return self.do("resume", reason=reason)

    def stop(self, *, reason: str | None = None) -> Any:
        """End the run after the step under way; see `do`."""
        return self.do("stop", reason=reason)

    def result(self, action_id: str, timeout: float = 0.0) -> ActionResult | None:
        """Return the result of a request by its id; None while there is none."""
        return calls.result_of(self._look(action_id, timeout))

    def approve(self, action_id: str, by: str = "human") -> bool:
        """Let a request pass that waits for a person; False when none waits."""
        return self._run(calls.approve(action_id, True, by))

    def refuse(self, action_id: str, by: str = "human") -> bool:
        """Reject a request that waits for a person; False when none waits."""
        return self._run(calls.approve(action_id, False, by))

    def wait(self, timeout: float | None = None) -> str:
        """Wait for the end of the run; returns its status then.

        Raises
        ------
        TimeoutError
            If it has not ended within `timeout` seconds.
        """
        deadline = Deadline(timeout)
        found = self.state()
        while found.get("status") not in ENDED:
            if deadline.left <= 0:
                raise TimeoutError(
                    f"the run is still {found.get('status')} after {timeout} s; it goes on"
                )
            for event in self.events(
                since=int(found.get("seq", 0)),
                types=["status_changed"],
                timeout=None if timeout is None else deadline.left,
            ):
                if event.payload.get("status") in ENDED:
                    return str(event.payload["status"])
            found = self.state()
        return str(found["status"])

    # ---------------------------------------------------------------------------------- reading

    def events(
        self,
        since: int = 0,
        *,
        after: int | None = None,
        types: Sequence[str] | None = None,
        follow: bool = True,
        timeout: float | None = None,
    ) -> Iterator[Event]:
        """Iterate over the events from `since` on, each once and in order.

        A connection that breaks is taken up again where it broke, for up to `retry_s` seconds.
        Where the server has lost events (a run without a file that keeps only the newest), one
        of type ``"gap"`` with the payload ``{"from", "to"}`` stands in their place.

        Parameters
        ----------
        since, after : int
            Begin at, or after, this seq.
        types : sequence of str, optional
            Only events of these types.
        follow : bool
            Go on with new events until the run is over; False ends with the newest one.
        timeout : float, seconds, optional
            End when no event came for so long.
        """
        # Packs cost the run's process a hundredth of what single events do.
        cursor = Cursor(since if after is None else after + 1, types, packed=types is None)
        if follow:
            for rows in follow_events(self, cursor, timeout):
                yield from cursor.events(rows)
            return
        while True:
            rows, more = self._page(cursor, 0.0)
            yield from cursor.events(rows)
            if not more:
                return

    def close(self) -> None:
        """End the connections, and with them every `events` that still runs. Idempotent."""
        self.closed.set()
        self._http.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.address!r}>"

    # ----------------------------------------------------------------------------------- inside

    def _run(self, asked: Asked[T]) -> T:
        """Carry a call's requests to the server, and the answers back."""
        answer: Answer | None = None
        while True:
            try:
                step = asked.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                answer = None
                self.closed.wait(step.wait_s)
            else:
                answer = self._send(step)

    def _send(self, call: Call) -> Answer:
        import httpx

        deadline = Deadline(self.timeout)
        while True:
            if self.closed.is_set():
                raise ServerError("this client is closed")
            try:
                found = self._http.request(
                    call.method,
                    self.address.url + call.path,
                    params=dict(call.params),
                    content=call.body,
                    headers={"content-type": "application/json"} if call.body else None,
                    timeout=httpx.Timeout(self.timeout, read=self.timeout + call.wait_s),
                )
            except httpx.TransportError as err:
                # A server that restarts, or a kept connection that was closed meanwhile.
                timed_out = isinstance(err, httpx.TimeoutException)
                if timed_out or not call.repeatable or deadline.left < calls.RETRY_S:
                    raise calls.lost(self.address, err) from err
                self.closed.wait(calls.RETRY_S)
            else:
                return Answer(found.status_code, found.headers, found.content)

    def _look(self, action_id: str, wait_s: float) -> dict[str, Any]:
        """Ask what became of a request; on servers without such a route, look for its event."""
        try:
            return self._run(calls.look(action_id, wait_s))
        except Refused as err:
            if err.status not in (404, 405) or action_id in err.reason:
                raise
        for event in self.events(types=["action_result"], timeout=max(wait_s, 0.2)):
            if event.payload.get("id") == action_id:
                ok = bool(event.payload.get("ok"))
                status = event.payload.get("status") or ("applied" if ok else "failed")
                told = {"step": event.step, **event.payload, "status": status}
                return {"id": action_id, "status": status, "result": told}
        return {"id": action_id, "status": "pending"}

    def _page(self, cursor: Cursor, wait_s: float) -> tuple[list[dict[str, Any]], bool]:
        """Fetch events without a socket; tell if there may be more."""
        return cursor.page(self._run(calls.events(cursor.params, wait_s)))
