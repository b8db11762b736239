"""What a source may use up, and what it has."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from it2nb.core.errors import It2nbError


@dataclass(slots=True)
class Spending:
    """What a source has used up.

    Attributes
    ----------
    requests, changes : int
        Requests that have a result, and those of them that changed a knob.
    tokens : int
    cost : float
        In the currency of the prices that were given.
    """

    requests: int = 0
    changes: int = 0
    tokens: int = 0
    cost: float = 0.0

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Budget:
    """How much a source may use up; None is no limit.

    Attributes
    ----------
    requests, changes, tokens : int, optional
    cost : float, optional
    wall_s : float, optional
        Seconds from the start of the session.
    """

    requests: int | None = None
    changes: int | None = None
    tokens: int | None = None
    cost: float | None = None
    wall_s: float | None = None

    def __post_init__(self) -> None:
        for name, limit in asdict(self).items():
            if limit is None:
                continue
            is_real = isinstance(limit, Real) and not isinstance(limit, bool)
            if not is_real or not limit >= 0:
                raise It2nbError(f"budget {name}={limit!r:.60} has to be a number, 0 or more")

    def exceeded(self, spent: Spending, changes: bool, elapsed_s: float, source: str) -> str | None:
        """Say which limit one more request would break; None when none."""
        for name in ("requests", "changes", "tokens", "cost"):
            limit = getattr(self, name)
            if limit is None or (name == "changes" and not changes):
                continue
            used = getattr(spent, name)
            if used >= limit:
                used = min(used, limit)
                return f"the budget of {source} is used up: {used:g} of {limit:g} {name}"
        if self.wall_s is not None and elapsed_s >= self.wall_s:
            return f"the budget of {source} is used up: {elapsed_s:.0f} of {self.wall_s:g} s"
        return None

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {name: limit for name, limit in asdict(self).items() if limit is not None}
