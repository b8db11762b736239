"""Between a session and its pages: takes their requests, tells them what happens."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import orjson
from pydantic import ValidationError

from it2nb.core.control import ENDED
from it2nb.core.faults import Fault, guard
from it2nb.core.wire_panel import (
    PANEL_REQUEST,
    Ack,
    Answer,
    AssetAsk,
    Bye,
    FromPanel,
    Heartbeat,
    Hello,
    Picture,
    PictureAsk,
    Rows,
    RowsAsk,
    Submit,
    ToPanel,
    Watch,
    WindowAsk,
)
from it2nb.panel.clients import Clients
from it2nb.panel.feed import Feed
from it2nb.panel.rows import ROW_TYPES, row_of, row_without_journal
from it2nb.panel.scripts import packed
from it2nb.panel.sender import INTERVAL_S, SLOW_S, URGENT_S, Sender

Send = Callable[[dict[str, Any], list[bytes]], bool]
#: Messages of pages that wait for the sender, at most.
MAIL = 1_000


class Bridge:
    """Knows no widget: `send` takes a message to all pages, `receive` gets theirs.

    Parameters
    ----------
    session : Session or the like
        With ``state()``, ``submit(action, source=)``, ``journal``, ``metrics``, ``status``.
    send : callable
        Called with content and buffers, on the sender's thread alone.
    variable : str
        Python expression for the session.
    heartbeat_s : float or None
        Seconds of silence after which a sign of life is sent while the run lives; also keeps a
        server's idle culler away from a run that trains in the background.
    also : callable, optional
        Called with the run's status on the sender's thread, at each turn.
    picture : callable, optional
        Returns what stands beside the panel, by MIME type, for pages that keep it.
    source : str
        The entry through which requests come: the panel, or the page over HTTP.
    actor : str, optional
        Who asks there, where a request does not say so itself.
    clock : object with time() and monotonic()
        Seconds. For tests.
    """

    def __init__(
        self,
        session: Any,
        send: Send,
        *,
        variable: str = "it2nb.current()",
        heartbeat_s: float | None = 5.0,
        also: Callable[[str], float | None] | None = None,
        picture: Callable[[], dict[str, str]] | None = None,
        source: str = "panel",
        actor: str | None = None,
        clock: Any = time,
    ) -> None:
        self._session = session
        self._clock = clock
        self._source = source
        self._actor = actor
        self._send = send
        self._heartbeat_s = heartbeat_s
        self._also = also
        self._picture = picture
        self._mail: deque[FromPanel] = deque(maxlen=MAIL)
        self._clients = Clients()
        self._sent_at = 0.0
        self._looked_at = 0.0
        self._last_told = False
        self._feed = Feed(session, variable, heartbeat_s)
        self._faults: deque[str] = deque(maxlen=20)
        self._submitted: deque[Any] = deque(maxlen=MAIL)
        self._sender = Sender(self._turn, self.report)
        self._rows = session.journal.subscribe(types=ROW_TYPES, wake=self._sender.wake)
        self._sender.wake()

    # -------------------------------------------------------------------- any thread: requests

    def receive(self, content: Any, buffers: list[bytes] | None = None) -> None:
        """Take one message of a page. Any thread; returns at once and raises nothing."""
        with guard("panel message", self.report):
            try:
                request = PANEL_REQUEST.validate_python(content)
            except ValidationError as err:
                first = err.errors()[0]
                where = ".".join(str(each) for each in first["loc"]) or "message"
                raise ValueError(
                    f"{where}: {first['msg']}; got {content!r:.200}. "
                    "Reload the page if the package was updated"
                ) from None
            self._note_thread()
            if isinstance(request, Submit):
                # At once, on this thread: the sender may be busy with a curve.
                action = request.action
                if self._actor is not None and action.actor is None and action.source is None:
                    action = action.model_copy(update={"actor": self._actor})
                self._submitted.append(self._session.submit(action, source=self._source))
            elif isinstance(request, Answer):
                answer = self._session.approve if request.approve else self._session.refuse
                if not answer(request.id, by=self._source):
                    raise ValueError(f"no request {request.id} waits for approval any more")
            self._mail.append(request)
        self._sender.wake()

    def _note_thread(self) -> None:
        # Where the messages really arrive beside a running cell can be seen in the thread's name
        # alone: a kernel that can may have a front end that does not.
        if threading.current_thread().name.startswith("subshell"):
            self._feed.subshell = True

    def report(self, fault: Fault) -> None:
        """Show a fault of the panel in the panel. Any thread."""
        self._faults.append(f"{fault.where}: {fault.error}")

    # --------------------------------------------------------------------------- sender thread

    def _turn(self) -> float | None:
        now = self._clock.monotonic()
        self._take()
        while self._mail:
            with guard("answer to the panel", self.report):
                self._answer(self._mail.popleft(), now)
        while self._faults:
            self._feed.fault(self._faults.popleft())
        ended = self._session.status in ENDED
        self._tell(now, ended)
        also_s = None if self._also is None else self._also(self._session.status)
        return self._pause(self._clock.monotonic(), ended, also_s)

    def _take(self) -> None:
        events, gap = self._rows.drain()
        self._feed.take(events)
        if gap:
            self._feed.missed()
        while self._submitted:
            handle = self._submitted.popleft()
            if not handle.done():
                self._feed.received(handle.id)
            elif self._session.status in ENDED or handle.result(0).step is None:
                # After the end, or never sent to a run elsewhere: no row tells of it.
                self._feed.unrecorded(row_without_journal(handle.result(0), self._clock.time()))

    def _answer(self, request: FromPanel, now: float) -> None:
        name = request.client
        match request:
            case Hello(watch=watch):
                self._welcome(name, watch, now)
            case Watch(names=names):
                self._welcome(name, names, now)
            case Bye():
                self._clients.bye(name)
                self._feed.follow(self._clients.watched())
            case Ack(n=n):
                # From a page that was given up: a beat tells it what it has missed.
                if not self._clients.ack(name, n, now):
                    self._out(Heartbeat(n=self._feed.n), [])
            case WindowAsk():
                self._out(*self._feed.window(request))
            case RowsAsk(types=types, limit=limit):
                events = self._session.journal.tail(limit, types=types or list(ROW_TYPES))
                rows = [row_of(event) for event in events]
                self._out(Rows(n=self._feed.n, to=name, ask=request.ask, rows=rows), [])
            case PictureAsk():
                if self._picture is not None:
                    self._out(Picture(n=self._feed.n, to=name, bundle=self._picture()), [])
            case AssetAsk(name=script):
                message, buffer = packed(script, to=name, n=self._feed.n)
                self._out(message, [buffer])
            case _:
                self._clients.heard(name, now)

    def _welcome(self, name: str, watch: list[str] | None, now: float) -> None:
        client = self._clients.hello(name, watch, self._feed.n, now)
        if not client.chose:
            client.watch = self._feed.default_watch()
        self._feed.follow(self._clients.watched())
        self._out(*self._feed.snapshot(name, client.watch))
        self._last_told = False

    def _tell(self, now: float, ended: bool) -> None:
        """Send what is new, not too often; a sign of life when nothing is."""
        since = now - self._sent_at
        if self._clients and not (ended and self._last_told and not self._feed.is_urgent):
            urgent = self._feed.is_urgent and since >= URGENT_S
            if urgent or now - self._looked_at >= self._interval():
                self._looked_at = now
                self._clients.drop_silent(self._feed.n, now)
                self._watch_first_metrics()
                sent = self._feed.batch()
                if sent is not None:
                    self._out(*sent)
                # What comes after the end is rows alone, and those wake us.
                self._last_told = ended
                return
        beat = self._heartbeat_s
        if beat is not None and not ended and since >= beat:
            self._out(Heartbeat(n=self._feed.n), [])

    def _watch_first_metrics(self) -> None:
        """Show the first metrics on pages that were there before any was known."""
        if self._clients.watched():
            return
        names = self._feed.default_watch()
        if names and self._clients.give_default(names):
            self._feed.missed()  # the pages learn of it by a snapshot

    def _interval(self) -> float:
        if self._clients.is_slow(self._feed.n):
            return SLOW_S
        return INTERVAL_S if self._session.status == "running" else SLOW_S

    def _pause(self, now: float, ended: bool, also_s: float | None) -> float | None:
        """Seconds until the next turn; None when only a message can bring one."""
        waits = [] if also_s is None else [also_s]
        if self._clients:
            if self._feed.is_urgent:
                waits.append(max(0.005, self._sent_at + URGENT_S - now))
            elif not (ended and self._last_told):
                waits.append(max(0.005, self._looked_at + self._interval() - now))
        if self._heartbeat_s is not None and not ended:
            waits.append(max(0.05, self._sent_at + self._heartbeat_s - now))
        return min(waits) if waits else (None if ended else SLOW_S * 60)

    def _out(self, message: ToPanel, buffers: list[bytes]) -> None:
        # By way of JSON text: what is no finite number becomes null there, and only there.
        self._send(orjson.loads(message.json_bytes()), buffers)
        self._sent_at = self._clock.monotonic()

    def close(self) -> None:
        """End the sender and the subscription. Any thread but the sender's."""
        self._sender.close()
        self._rows.close()
