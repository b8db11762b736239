"""Prices, caps and what was used up."""

from __future__ import annotations

import pytest

from it2nb.controllers.spending import Prices, Purse, tokens_of
from it2nb.core.errors import It2nbError


def test_prices_are_told_for_a_million_tokens():
    for given in ({"input": 3.0, "output": 15.0}, (3, 15), Prices(3, 15)):
        prices = Prices.parse(given)
        assert prices is not None
        assert prices.cost(1_000_000, 100_000) == pytest.approx(4.5)
    assert Prices.parse(None) is None


@pytest.mark.parametrize(
    "given", [3, {"input": 3}, (1, 2, 3), {"input": "3", "output": 1}, (-1, 2), (float("nan"), 1)]
)
def test_prices_that_make_no_sense_are_refused(given):
    with pytest.raises(It2nbError, match="price"):
        Prices.parse(given)


def test_a_cap_on_money_needs_prices():
    with pytest.raises(It2nbError, match="needs prices"):
        Purse(None, None, 1.0)
    with pytest.raises(It2nbError, match="0 or more"):
        Purse(None, -1, None)


def test_what_the_endpoint_does_not_count_is_counted_by_length():
    purse = Purse(Prices(1, 1), None, None)
    use = purse.book("x" * 300, "y" * 30, None)
    assert (use.input_tokens, use.output_tokens, use.estimated) == (100, 10, True)
    counted = purse.book("x" * 300, "y", (7, 8))
    assert (counted.tokens, counted.estimated) == (15, False)
    assert purse.describe() == {
        "calls": 2, "tokens": 125, "max_tokens": None, "cost": pytest.approx(125e-6),
        "max_cost": None,
    }  # fmt: skip


def test_without_prices_the_cost_is_unknown_and_not_nothing():
    purse = Purse(None, 1_000, None)
    assert purse.book("", "", (10, 10)).cost is None
    assert purse.describe()["cost"] is None


def test_a_call_that_would_pass_a_cap_is_not_made():
    purse = Purse(Prices(1, 2), 1_000, 0.01)
    assert purse.used_up(900) is None
    assert "1,000" in (purse.used_up(1_000) or "")
    purse.book("", "", (500, 400))
    assert purse.used_up(99) is None
    assert "tokens are used up: 900 of 1,000" in (purse.used_up(100) or "")
    rich = Purse(Prices(1, 2), None, 0.001)
    rich.book("", "", (1_000, 0))
    assert "money is used up" in (rich.used_up() or "")


def test_an_answer_is_as_long_as_the_caps_leave_room_for():
    purse = Purse(Prices(1, 2), 1_000, 0.001)
    assert purse.answer_tokens(5_000, 100) == 450  # 0.0009 left, at 2 a million
    assert purse.answer_tokens(50, 100) == 50
    assert Purse(None, 1_000, None).answer_tokens(5_000, 100) == 900
    assert Purse(None, None, None).answer_tokens(5_000, 100) == 5_000


def test_tokens_of_a_text_are_rather_too_many():
    assert tokens_of("") == 0
    assert tokens_of("ab") == 1


def test_tries_that_were_lost_cost_their_prompts():
    purse = Purse(Prices(3.0, 15.0), None, None)
    use = purse.book("x" * 300, "y", (90, 2), lost_tries=2)
    assert (use.input_tokens, use.output_tokens, use.estimated) == (290, 2, True)
    assert purse.tokens == 292
