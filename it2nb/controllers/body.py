"""How much of an endpoint's answer is taken in: one that floods costs its call, not the memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from it2nb.core.errors import AgentError

if TYPE_CHECKING:
    from httpx2 import Response

#: Bytes of one answer; a thousand tokens are some five thousand.
MAX_BODY = 2_000_000
#: Asked for, since a compressed body may be a thousand times as long as it seems.
PLAIN = {"accept-encoding": "identity"}


async def bound(response: Response) -> None:
    """Let at most `MAX_BODY` bytes of a response be read. A hook of an httpx client.

    Raises
    ------
    AgentError
        While it is read, if it has more; at once, if it is compressed.
    """
    coding = response.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        raise AgentError(
            f"the answer is compressed ({coding[:40]!r}), although it was asked for as it is",
            maybe_billed=True,
        )
    response.stream = _bounded_stream(response.stream)


def _bounded_stream(stream: Any) -> Any:
    from httpx2 import AsyncByteStream

    class Bounded(AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            taken = 0
            async for part in stream:
                taken += len(part)
                if taken > MAX_BODY:
                    raise AgentError(
                        f"the answer is longer than {MAX_BODY:,} bytes", maybe_billed=True
                    )
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return Bounded()
