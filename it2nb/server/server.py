"""The server of one session, in a thread of its own."""

from __future__ import annotations

import asyncio
import atexit
import html
import os
import socket
import threading
import weakref
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from it2nb.core import lifetime
from it2nb.core.errors import ServerError, require
from it2nb.core.faults import Fault, guard
from it2nb.server.hosts import LOOPBACK, Hosts, hub_prefix, is_address
from it2nb.server.limits import Limits
from it2nb.server.listener import check_place, listen

#: Seconds until a server has to be up, and down.
START_S, CLOSE_S = 60.0, 5.0


class Server:
    """A running server; `serve` makes it.

    Its repr and what a notebook shows of it hold no token: saved notebooks are shared. What a
    cell shows is a link that opens the page once.

    Attributes
    ----------
    session : Session
    host : str
    port : int
    root_path : str
        The path under which a proxy shows the server; empty without one.
    """

    def __init__(
        self,
        session: Any,
        sock: socket.socket,
        *,
        host: str,
        token: str,
        hosts: Hosts,
        root_path: str,
        limits: Limits,
    ) -> None:
        from it2nb.server.auth import Keys  # starlette

        self.session = session
        self.host = host
        self.port: int = sock.getsockname()[1]
        self.root_path = root_path
        self.limits = limits
        self._keys = Keys(token)
        self._hosts = hosts
        self._sock = sock
        self._pid = os.getpid()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quiet: Any = None
        self._serving: Any = None
        self._up = threading.Event()
        self._failed = Fault("server")
        self._closing = threading.Lock()
        self._thread = threading.Thread(
            target=self._run, name=f"it2nb server {self.port}", daemon=True
        )

    # ------------------------------------------------------------------------------- addresses

    @property
    def url(self) -> str:
        """The address for programs on this machine, without the token."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0", "::") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def token(self) -> str:
        """The secret that every request needs. Don't print it in a notebook that you share."""
        return self._keys.token

    @property
    def link(self) -> str:
        """The address of the page with the token in it."""
        return f"{self.url}/?token={self.token}"

    @property
    def plain_url(self) -> str:
        """The address with the token in its path, for clients that know of no token."""
        return f"{self.url}/~{self.token}"

    @property
    def page(self) -> str:
        """An address of the page that works once, within ten minutes, and then holds no secret.

        Behind a JupyterHub it is a path on the hub, which needs jupyter-server-proxy there.
        """
        prefix = hub_prefix()
        if self.root_path:
            base = self.root_path + "/"
        elif prefix is not None:
            base = f"{prefix}proxy/{self.port}/"
        else:
            base = f"{self.url}/"
        return f"{base}?ticket={self._keys.issue()}"

    @property
    def is_running(self) -> bool:
        """Whether it answers."""
        return self._thread.is_alive() and self._pid == os.getpid()

    def __repr__(self) -> str:
        state = "running" if self.is_running else "closed"
        return f"<Server of {self.session.run_id} at {self.url}, {state}; the token is in .token>"

    def _repr_html_(self) -> str:
        if not self.is_running:
            return html.escape(repr(self))
        run = html.escape(self.session.title or self.session.run_id)
        return (
            f'it2nb server of {run} at {html.escape(self.url)}. <a href="{self.page}" '
            'target="_blank" rel="noopener noreferrer">Open the panel</a> (this link works once, '
            "within ten minutes; show the server again for a new one)"
        )

    # -------------------------------------------------------------------------------- its life

    def start(self) -> None:
        """Start the thread and wait until it answers.

        Raises
        ------
        ServerError
            If it could not start.
        """
        _living[id(self)] = weakref.ref(self)
        self._thread.start()
        up = self._up.wait(START_S)
        if self._failed or not up:
            self.close()
            raise ServerError(f"the server did not start: {self._failed.error or 'no answer'}")

    def close(self) -> None:
        """End the server: the port is free when this returns. Any thread, idempotent."""
        if self._pid != os.getpid():
            return
        _living.pop(id(self), None)
        with self._closing:
            loop = self._loop
            if loop is not None and self._thread.is_alive():
                with guard("closing the server"):  # the loop may be closed by now
                    loop.call_soon_threadsafe(self._leave)
                if threading.current_thread() is not self._thread:
                    self._thread.join(CLOSE_S)
            self._sock.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # ----------------------------------------------------------------------- the server's thread

    def _run(self) -> None:
        # A loop of its own class: an installed policy may make others.
        runner = asyncio.Runner(loop_factory=asyncio.SelectorEventLoop)
        with guard("server", self._report) as fault, runner:
            runner.run(self._serve())
        if fault:
            self._failed = fault
        with guard("routes of a server that is over", self._report):
            self._forget()
        self._up.set()

    def _forget(self) -> None:
        from it2nb.server.app import forget

        self._quiet = self._serving = None
        forget()

    def _report(self, fault: Fault) -> None:
        self.session.report(fault)

    async def _serve(self) -> None:
        # Loaded by `serve`, in the calling thread.
        from it2nb.server import quiet
        from it2nb.server.app import make_app
        from it2nb.server.auth import Shield
        from it2nb.server.serving import Serving

        self._loop = asyncio.get_running_loop()
        self._serving = Serving(self.session, self._keys, self.limits)
        app = make_app(self._serving, self.root_path)
        shield = Shield(
            app, self._keys, self._hosts, self.limits, self.root_path, self._report
        )  # fmt: skip
        self._quiet = quiet.make(shield, self.limits)
        announce = asyncio.ensure_future(self._announce())
        try:
            await self._quiet.serve(sockets=[self._sock])
        finally:
            announce.cancel()
            self._serving.close()

    async def _announce(self) -> None:
        while not self._quiet.started:
            await asyncio.sleep(0.002)
        self._up.set()

    def _leave(self) -> None:
        self._leaving = asyncio.ensure_future(self._depart())

    async def _depart(self) -> None:
        if self._serving is not None:
            if self.session.is_ended:
                await self._serving.farewell()
            self._serving.close()
        if self._quiet is not None:
            self._quiet.should_exit = True

    def let_go(self) -> None:
        """In a forked child: close the copies of our sockets; the parent goes on."""
        from it2nb.server.quiet import leave_to_parent

        if self._quiet is not None:
            leave_to_parent(self._quiet, [self._sock])


_living: dict[int, weakref.ref[Server]] = {}
_one_at_a_time = threading.Lock()


def servers() -> list[Server]:
    """Return the servers of this process that run, oldest first. Any thread."""
    found = (ref() for ref in list(_living.values()))
    return [server for server in found if server is not None and server.is_running]


def serve(
    session: Any,
    *,
    port: int = 0,
    host: str = "127.0.0.1",
    token: str | None = None,
    allowed_hosts: Iterable[str] = (),
    root_path: str = "",
    limits: Limits | None = None,
) -> Server:
    """Serve a session over HTTP and WebSockets; see `TrainingSession.serve`."""
    require("fastapi", extra="server", feature="session.serve()")
    require("uvicorn", extra="server", feature="session.serve()")
    require("websockets", extra="server", feature="session.serve()")
    # Here, and not in the server's thread: it takes a second, and may fail.
    import_module("it2nb.server.app")
    import_module("it2nb.server.quiet")
    from it2nb.server.auth import new_token

    if lifetime.is_inert(session):
        raise ServerError("this session belongs to the parent of this forked process")
    chosen = new_token(token)
    check_place(host, port)
    prefix = _prefix(root_path)
    hosts = Hosts(
        host,
        _own_names(host, allowed_hosts),
        behind_proxy=bool(prefix) or hub_prefix() is not None,
    )
    # Two threads that ask at once would each find no server, and start one.
    with _one_at_a_time:
        running = _running(session, port, host, token, prefix)
        if running is not None:
            return running
        server = Server(
            session, listen(host, port), host=host, token=chosen, hosts=hosts, root_path=prefix,
            limits=limits or Limits(),
        )  # fmt: skip
        server.start()
        return server


def _prefix(root_path: str) -> str:
    prefix = root_path.strip().rstrip("/")
    if prefix and (not prefix.startswith("/") or set(prefix) & set('?#"<> ')):
        raise ServerError(f"root_path={root_path!r} has to be a path such as '/user/anna/proxy'")
    return prefix


def _running(
    session: Any, port: int, host: str, token: str | None, root_path: str
) -> Server | None:
    """Return the session's server if it is what is asked for; else clear the way.

    A cell that is run again gets the live server; one that asks for another port moves it; and
    the servers of runs that are over make room.
    """
    for server in servers():
        if server.session is session:
            same = server.host == host and server.root_path == root_path
            same = same and port in (0, server.port) and token in (None, server.token)
            if same:
                return server
            if port not in (0, server.port) or host != server.host:
                # First see that the new place is free, or there would be no server at all.
                listen(host, port).close()
            server.close()
        elif server.session.is_ended:
            server.close()
    return None


def _own_names(host: str, allowed: Iterable[str]) -> list[str]:
    names = [allowed] if isinstance(allowed, str) else list(allowed)
    if host not in LOOPBACK and (not host or is_address(host)):
        names += [socket.gethostname(), socket.getfqdn()]
    return names


@atexit.register
def _at_exit() -> None:
    """Runs first get their end, so that clients hear of it; then the servers go."""
    if servers():
        lifetime.end_all()
    for server in servers():
        with guard("closing a server at exit"):
            server.close()


def _after_fork() -> None:
    global _one_at_a_time
    _one_at_a_time = threading.Lock()  # another thread may have held it
    for ref in list(_living.values()):
        server = ref()
        if server is not None:
            server.let_go()
    _living.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
