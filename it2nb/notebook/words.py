"""A line cut into words, and words read as Python values."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from typing import Any

from it2nb.core.errors import It2nbError, near

_BRACKETS = {"(": ")", "[": "]", "{": "}"}
#: Text that Python has no literal for, and people write all the same.
_WORDS: dict[str, Any] = {
    "true": True,
    "false": False,
    "none": None,
    "null": None,
    "nan": math.nan,
    "inf": math.inf,
    "+inf": math.inf,
    "-inf": -math.inf,
}


#: Quoted text, which stays as it is, or a variable that is a whole word.
_VARIABLE = re.compile(
    r"'[^']*'|\"[^\"]*\"|(?:(?<=\s)|(?<==)|^)(?:\$(?P<dollar>[A-Za-z_]\w*)|\{(?P<brace>[A-Za-z_]\w*)\})(?=\s|$)"
)


class CommandError(It2nbError):
    """A line after ``%%it2`` or ``%it2`` could not be understood; nothing was done."""


def split(line: str, at: str | None = None) -> list[str]:
    """Cut a line at blanks (or at `at`) that are outside of quotes and brackets.

    Quotes stay: they belong to the expression. ``a[ 'x' ],b`` is one word, and two at commas.

    Raises
    ------
    CommandError
        If a quote or a bracket is left open.
    """
    words: list[str] = []
    word = ""
    quote = ""
    closers: list[str] = []
    for char in line:
        cut = char.isspace() if at is None else char == at
        if not quote and not closers and cut:
            words.append(word)
            word = ""
            continue
        word += char
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char in _BRACKETS:
            closers.append(_BRACKETS[char])
        elif closers and char == closers[-1]:
            closers.pop()
    if quote or closers:
        raise CommandError(f"{(quote or closers[-1])!r} is missing in {line.strip()!r}")
    words.append(word)
    return [each.strip() for each in words if each.strip()]


def expanded(line: str, namespace: Mapping[str, Any]) -> str:
    """Put the values of variables in the place of words such as ``$path`` and ``{path}``.

    Whole words alone: a dollar or a brace inside of one, or in quotes, belongs to it.

    Raises
    ------
    CommandError
        If there is no such variable.
    """

    def value(found: re.Match[str]) -> str:
        name = found["dollar"] or found["brace"]
        if name is None:
            return found[0]
        if name not in namespace:
            known = (each for each in namespace if not each.startswith("_"))
            raise CommandError(f"{found[0]}: there is no variable {name!r}{near(name, known)}")
        text = str(namespace[name])
        quote = next((each for each in "'\"" if each not in text), None)
        return f"{quote}{text}{quote}" if quote and re.search(r"\s", text) else text

    return _VARIABLE.sub(value, line)


def literal(text: str) -> Any:
    """Read a value as Python does, and anything else as text: ``3e-4``, ``true``, ``cosine``."""
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def bare(text: str) -> str:
    """Take off the quotes around a whole word."""
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"" and text[0] not in text[1:-1]:
        return text[1:-1]
    return text
