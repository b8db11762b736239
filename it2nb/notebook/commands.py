"""What stands behind ``%%it2`` and ``%it2``, as data: a pure parser, no notebook needed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from it2nb.core.errors import near
from it2nb.notebook.options import CELL_OPTIONS, VERBS, KnobSpec, Option, Watch
from it2nb.notebook.words import CommandError, bare, literal, split

At = Literal["auto", "optimizer", "loop", "session"]


@dataclass(frozen=True, slots=True)
class CellOptions:
    """The options of ``%%it2``; see `CELL_OPTIONS` for what each means."""

    watch: tuple[Watch, ...] = ()
    knobs: tuple[KnobSpec, ...] = ()
    evaluate: str | None = None
    session: str | None = None
    steps: int | None = None
    at: At = "auto"
    title: str = ""
    wait: bool | None = None
    seed: int | None = None
    replay: str | None = None
    go_on: bool = False
    steps_of: str | None = None
    snapshots: bool = True
    modules: bool = False
    panel: bool = True
    heartbeat: bool = True
    directory: str | None = None
    goal: str | None = None
    rules: tuple[str, ...] = ()
    track: tuple[str, ...] = ()
    autosave: float | None = None
    help: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One ``%it2`` line.

    Attributes
    ----------
    verb : str
        One of `VERBS`.
    words : tuple of str
        What stands behind it by position.
    given : dict
        ``k=v`` pairs, the values as Python values.
    options : dict
        ``--name value`` pairs.
    """

    verb: str
    words: tuple[str, ...] = ()
    given: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def parse_cell(line: str) -> CellOptions:
    """Parse what stands behind ``%%it2``.

    Raises
    ------
    CommandError
        With what was wrong, the value, and what to write instead.
    """
    words, options = _options(split(line), CELL_OPTIONS, "%%it2")
    if words:
        raise CommandError(
            f"%%it2 takes options only, not {words[0]!r}; did you mean --watch {words[0]}?"
        )
    if "seed" in options and options["seed"] >= 2**32:
        raise CommandError(f"--seed {options['seed']} is too large; at most {2**32 - 1}")
    names = [each.name for each in options.get("watch", ())]
    twice = {each for each in names if names.count(each) > 1}
    if twice:
        raise CommandError(f"--watch names {sorted(twice)[0]!r} twice")
    return CellOptions(**options)


def parse_line(line: str) -> Command:
    """Parse what stands behind ``%it2``; an empty line asks for the status.

    Raises
    ------
    CommandError
    """
    words = split(line) or ["status"]
    verb = VERBS.get(words[0])
    if verb is None:
        raise CommandError(f"%it2 has no verb {words[0]!r}{near(words[0], VERBS)}; see %it2 help")
    if verb.is_text and len(words) > 1:
        return Command(verb.name, (bare(" ".join(words[1:])),))
    rest, options = _options(words[1:], verb.options, f"%it2 {verb.name}")
    given: dict[str, Any] = {}
    if verb.pairs:
        rest, given = _pairs(rest)
    if verb.name == "set" and not rest and len(given) == 1:
        [(name, value)] = given.items()
        return Command("set", (name,), {"value": value}, options)
    if verb.name == "set" and len(rest) == 2 and not given:
        return Command("set", (bare(rest[0]),), {"value": literal(rest[1])}, options)
    if verb.name == "set" and len(rest) == 1 and not given and "mode" in options:
        return Command("set", (bare(rest[0]),), {}, options)  # the mode alone: back to a schedule
    usage = f"%it2 {verb.name} {verb.usage}".strip()
    if verb.name == "set" or not verb.least <= len(rest) <= verb.most:
        said = " ".join(rest + [f"{k}={v}" for k, v in given.items()]) or "nothing"
        raise CommandError(f"write it as: {usage}; found {said} behind {verb.name}")
    return Command(verb.name, tuple(bare(each) for each in rest), given, options)


def _pairs(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    rest: list[str] = []
    given: dict[str, Any] = {}
    for word in words:
        pair = re.fullmatch(r"([A-Za-z_][\w.\[\]]*)=(.*)", word, re.DOTALL)
        if pair is None:
            rest.append(word)
        elif pair[1] in given:
            raise CommandError(f"{pair[1]!r} is given twice")
        else:
            given[pair[1]] = literal(pair[2])
    return rest, given


def _options(
    words: Sequence[str], known: Sequence[Option], where: str
) -> tuple[list[str], dict[str, Any]]:
    """Take the ``--options`` out of `words`; returns the other words and the values."""
    by_name = {each.name: each for each in known}
    rest: list[str] = []
    found: dict[str, Any] = {}
    given: set[str] = set()
    feed: Iterator[str] = iter(words)
    for word in feed:
        if not word.startswith("--"):
            rest.append(word)
            continue
        name, mark, text = word[2:].partition("=")
        option = by_name.get(name)
        if option is None:
            raise CommandError(f"{where} has no option --{name}{near(name, by_name)}")
        into = option.into or option.name.replace("-", "_")
        if into in given and not option.many:
            raise CommandError(f"--{name} is given twice, or contradicts what stands before it")
        given.add(into)
        if option.read is None:
            if mark:
                raise CommandError(f"--{name} takes no value, but was given {text!r}")
            found[into] = option.constant
            continue
        if not mark:
            text = next(feed, "")
        if not text or text.startswith("--"):
            raise CommandError(f"--{name} needs a value: --{name} {option.value}")
        value = _read(option, text)
        if option.many:
            found[into] = (*found.get(into, ()), *(value if isinstance(value, list) else [value]))
        else:
            found[into] = value
    return rest, found


def _read(option: Option, text: str) -> Any:
    assert option.read is not None
    try:
        return option.read(bare(text))
    except CommandError as err:
        said = str(err)
        raise CommandError(said if said.startswith("--") else f"--{option.name}: {said}") from None
