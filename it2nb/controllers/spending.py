"""What a language model costs: prices, caps, and what was used up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from it2nb.core.errors import It2nbError

#: Prices are told for so many tokens.
PER = 1_000_000
#: Characters of a token, for what nobody counted. English text has four to five; JSON fewer.
CHARS_A_TOKEN = 3


@dataclass(frozen=True, slots=True)
class Prices:
    """What a model's tokens cost.

    Attributes
    ----------
    input, output : float
        For a million tokens, in the currency of your choice.
    """

    input: float
    output: float

    def __post_init__(self) -> None:
        for name in ("input", "output"):
            price = getattr(self, name)
            if isinstance(price, bool) or not isinstance(price, (int, float)):
                raise It2nbError(f"the {name} price {price!r} is not a number")
            if not (math.isfinite(price) and price >= 0):
                raise It2nbError(f"the {name} price {price!r} has to be 0 or more")

    @classmethod
    def parse(cls, given: Any) -> Prices | None:
        """Take prices, ``{"input": 3, "output": 15}`` or ``(3, 15)``; None stays None."""
        if given is None or isinstance(given, Prices):
            return given
        if isinstance(given, Mapping) and given.keys() == {"input", "output"}:
            return cls(**given)
        if isinstance(given, (list, tuple)) and len(given) == 2:
            return cls(*given)
        raise It2nbError(
            f"prices={given!r} have to be a price of a million tokens in and one of a million "
            f'tokens out: {{"input": 3.0, "output": 15.0}}'
        )

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """What that many tokens cost."""
        return (input_tokens * self.input + output_tokens * self.output) / PER


@dataclass(frozen=True, slots=True)
class Use:
    """What one call used up.

    Attributes
    ----------
    input_tokens, output_tokens : int
    cost : float or None
        None without prices.
    estimated : bool
        Whether the endpoint did not say, and the tokens were counted by the text's length.
    """

    input_tokens: int
    output_tokens: int
    cost: float | None
    estimated: bool = False

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.input_tokens + self.output_tokens


class Purse:
    """What one agent may use up, and has. One thread at a time.

    Parameters
    ----------
    prices : Prices, optional
    max_tokens : int, optional
        In and out, over all calls.
    max_cost : float, optional
        In the currency of the prices.

    Raises
    ------
    It2nbError
        If a cap is negative, or there is one of cost and no prices.
    """

    def __init__(
        self, prices: Prices | None, max_tokens: int | None, max_cost: float | None
    ) -> None:
        for name, cap in (("max_tokens", max_tokens), ("max_cost", max_cost)):
            if cap is not None and not cap >= 0:
                raise It2nbError(f"{name}={cap!r} has to be 0 or more")
        if max_cost is not None and prices is None:
            raise It2nbError(
                f"max_cost={max_cost!r} needs prices to be held: "
                f'prices={{"input": 3.0, "output": 15.0}}, of a million tokens'
            )
        self.prices = prices
        self.max_tokens = max_tokens
        self.max_cost = max_cost
        self.calls = 0
        self.tokens = 0
        self.cost = 0.0

    def used_up(self, prompt_tokens: int = 0) -> str | None:
        """Say why no further call may be made; None when one may.

        Parameters
        ----------
        prompt_tokens : int
            How many the call would need for its prompt alone.
        """
        if self.max_tokens is not None and self.tokens + prompt_tokens >= self.max_tokens:
            return (
                f"the agent's tokens are used up: {self.tokens:,} of {self.max_tokens:,}"
                + (f", and the next prompt has about {prompt_tokens:,}" if prompt_tokens else "")
            )  # fmt: skip
        if self.max_cost is not None and self.prices is not None:
            next_cost = self.prices.cost(prompt_tokens, 0)
            if self.cost + next_cost >= self.max_cost:
                return (
                    f"the agent's money is used up: {self.cost:.6g} of {self.max_cost:.6g}"
                    + (f", and the next prompt costs about {next_cost:.3g}" if next_cost else "")
                )  # fmt: skip
        return None

    def answer_tokens(self, wanted: int, prompt_tokens: int) -> int:
        """How long the next answer may be, tokens, at least 1, so that the caps hold."""
        room = wanted
        if self.max_tokens is not None:
            room = min(room, self.max_tokens - self.tokens - prompt_tokens)
        if self.max_cost is not None and self.prices is not None and self.prices.output > 0:
            left = self.max_cost - self.cost - self.prices.cost(prompt_tokens, 0)
            room = min(room, int(left / self.prices.output * PER))
        return max(1, room)

    def book(
        self, prompt: str, answer: str, counted: tuple[int, int] | None, lost_tries: int = 0
    ) -> Use:
        """Count one call.

        Parameters
        ----------
        prompt, answer : str
            Their lengths stand in where the endpoint did not count.
        counted : (int, int), optional
            Tokens in and out as the endpoint counted them.
        lost_tries : int
            How often the prompt was sent before, and no answer arrived.
        """
        given, made = counted or (tokens_of(prompt), tokens_of(answer))
        given += lost_tries * tokens_of(prompt)
        cost = None if self.prices is None else self.prices.cost(given, made)
        self.calls += 1
        self.tokens += given + made
        self.cost += cost or 0.0
        return Use(given, made, cost, estimated=counted is None or lost_tries > 0)

    def describe(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "calls": self.calls,
            "tokens": self.tokens,
            "max_tokens": self.max_tokens,
            "cost": None if self.prices is None else self.cost,
            "max_cost": self.max_cost,
        }


def tokens_of(text: str) -> int:
    """About how many tokens a text has; rather too many than too few."""
    return -(-len(text) // CHARS_A_TOKEN)
