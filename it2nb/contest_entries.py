"""What an arena is given, looked at before anything trains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from it2nb.controllers.rules import rule
from it2nb.core.errors import It2nbError, near


def check_workflow(workflow: Any) -> None:
    """Raise where it is no workflow that could train."""
    if isinstance(workflow, type) or not all(
        hasattr(workflow, each) for each in ("goal", "check", "train", "steps")
    ):
        made = f": make one, {workflow.__name__}()" if isinstance(workflow, type) else ""
        raise It2nbError(f"workflow={workflow!r:.80} is no workflow{made or ', such as Digits()'}")


def entries_of(controllers: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return who plays, by name.

    Raises
    ------
    It2nbError
        If nobody does, one plays twice, or no controller has a name that is given.
    """
    if isinstance(controllers, (str, bytes)) or not isinstance(controllers, Iterable):
        raise It2nbError(
            f"controllers={controllers!r:.60} has to be a list of names or a mapping, as in "
            f"['none', 'rule']"
        )
    if isinstance(controllers, Mapping):
        entries = dict(controllers)
    else:
        listed = list(controllers)
        odd = [each for each in listed if not isinstance(each, str)]
        if odd:
            raise It2nbError(f"{odd[0]!r:.60} is no name; in a mapping it may have one")
        twice = sorted({each for each in listed if listed.count(each) > 1})
        if twice:
            raise It2nbError(f"controllers: {', '.join(twice)} would play twice")
        entries = {name: name for name in listed}
    if not entries:
        raise It2nbError(f"controllers are none; known by name: {', '.join(names)}")
    for name, what in entries.items():
        _check_entry(name, what, names)
    return entries


def _check_entry(name: Any, what: Any, names: tuple[str, ...]) -> None:
    if isinstance(what, str):
        if what in names:
            return
        if ":" not in what:
            raise It2nbError(f"{name}: no controller is named {what!r:.60}{near(what, names)}")
        rule(what)  # says what is wrong with it
    elif not callable(what) and not any(hasattr(what, each) for each in ("ask", "plan", "act")):
        raise It2nbError(
            f"{name}: {what!r:.60} is no controller; give a name, a rule's text or a function "
            f"that makes a controller of a seed"
        )


def check_seeds(seeds: Any) -> None:
    """Raise where a seed plays twice, or is none that could be seeded with."""
    listed = list(seeds)
    if not all(type(each) is int and each >= 0 for each in listed) or not listed:
        raise It2nbError(f"seeds={seeds!r:.60} has to be whole numbers from 0, at least one")
    if len(set(listed)) < len(listed):
        raise It2nbError(f"seeds={listed!r:.60}: one of them is there twice")
