"""A reader's place in the events: what to ask for next, and what was read already."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from it2nb.core.chain import pack_rows
from it2nb.core.errors import ServerError
from it2nb.core.strict import restore
from it2nb.core.wire import Event


class Cursor:
    """Knows the next seq; takes each event once, in order, whatever comes twice.

    Parameters
    ----------
    seq : int
        The first one that is wanted.
    types : sequence of str, optional
        Only events of these types.
    packed : bool
        Ask for metrics in packs.
    """

    def __init__(
        self, seq: int = 0, types: Sequence[str] | None = None, *, packed: bool = False
    ) -> None:
        self.seq = seq
        self.types = None if types is None else list(types)
        self._packed = packed
        #: The run that is followed, once a server has told its name.
        self.run: str | None = None

    @property
    def params(self) -> dict[str, Any]:
        """What to ask the server for."""
        params: dict[str, Any] = {"since": self.seq}
        if self.types is not None:
            params["types"] = self.types
        return params

    @property
    def stream_params(self) -> dict[str, Any]:
        """What to ask a socket for. A server that does not know these sends events singly."""
        return {**self.params, "batch": "true", **({"packed": "true"} if self._packed else {})}

    def belongs(self, run: str | None) -> None:
        """Look at the run's name that a server told; another one has another journal.

        Raises
        ------
        ServerError
            If it is not the run that was followed.
        """
        if run is None:
            return
        if self.run is not None and run != self.run:
            raise ServerError(
                f"the server has another run now, {run}; the events of {self.run} end at seq "
                f"{self.seq - 1}"
            )
        self.run = run

    def rows(self, message: str | bytes) -> list[dict[str, Any]]:
        """Return what is new in a message of a socket, as it was sent."""
        found = orjson.loads(message)
        if isinstance(found, dict) and isinstance(found.get("events"), list):
            return self.fresh(found["events"])
        return self.fresh([found])

    def page(self, page: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
        """Return what is new in an answer to ``GET /events``, and whether there may be more."""
        self.belongs(page.get("run_id"))
        before = self.seq
        rows = self.fresh(page.get("events") or [])
        gap = page.get("gap")
        if gap:
            rows.insert(0, {"seq": gap["to"], "type": "gap", "payload": gap})
        self.seq = max(self.seq, int(page.get("next") or 0))
        return rows, self.seq > before

    def fresh(self, rows: Iterable[Any]) -> list[dict[str, Any]]:
        """Return those rows that were not taken before, and take them."""
        kept = []
        for row in rows:
            if not isinstance(row, dict) or "type" not in row or "seq" not in row:
                continue  # a greeting, a sign of life: no event
            first, last = _ends(row["seq"])
            if last < self.seq:
                continue
            if first < self.seq and isinstance(row["seq"], list):
                row = _rest_of(row, self.seq)
            self.seq = last + 1
            kept.append(row)
        return kept

    def events(self, rows: Iterable[dict[str, Any]]) -> list[Event]:
        """Make events of rows; a pack becomes many."""
        made: list[Event] = []
        for row in rows:
            if isinstance(row["seq"], list):
                made.extend(_unpacked(row))
            else:
                payload = restore(row.get("payload") or {}, row.get("nonfinite"))
                fields = {"ts": time.time(), **row, "payload": payload}
                made.append(Event.model_validate(fields))
        return made


def _ends(seq: Any) -> tuple[int, int]:
    return (int(seq[0]), int(seq[1])) if isinstance(seq, list) else (int(seq), int(seq))


def _rest_of(pack: dict[str, Any], seq: int) -> dict[str, Any]:
    """Cut off what of a pack was read already."""
    cut = seq - pack["seq"][0]
    odd = {
        name: {str(int(at) - cut): kind for at, kind in places.items() if int(at) >= cut}
        for name, places in pack.get("nonfinite", {}).items()
    }
    return {
        **pack,
        "seq": [seq, pack["seq"][1]],
        "step": pack["step"][cut:],
        "t": pack["t"][cut:],
        "columns": {name: column[cut:] for name, column in pack["columns"].items()},
        "nonfinite": {name: places for name, places in odd.items() if places},
    }


def _unpacked(pack: dict[str, Any]) -> list[Event]:
    names = list(pack["columns"])
    return [
        Event(
            seq=pack["seq"][0] + at, type="metrics", ts=pack["epoch"] + t, t=t, step=int(step),
            payload=dict(zip(names, values, strict=True)), branch_id=pack["branch_id"],
            round=pack["round"],
        )
        for at, (step, t, *values) in enumerate(pack_rows(pack).tolist())
    ]  # fmt: skip
