"""Several ranks: which one this is, and how often they look to each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from it2nb.core.errors import It2nbError


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process of several that train together.

    Attributes
    ----------
    rank : int
        0 decides.
    size : int
        How many there are.
    check_every : int or None
        Control points from one at which requests are let in to the next; None chooses it from
        the length of a step, so that a request waits for about 50 ms.
    lost_after_s : float, seconds
        A rank without a sign of life for so long is lost.
    join_timeout_s : float, seconds
        How long rank 0 waits at its first control point for the others to come to theirs.
    """

    rank: int
    size: int
    check_every: int | None = None
    lost_after_s: float = 60.0
    join_timeout_s: float = 600.0

    @classmethod
    def parse(cls, rank: int, size: int, options: Mapping[str, Any] | None = None) -> Ranks:
        """Take the options of ``TrainingSession(distributed={...})``.

        Raises
        ------
        It2nbError
            If one is unknown, or no positive number.
        """
        given = dict(options or {})
        unknown = given.keys() - {"check_every", "lost_after_s", "join_timeout_s"}
        if unknown:
            raise It2nbError(
                f"distributed has no option {', '.join(sorted(map(str, unknown)))}; it takes "
                f"check_every, lost_after_s and join_timeout_s"
            )
        for name, value in given.items():
            whole = name == "check_every"
            if whole and value is None:
                continue
            kinds = int if whole else (int, float)
            wrong_kind = isinstance(value, bool) or not isinstance(value, kinds)
            if wrong_kind or not value > 0:
                what = "a whole number of control points" if whole else "a number of seconds"
                raise It2nbError(f"{name}={value!r} has to be {what} above 0")
        return cls(rank, size, **given)

    @property
    def leads(self) -> bool:
        """Whether this one decides, keeps the journal and has the server."""
        return self.rank == 0

    def refusal(self) -> str:
        """Say why this rank takes no requests."""
        return (
            f"this is rank {self.rank} of {self.size}: requests are taken on rank 0 alone and hold "
            f"on every rank"
        )

    def names(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """The session of another rank than 0: in memory, and named for what it is."""
        named = {"directory": None, "title": f"{options.get('title', '')} (rank {self.rank})"}
        if options.get("run_id"):
            named["run_id"] = f"{options['run_id']}-rank{self.rank}"
        return named
