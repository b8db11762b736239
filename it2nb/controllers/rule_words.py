"""The words of the language of rules: a text cut into tokens, and the error of a place in it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from it2nb.controllers.base import ControllerError

_NAME = r"[A-Za-z_][\w.]*(?:/[A-Za-z_][\w.]*)*(?:\[\w+\])*"
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<number>(?:\d[\d_]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![A-Za-z_]))
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<word>{_NAME})
    |(?P<sign>>=|<=|==|[><=:,;%*×/+\-])
    )""",
    re.VERBOSE,
)
#: Longest text of a rule, characters.
MAX_TEXT = 2_000

#: Words that a comparison may be written in.
SIDES = {"above": ">", "over": ">", "below": "<", "under": "<"}
#: Words that a condition may begin with, besides a metric.
BEGINS = ("at", "after", "every", "no", "when", "if")
#: Words that make a comparison of the name before them.
COMPARES = ("is", "stays", "crosses", "rises", "falls", "goes")
PLAIN = ("pause", "resume", "stop", "evaluate", "undo", "end_round")
VERBS = (*PLAIN, "save", "note", "set", "do", "halve", "double", "multiply", "divide")
LIMITS = ("once", "twice", "at most", "cooldown", "from step", "until step")
KINDS = ("improvement", "decrease", "increase")
NO_OR = 'there is no "or" in a rule: write two rules'
NANS = ("nan", "inf", "infinite", "nonfinite")


class RuleError(ControllerError):
    """A text is no rule; the message marks the place.

    Attributes
    ----------
    column : int
        From 0.
    """

    def __init__(self, message: str, column: int = 0) -> None:
        super().__init__(message)
        self.column = column


@dataclass(frozen=True, slots=True)
class Token:
    """One word, number, text or sign, and where it stands."""

    kind: str
    text: str
    column: int

    @property
    def value(self) -> float | int:
        """Of a number: whole ones stay whole."""
        plain = self.text.replace("_", "")
        return int(plain) if plain.isdigit() else float(plain)

    @property
    def inside(self) -> str:
        """Of a text: without its quotes."""
        return re.sub(r"\\(.)", r"\1", self.text[1:-1])


def is_name(text: str) -> bool:
    """Whether a name needs no quotes: it can't be taken for a word of the language."""
    return re.fullmatch(_NAME, text) is not None and text.lower() not in _RESERVED


_RESERVED = frozenset(
    {"and", "or", "when", "if", "then", "at", "every", "no", "after", *NANS, *SIDES, *VERBS,
     "is", "crosses", "rises", "falls", "for", "x", "times", "to", "by", "of", "in", "once",
     "twice", "cooldown", "from", "until", "true", "false", "step", "steps", "not"}
)  # fmt: skip


def tokens(text: str) -> list[Token]:
    """Cut a rule into its tokens; the last one is of kind ``"end"``.

    Raises
    ------
    RuleError
    """
    if not text.strip():
        raise RuleError("a rule is a text such as 'loss > 5 for 20 steps: pause', not an empty one")
    if len(text) > MAX_TEXT:
        raise RuleError(f"the rule has {len(text)} characters; at most {MAX_TEXT}")
    found: list[Token] = []
    at = 0
    while at < len(text) and text[at:].strip():
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            column = at + len(text[at:]) - len(text[at:].lstrip())
            quote = text[column] in "\"'"
            raise error_at(text, column, "the quote is not closed" if quote else "no rule has this")
        kind = match.lastgroup
        found.append(Token(kind, match[kind], match.start(kind)))
        at = match.end()
    found.append(Token("end", "", len(text)))
    return found


def error_at(text: str, column: int, said: str) -> RuleError:
    """Make the error of a place in a rule."""
    line = re.sub(r"\s", " ", text)
    start = max(0, column - 60)
    shown = line[start : column + 40]
    return RuleError(f"{said}\n  {shown}\n  {' ' * (column - start)}^", column)
