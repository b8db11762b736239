"""The small language of rules: read by hand, nothing in it is evaluated.

::

    ["when"] condition ("and" condition)* (":" | "then") action ("then" action)* ("," limit)*

    condition   at 1000 | every 500
                no improvement of val_loss by 1 % in 300 steps   (decrease of, increase of)
                loss > 5 for 20 steps | loss below 0.1
                loss crosses above 5 | loss falls below 0.1
                loss is nan | nan
    action      lr x 0.5 | lr / 2 | lr + 0.1 | lr = 1e-4 | set lr to 1e-4
                pause | resume | stop | evaluate | save [tag] | note "text" | undo | end_round
                do action key=value
    limit       once | at most 3 times | cooldown 200 | from step 100 | until step 900
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from it2nb.controllers.base import ControllerError
from it2nb.controllers.conditions import (
    All,
    At,
    Compare,
    Condition,
    Crosses,
    Every,
    NoImprovement,
    NotFinite,
)
from it2nb.controllers.rule_words import (
    BEGINS,
    COMPARES,
    KINDS,
    LIMITS,
    NANS,
    NO_OR,
    PLAIN,
    SIDES,
    VERBS,
    Token,
    error_at,
    tokens,
)
from it2nb.controllers.rules import Rule
from it2nb.core.errors import near
from it2nb.core.rounds import is_number


def parse(text: str) -> Rule:
    """Read a rule.

    Raises
    ------
    RuleError
        With the place marked, and what may stand there.
    """
    return _Reader(text).rule()


def parse_condition(text: str) -> Condition:
    """Read a condition alone: what stands before the colon.

    Raises
    ------
    RuleError
    """
    reader = _Reader(text)
    condition = reader.conditions()
    reader.end("and")
    return condition


class _Reader:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens(text)
        self._at = 0

    # --- the whole -----------------------------------------------------------------------------

    def rule(self) -> Rule:
        """Read all of it."""
        condition = self.conditions()
        colon = self._sign(":")
        if not self._word("then") and not colon:
            self._fail("a ':' and what to ask for should stand here", ["and", "for", "then"])
        rule = self._action(Rule(condition))
        while self._word("then", "and"):
            rule = self._action(rule)
        while self._sign(",", ";"):
            if self._word("then", "and"):
                rule = self._action(rule)
            else:
                rule = self._limit(rule)
        self.end("then", *LIMITS)
        return rule

    def end(self, *known: str) -> None:
        """Nothing more may follow."""
        if self._now.kind != "end":
            self._fail("the rule should end here", known)

    # --- conditions ----------------------------------------------------------------------------

    def conditions(self) -> Condition:
        """Read one, or several joined by "and"; "when" or "if" may stand before them."""
        if self._now.text.lower() in ("when", "if") and not self._is_metric():
            self._next()
        found = [self._condition()]
        while self._word("and"):
            begun = self._now
            each = self._condition()
            if isinstance(each, At) and any(isinstance(other, At) for other in found):
                self._fail_at(begun, "no step is two steps at once: write two rules")
            found.append(each)
        return found[0] if len(found) == 1 else All(tuple(found))

    def _is_metric(self) -> bool:
        """Whether a comparison comes next, so that a metric's name stands here: ``if > 3``."""
        token = self._tokens[min(self._at + 1, len(self._tokens) - 1)]
        return token.text.lower() in (">", "<", ">=", "<=", *SIDES, *COMPARES)

    def _check_beginning(self) -> None:
        """Mark the word before a condition, and not the first one that can't follow it."""
        begun, now = self._last, self._now
        if begun.kind != "word":
            return
        close = bool(difflib.get_close_matches(begun.text.lower(), BEGINS, cutoff=0.6))
        is_name = now.kind == "word" and self._is_metric()
        if is_name or now.text.lower() in KINDS or (close and now.kind in ("word", "number")):
            if begun.text.lower() == "or":
                self._fail_at(begun, NO_OR)
            hint = near(begun.text.lower(), BEGINS) if close else ""
            quoted = f'; a metric of two words stands in quotes: "{begun.text} {now.text}"'
            self._fail_at(
                begun,
                f"no condition begins with {begun.text!r:.40}"
                + (hint or (quoted if is_name else "")),
            )

    def _condition(self) -> Condition:
        if self._word("at", "after"):
            self._word("step")
            found = At(self._whole("the step"))
            self._word("steps", "step")
            return found
        if self._word("every"):
            steps = Every(self._whole("the number of steps", least=1))
            self._word("steps", "step")
            return steps
        if self._word("no"):
            return self._no_improvement()
        if self._now.text.lower() in NANS and self._now.kind == "word":
            self._next()
            return NotFinite(self._name("a metric") if self._word("in", "of") else None)
        return self._about(self._name("a condition", ("at", "every", "no", "nan")))

    def _no_improvement(self) -> Condition:
        place = self._now
        kind = self._one_of(KINDS)
        if not self._word("of", "in"):
            self._fail("'of' and a metric should stand here", ["of"])
        metric = self._name("a metric")
        by, is_share = 0.0, True
        if self._word("by"):
            amount = self._now
            number = self._number("how much counts as an improvement")
            if number < 0:
                self._fail_at(amount, "what counts as an improvement can't be below 0")
            is_share = self._sign("%") or self._word("percent")
            by = number / 100 if is_share else number
        if not self._word("in", "for", "within"):
            self._fail("'in' and a number of steps should stand here", ["in", "for", "by"])
        steps = self._whole("the number of steps", least=1)
        self._word("steps", "step")
        direction: Any = {"decrease": "min", "increase": "max"}.get(kind)
        try:
            return NoImprovement(metric, by, steps, direction, is_share)
        except ControllerError as err:
            raise error_at(self._text, place.column, str(err)) from err

    def _about(self, metric: str) -> Condition:
        """What stands behind a metric's name."""
        if self._now.text.lower() not in (*COMPARES, *SIDES):
            self._check_beginning()
        if self._word("crosses", "rises", "falls", "goes"):
            rising = {"rises": True, "falls": False}.get(self._last.text.lower())
            side = self._one_of(tuple(SIDES))
            above = SIDES[side] == ">"
            if rising is not None and rising is not above:
                self._fail_at(self._last, f"{'rises above' if rising else 'falls below'} is meant")
            return Crosses(metric, above, self._number("a number"))
        self._word("is", "stays")
        if self._word("not"):
            self._one_of(("finite",))
            return NotFinite(metric)
        if self._word(*NANS):
            return NotFinite(metric)
        op = self._op()
        bound = self._number("a number")
        steps = 1
        if self._word("for"):
            steps = self._whole("the number of steps", least=1)
            self._word("steps", "step", "values")
        return Compare(metric, op, bound, steps)

    def _op(self) -> str:
        token = self._now
        if token.kind == "sign" and token.text in (">", "<", ">=", "<="):
            self._next()
            return token.text
        if self._word(*SIDES):
            return SIDES[self._last.text.lower()]
        known = (*SIDES, "crosses", "rises", "falls", "is")
        self._fail("a comparison should stand here: > or <, above, below, crosses, is nan", known)

    # --- actions -------------------------------------------------------------------------------

    def _action(self, rule: Rule) -> Rule:
        token = self._now
        if token.kind == "word" and not self._is_change():
            verb = token.text.lower()
            if verb in PLAIN:
                self._next()
                return rule.do(verb)
            if verb in VERBS:
                self._next()
                return getattr(self, f"_{verb}")(rule)  # type: ignore[no-any-return]
            if difflib.get_close_matches(verb, VERBS, cutoff=0.6):
                self._fail("this is nothing that a rule can ask for", VERBS)
        name = self._name("what to ask for", VERBS)
        return self._change(rule, name)

    def _is_change(self) -> bool:
        """Whether an operator comes next, so that a knob's name stands here: ``stop = 1``."""
        operator = self._tokens[self._at + 1]
        if operator.kind == "sign":
            return operator.text in ("=", "==", "*", "×", "/", "+", "-")
        if operator.kind != "word" or operator.text.lower() not in ("x", "times", "to"):
            return False
        # A word may be a tag as well: "save x".
        return self._now.text.lower() not in VERBS or self._tokens[self._at + 2].kind == "number"

    def _change(self, rule: Rule, name: str) -> Rule:
        """What stands behind a knob's name."""
        if self._sign("=", "==") or self._word("to"):
            return rule.set(name, self._value())
        if self._sign("*", "×") or self._word("x", "times"):
            return rule.multiply(name, self._number("a factor"))
        if self._sign("/"):
            return rule.multiply(name, 1 / self._divisor())
        if self._sign("+"):
            return rule.add(name, self._number("an amount"))
        if self._sign("-"):
            return rule.add(name, -self._number("an amount"))
        self._fail(f"how {name} should change has to stand here: x 0.5, / 2, + 0.1, = 1e-4", ())

    def _set(self, rule: Rule) -> Rule:
        name = self._name("a knob")
        if not self._sign("=", "==") and not self._word("to"):
            self._fail(f"'to' and a value for {name} should stand here", ["to"])
        return rule.set(name, self._value())

    def _halve(self, rule: Rule) -> Rule:
        return rule.multiply(self._name("a knob"), 0.5)

    def _double(self, rule: Rule) -> Rule:
        return rule.multiply(self._name("a knob"), 2.0)

    def _multiply(self, rule: Rule) -> Rule:
        name = self._name("a knob")
        if not self._word("by"):
            self._fail("'by' and a factor should stand here", ["by"])
        return rule.multiply(name, self._number("a factor"))

    def _divide(self, rule: Rule) -> Rule:
        name = self._name("a knob")
        if not self._word("by"):
            self._fail("'by' and a number should stand here", ["by"])
        return rule.multiply(name, 1 / self._divisor())

    def _divisor(self) -> float:
        place = self._now
        number = self._number("a number")
        if number == 0:
            self._fail_at(place, "nothing can be divided by 0")
        return number

    def _save(self, rule: Rule) -> Rule:
        if self._now.kind == "text":
            return rule.save(self._next().inside)
        if self._now.kind == "word" and self._now.text.lower() not in ("then", "and"):
            return rule.save(self._next().text)
        return rule.save()

    def _note(self, rule: Rule) -> Rule:
        if self._now.kind != "text":
            self._fail('the text in quotes should stand here: note "lr was halved"', ())
        return rule.note(self._next().inside)

    def _do(self, rule: Rule) -> Rule:
        action = self._name("an action")
        payload: dict[str, Any] = {}
        while self._now.kind == "word" and self._tokens[self._at + 1].text == "=":
            key = self._next().text
            self._next()
            payload[key] = self._value()
        return rule.do(action, **payload)

    # --- limits --------------------------------------------------------------------------------

    def _limit(self, rule: Rule) -> Rule:
        if self._word("once"):
            return rule.once()
        if self._word("twice"):
            return rule.at_most(2)
        if self._word("at"):
            self._one_of(("most",))
            times = self._whole("how many times", least=1)
            self._word("times", "time")
            return rule.at_most(times)
        if self._word("cooldown"):
            self._word("of")
            steps = self._whole("the number of steps", least=1)
            self._word("steps", "step")
            return rule.cooldown(steps)
        if self._word("from", "until"):
            first = self._last.text.lower() == "from"
            self._word("step")
            step = self._whole("the step")
            return rule.between(step, rule.end) if first else rule.between(rule.start, step)
        self._fail("a limit should stand here", LIMITS)

    # --- words ---------------------------------------------------------------------------------

    @property
    def _now(self) -> Token:
        return self._tokens[self._at]

    @property
    def _last(self) -> Token:
        return self._tokens[self._at - 1]

    def _next(self) -> Token:
        token = self._now
        self._at += token.kind != "end"
        return token

    def _word(self, *words: str) -> bool:
        if self._now.kind == "word" and self._now.text.lower() in words:
            self._next()
            return True
        return False

    def _sign(self, *signs: str) -> bool:
        if self._now.kind == "sign" and self._now.text in signs:
            self._next()
            return True
        return False

    def _one_of(self, words: Sequence[str]) -> str:
        if not self._word(*words):
            self._fail(f"{' or '.join(words)} should stand here", words)
        return self._last.text.lower()

    def _name(self, what: str, known: Iterable[str] = ()) -> str:
        token = self._now
        if token.kind == "text" and token.inside:
            return self._next().inside
        if token.kind != "word":
            self._fail(f"{what} should stand here", known)
        return self._next().text

    def _number(self, what: str) -> float | int:
        negative = self._sign("-")
        if not negative:
            self._sign("+")
        if self._now.kind != "number":
            self._fail(f"{what} should stand here", ())
        token = self._next()
        number = token.value
        if not is_number(number):
            self._fail_at(token, "the number is too large")
        if number == 0 and re.search(r"[1-9]", token.text.lower().partition("e")[0]):
            self._fail_at(token, "the number is so small that it reads as 0")
        return -number if negative else number

    def _whole(self, what: str, least: int = 0) -> int:
        token = self._now
        number = self._number(what)
        if number != int(number) or number < least:
            self._fail_at(token, f"{what} has to be a whole number from {least}")
        return int(number)

    def _value(self) -> Any:
        if self._now.kind == "text":
            return self._next().inside
        if self._now.kind == "word":
            word = self._next().text
            return {"true": True, "false": False}.get(word.lower(), word)
        return self._number("a value")

    def _fail(self, said: str, known: Iterable[str]) -> NoReturn:
        token = self._now
        if token.kind == "word" and token.text.lower() == "or":
            self._fail_at(token, NO_OR)
        meant = ""
        names = list(known)
        if token.kind == "word" and names:
            meant = near(token.text, names)
        found = f", not {token.text!r:.40}" if token.text else ", but the rule ends"
        self._fail_at(token, f"{said}{found}{meant}")

    def _fail_at(self, token: Token, said: str) -> NoReturn:
        raise error_at(self._text, token.column, said)
