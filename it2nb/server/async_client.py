"""The client for event loops: the same calls, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from it2nb.core.control import ENDED
from it2nb.core.errors import ServerError, require
from it2nb.core.wire import Action, ActionResult, Event, Status
from it2nb.server import calls
from it2nb.server.calls import Address, Answer, Asked, Call, Deadline, Pause
from it2nb.server.cursor import Cursor
from it2nb.server.follow import (
    POLL_S,
    Broken,
    NoSocket,
    Rows,
    again_s,
    breaking,
    is_end,
    meaning_of,
    options,
    stream_url,
)

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

T = TypeVar("T")


class AsyncHandle:
    """A request that was sent; see `Handle`."""

    def __init__(self, client: AsyncClient, action: Action, told: Mapping[str, Any]) -> None:
        self._client = client
        self.action = action
        self.id = str(told.get("id") or action.id)
        self._take(told)

    def _take(self, told: Mapping[str, Any]) -> None:
        self.status: Status = told.get("status") or "pending"
        self._result = calls.result_of(told)

    async def done(self) -> bool:
        """Whether the result is there; asks the server."""
        return await self._look(0.0) is not None

    async def _look(self, wait_s: float) -> ActionResult | None:
        if self._result is None:
            self._take(await self._client._run(calls.look(self.id, wait_s)))
        return self._result

    async def result(self, timeout: float | None = None) -> ActionResult:
        """Wait for the result; TimeoutError if it is not there in time."""
        deadline = Deadline(timeout)
        while (result := await self._look(deadline.wait_s())) is None:
            if deadline.left <= 0:
                raise TimeoutError(
                    f"{self.action.type} {self.id} has no result after {timeout} s; it is still "
                    f"{self.status} and is served at the run's next control point"
                )
        return result

    async def cancel(self) -> bool:
        """Take the request back if it was not served yet; True when that succeeded."""
        return await self._client._run(calls.cancel(self.id))

    def __repr__(self) -> str:
        return f"<{self._result or f'{self.action.type}: {self.status}'}>"


class AsyncClient:
    """Steers and reads a run over HTTP, in an event loop; see `Client`.

    Parameters
    ----------
    url, token, timeout, retry_s, actor
        As for `Client`.
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
        require("httpx", extra="server", feature="it2nb.AsyncClient")
        require("websockets", extra="server", feature="it2nb.AsyncClient")
        import httpx

        self.address = Address(url, token)
        self.timeout = timeout
        self.retry_s = retry_s
        self.actor = actor
        self._http = httpx.AsyncClient(
            headers=self.address.headers, timeout=timeout, trust_env=not self.address.is_local
        )
        self._closed = False

    async def state(self) -> dict[str, Any]:
        """Where the run is, as the server sends it."""
        return await self._run(calls.state())

    async def submit(
        self,
        action: Action | Mapping[str, Any] | str,
        payload: Mapping[str, Any] | None = None,
        *,
        wait: bool = False,
        timeout: float | None = None,
        **more: Any,
    ) -> Any:
        """Ask the run to do something; see `Client.submit`."""
        made = calls.action_of(action, payload, self.actor, more)
        deadline = Deadline(timeout)
        told = await self._run(calls.submit(made, deadline.wait_s() if wait else 0.0))
        handle = AsyncHandle(self, made, told)
        if not wait:
            return handle
        return await handle.result(None if timeout is None else deadline.left)

    async def do(
        self, action: str, *, reason: str | None = None, timeout: float = 5.0, **args: Any
    ) -> Any:
        """Ask for an action by name, and wait up to `timeout` seconds; see `Client.do`."""
        made = calls.action_of(action, args, self.actor, {"reason": reason})
        handle = AsyncHandle(self, made, await self._run(calls.submit(made, timeout)))
        return handle._result or handle

    async def set(
        self, name: str, value: Any, *, mode: str | None = None, reason: str | None = None,
        timeout: float = 5.0,
    ) -> Any:  # fmt: skip
        """Ask for a knob's value; see `do`."""
        more = {} if mode is None else {"mode": mode}
        return await self.do(
            "set_knob", reason=reason, timeout=timeout, name=name, value=value, **more
        )

    async def batch(
        self, values: Mapping[str, Any], *, reason: str | None = None, timeout: float = 5.0
    ) -> Any:
        """Ask for several knobs at one control point, all or none; see `do`."""
        return await self.do("batch", reason=reason, timeout=timeout, set=dict(values))

    async def pause(self, *, reason: str | None = None) -> Any:
        """Hold the loop between two steps; see `do`."""
        return await self.do("pause", reason=reason)

    async def resume(self, *, reason: str | None = None) -> Any:
        """Go on after a pause; see `do`."""
        return await self.do("resume", reason=reason)

    async def stop(self, *, reason: str | None = None) -> Any:
        """End the run after the step under way; see `do`."""
        return await self.do("stop", reason=reason)

    async def result(self, action_id: str, timeout: float = 0.0) -> ActionResult | None:
        """Return the result of a request by its id; None while there is none."""
        return calls.result_of(await self._run(calls.look(action_id, timeout)))

    async def approve(self, action_id: str, by: str = "human") -> bool:
        """Let a request pass that waits for a person; False when none waits."""
        return await self._run(calls.approve(action_id, True, by))

    async def refuse(self, action_id: str, by: str = "human") -> bool:
        """Reject a request that waits for a person; False when none waits."""
        return await self._run(calls.approve(action_id, False, by))

    async def wait(self, timeout: float | None = None) -> str:
        """Wait for the end of the run; returns its status then; see `Client.wait`."""
        async with asyncio.timeout(timeout):
            found = await self.state()
            while found.get("status") not in ENDED:
                seq = int(found.get("seq", 0))
                async for event in self.events(since=seq, types=["status_changed"]):
                    if event.payload.get("status") in ENDED:
                        return str(event.payload["status"])
                found = await self.state()
        return str(found["status"])

    async def events(
        self,
        since: int = 0,
        *,
        after: int | None = None,
        types: Sequence[str] | None = None,
        follow: bool = True,
        timeout: float | None = None,
    ) -> AsyncIterator[Event]:
        """Iterate over the events from `since` on, each once and in order; see `Client.events`."""
        cursor = Cursor(since if after is None else after + 1, types, packed=types is None)
        rows = self._follow(cursor, timeout) if follow else self._all(cursor)
        async for some in rows:
            for event in cursor.events(some):
                yield event

    async def close(self) -> None:
        """End the connections. Idempotent."""
        self._closed = True
        await self._http.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<AsyncClient of {self.address!r}>"

    # ----------------------------------------------------------------------------------- inside

    async def _run(self, asked: Asked[T]) -> T:
        answer: Answer | None = None
        while True:
            try:
                step = asked.send(answer)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            if isinstance(step, Pause):
                answer = None
                await asyncio.sleep(step.wait_s)
            else:
                answer = await self._send(step)

    async def _send(self, call: Call) -> Answer:
        import httpx

        deadline = Deadline(self.timeout)
        while not self._closed:
            try:
                found = await self._http.request(
                    call.method,
                    self.address.url + call.path,
                    params=dict(call.params),
                    content=call.body,
                    headers={"content-type": "application/json"} if call.body else None,
                    timeout=httpx.Timeout(self.timeout, read=self.timeout + call.wait_s),
                )
            except httpx.TransportError as err:
                timed_out = isinstance(err, httpx.TimeoutException)
                if timed_out or not call.repeatable or deadline.left < calls.RETRY_S:
                    raise calls.lost(self.address, err) from err
                await asyncio.sleep(calls.RETRY_S)
            else:
                return Answer(found.status_code, found.headers, found.content)
        raise ServerError("this client is closed")

    async def _all(self, cursor: Cursor) -> AsyncIterator[Rows]:
        more = True
        while more:
            rows, more = cursor.page(await self._run(calls.events(cursor.params, 0.0)))
            yield rows

    async def _follow(self, cursor: Cursor, timeout: float | None) -> AsyncIterator[Rows]:
        tries, patience, silence = 0, Deadline(self.retry_s), Deadline(timeout)
        source = self._stream
        while not self._closed and silence.left > 0:
            try:
                async for rows in source(cursor, silence):
                    patience.restart()
                    if rows:
                        tries = 0
                        yield rows
                        silence.restart()
                    elif silence.left <= 0:
                        break
                return
            except NoSocket:
                source = self._poll
                continue
            except Broken as broken:
                if patience.left <= 0:
                    raise calls.lost(self.address, str(broken)) from broken
            await asyncio.sleep(again_s(tries, silence))
            tries += 1

    async def _stream(self, cursor: Cursor, silence: Deadline) -> AsyncIterator[Rows]:
        from websockets.exceptions import ConnectionClosed

        socket = await self._connect(cursor)
        try:
            while not self._closed:
                yield []
                try:
                    async with asyncio.timeout(min(silence.left, POLL_S)):
                        rows = cursor.rows(await socket.recv())
                except TimeoutError:
                    continue
                except ConnectionClosed as err:
                    if is_end(err):
                        return
                    raise Broken(str(err)) from err
                if rows:
                    yield rows
        finally:
            # Without a farewell: it would wait behind all that is still on its way to us.
            socket.transport.abort()
            await socket.wait_closed()

    async def _connect(self, cursor: Cursor) -> ClientConnection:
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus, WebSocketException

        try:
            socket = await connect(stream_url(self.address, cursor), **options(self))
        except InvalidStatus as err:
            raise meaning_of(err.response.status_code, bytes(err.response.body or b"")) from err
        # ConnectionClosed, too: where the line is closed before the handshake's request is sent.
        except (OSError, WebSocketException, TimeoutError) as err:
            raise Broken(f"{type(err).__name__}: {err}".rstrip(": ")) from err
        response = socket.response
        cursor.belongs(None if response is None else response.headers.get("x-it2nb-run"))
        return socket

    async def _poll(self, cursor: Cursor, silence: Deadline) -> AsyncIterator[Rows]:
        while not self._closed:
            wait_s = min(POLL_S, silence.left)
            with breaking():
                rows, more = cursor.page(await self._run(calls.events(cursor.params, wait_s)))
            yield rows
            if rows or more:
                continue
            with breaking():
                if silence.left <= 0 or (await self.state()).get("status") in ENDED:
                    return
