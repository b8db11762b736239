"""The pages that show the panel: one bridge to the session, a bounded mailbox for each."""

from __future__ import annotations

import asyncio
import struct
import threading
from typing import Any

import orjson
from starlette.websockets import WebSocket

from it2nb.core.faults import guard
from it2nb.panel.bridge import Bridge
from it2nb.server.serving import Serving

#: Messages that wait for one page. When it is full they are left out: the page finds a number
#: missing and asks for a snapshot.
MAILBOX = 32


class Page:
    """One open page."""

    def __init__(self, serving: Serving, bridge: Bridge) -> None:
        self._serving = serving
        self._bridge = bridge
        self._mail: asyncio.Queue[bytes] = asyncio.Queue(MAILBOX)
        #: The page's names for itself.
        self.names: set[str] = set()

    def hear(self, message: str | bytes) -> None:
        """Take one message of the page."""
        with guard("message of a page", self._serving.report) as fault:
            content = orjson.loads(message)
        if fault:
            return
        name = content.get("client") if isinstance(content, dict) else None
        if isinstance(name, str) and len(self.names) < 16:
            self.names.add(name)
        self._bridge.receive(content)

    def post(self, frame: bytes) -> None:
        """Put a message into the mailbox, if there is room."""
        if not self._mail.full():
            self._mail.put_nowait(frame)

    async def write(self, socket: WebSocket) -> None:
        """Send what comes into the mailbox."""
        while True:
            frame = await self._mail.get()
            async with asyncio.timeout(self._serving.limits.stalled_s):
                await socket.send_bytes(frame)

    def gone(self) -> None:
        """Say good-bye in the page's name: it may have vanished."""
        for name in self.names:
            self._bridge.receive({"v": 2, "kind": "bye", "client": name})


class Pages:
    """All open pages of a server. The loop's thread only."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._open: set[Page] = set()
        self._bridge: Bridge | None = None

    def enter(self) -> Page:
        """Open the mailbox of a new page."""
        if self._bridge is None:
            self._bridge = Bridge(self._serving.session, self._send, source="http", actor="page")
            self._serving.when_closed(self.close)
        page = Page(self._serving, self._bridge)
        self._open.add(page)
        return page

    def leave(self, page: Page) -> None:
        """Forget a page."""
        self._open.discard(page)
        page.gone()

    def close(self) -> None:
        """End the bridge; it may have to wait for its thread, so on another one."""
        if self._bridge is not None:
            threading.Thread(target=self._bridge.close, name="it2nb-page", daemon=True).start()

    def _send(self, content: dict[str, Any], buffers: list[bytes]) -> bool:
        """Send to all pages, an answer to the one that it is for. The bridge's thread."""
        frame, to = pack(content, buffers), content.get("to")
        with guard("page") as gone:  # the loop may be closed by now
            self._serving.loop.call_soon_threadsafe(self._deliver, to, frame)
        return not gone

    def _deliver(self, to: str | None, frame: bytes) -> None:
        for page in self._open:
            if to is None or to in page.names:
                page.post(frame)


def pack(content: dict[str, Any], buffers: list[bytes]) -> bytes:
    """Write a message and its buffer as one frame.

    The length of the JSON text as uint32, little-endian; the text, padded with spaces so that
    what follows stands at a multiple of 8; the buffer.
    """
    text = orjson.dumps(content)
    text += b" " * (-(len(text) + 4) % 8)
    return b"".join((struct.pack("<I", len(text)), text, *buffers))
