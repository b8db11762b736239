"""Values that processes share: written by one, read by its workers. Forked or spawned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import torch

from it2nb.core.errors import Rejected

#: Bytes of all values together, as JSON.
ROOM = 1 << 16


class Board:
    """Plain values in shared memory, with a version that is cheap to compare.

    One process writes. A reader that meets a write under way reads again.
    """

    def __init__(self) -> None:
        # Version and length; then the text. Odd while somebody writes.
        self._head = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._text = torch.zeros(ROOM, dtype=torch.uint8).share_memory_()

    @property
    def version(self) -> int:
        """Grows with every write."""
        return int(self._head[0])

    def write(self, values: Mapping[str, Any]) -> None:
        """Put all values in the place of the former ones.

        Raises
        ------
        Rejected
            If they are no plain values, or too many. Nothing was written.
        """
        try:
            text = orjson.dumps(dict(values))
        except TypeError as err:
            raise Rejected(f"only plain values reach the workers: {err}") from err
        if len(text) > ROOM:
            raise Rejected(f"the values take {len(text)} bytes, and at most {ROOM} are shared")
        version = self.version
        self._head[0] = version + 1
        self._text[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
        self._head[1] = len(text)
        self._head[0] = version + 2

    def read(self) -> tuple[int, dict[str, Any]]:
        """Return the version, and the values of that version."""
        while True:
            version = self.version
            text = bytes(self._text[: int(self._head[1])].numpy())
            if version % 2 == 0 and version == self.version:
                return version, orjson.loads(text) if text else {}
