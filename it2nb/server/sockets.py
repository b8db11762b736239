"""``WS /events``: the journal's events from a seq on, for as long as the run lives."""

from __future__ import annotations

import asyncio
import time

from starlette.websockets import WebSocket

from it2nb.server.feed import Chunk, gap_line
from it2nb.server.serving import Serving

#: Messages a second that a reader may send; we have no use for any.
CHATTER = 20.0


async def stream(
    serving: Serving,
    socket: WebSocket,
    seq: int,
    types: frozenset[str],
    *,
    batch: bool,
    packed: bool,
) -> None:
    """Send the events from `seq` on; ends with code 1000 when the run is over and all was sent.

    A reader holds nothing but its place in the journal: a slow one lags, one that takes nothing
    for `Limits.stalled_s` is cut off, and both go on where they were when they come back.

    Parameters
    ----------
    types : frozenset of str
        Only these; all when empty.
    batch : bool
        Many events a message, ``{"v": 2, "events": [...]}``; else one a message.
    packed : bool
        Metrics in packs, as in the journal's file.
    """
    run = serving.session.run_id.encode("ascii", "replace")
    await socket.accept(headers=[(b"x-it2nb-run", run)])

    async def write() -> None:
        position = seq
        while True:
            stroke = serving.bell.next
            chunk = (
                serving.feed.only(position, types)
                if types
                else serving.feed.read(position, packed=packed)
            )
            if chunk.gap is not None:
                line = gap_line(chunk.gap)
                await _send(serving, socket, Chunk([line], chunk.gap.last + 1), batch)
            if chunk.lines:
                began = time.thread_time()
                await _send(serving, socket, chunk, batch)
                await serving.breathe(began)
            elif serving.feed.is_closed and max(position, chunk.next) >= serving.feed.next_seq:
                await socket.close(1000, "the run is over")
                return
            elif chunk.next == position:
                await serving.any_of(stroke)
            else:  # nothing of these types so far
                await asyncio.sleep(0)
            position = max(position, chunk.next)

    serving.streams += 1
    try:
        await serving.converse(socket, write, lambda _: None, CHATTER)
    finally:
        serving.streams -= 1


async def _send(serving: Serving, socket: WebSocket, chunk: Chunk, batch: bool) -> None:
    async with asyncio.timeout(serving.limits.stalled_s):
        for text in [chunk.batch] if batch else chunk.texts:
            await socket.send({"type": "websocket.send", "text": text})
