"""The pages that show a panel, as far as the kernel knows of them."""

from __future__ import annotations

from dataclasses import dataclass, field

#: Batches that a page may leave unacknowledged before it is taken to be slow; it acknowledges
#: each 50th.
BACKLOG = 100
#: A page that was not heard for this long, while it was sent to, is taken to be gone, seconds.
SILENT_S = 180.0


@dataclass(slots=True)
class Client:
    """One page."""

    watch: list[str]
    acked: int
    heard: float
    chose: bool = field(default=False)


class Clients:
    """Which pages are there, what they show, and how far they are. Sender thread only."""

    def __init__(self) -> None:
        self._all: dict[str, Client] = {}

    def __bool__(self) -> bool:
        return bool(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def hello(self, name: str, watch: list[str] | None, n: int, now: float) -> Client:
        """Note that a page is there and gets a snapshot as of batch `n`."""
        known = self._all.get(name)
        client = Client(known.watch if known else [], n, now, known.chose if known else False)
        if watch is not None:
            client.watch, client.chose = watch, True
        self._all[name] = client
        return client

    def ack(self, name: str, n: int, now: float) -> bool:
        """Note how far a page is; False for a page that was given up."""
        client = self._all.get(name)
        if client is None:
            return False
        client.acked, client.heard = max(client.acked, n), now
        return True

    def heard(self, name: str, now: float) -> None:
        """Note a sign of life."""
        if name in self._all:
            self._all[name].heard = now

    def bye(self, name: str) -> None:
        """Note that a page is gone."""
        self._all.pop(name, None)

    def drop_silent(self, n: int, now: float) -> None:
        """Give up pages that take no batches and say nothing."""
        self._all = {
            name: client
            for name, client in self._all.items()
            if n - client.acked <= BACKLOG or now - client.heard <= SILENT_S
        }

    def is_slow(self, n: int) -> bool:
        """Whether no page keeps up with the batches."""
        return bool(self._all) and all(n - each.acked > BACKLOG for each in self._all.values())

    def watched(self) -> list[str]:
        """Return the metrics that any page shows."""
        return list(dict.fromkeys(name for each in self._all.values() for name in each.watch))

    def give_default(self, names: list[str]) -> bool:
        """Show `names` on pages that chose nothing; whether that changed a page that is there."""
        changed = False
        for client in self._all.values():
            if not client.chose and client.watch != names:
                client.watch, changed = list(names), True
        return changed
