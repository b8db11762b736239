"""A cell that may start: compiled and checked, while nothing of a run exists yet."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from it2nb.core.errors import It2nbError, KnobRangeError, near
from it2nb.core.replay import Replay, replay
from it2nb.core.session import Session
from it2nb.integrations.trackers import check_tracker
from it2nb.notebook import modes
from it2nb.notebook.cell import Cell, compile_cell
from it2nb.notebook.commands import At, CellOptions
from it2nb.notebook.control_points import control_points, own_session, steps_itself
from it2nb.notebook.discover import is_there, root_of, variable_knob
from it2nb.notebook.loops import wrap
from it2nb.notebook.names import Names, local_names, names_of, reach


@dataclass(frozen=True, slots=True)
class Plan:
    """What a ``%%it2`` cell asks for.

    Attributes
    ----------
    options : CellOptions
        With the session that the cell steps by itself filled in.
    line : str
        What stood behind ``%%it2``.
    cell : Cell
    at : str
        What makes a step.
    names : Names
        Global names that the cell itself uses.
    locals : frozenset of str
        Every variable in its code, for names that are bound later.
    modes : ThreadModes
        Of the cell.
    again : Replay or None
        The recorded run that this one repeats.
    """

    options: CellOptions
    line: str
    cell: Cell
    at: At
    names: Names
    locals: frozenset[str]
    modes: modes.ThreadModes
    again: Replay | None


def plan_of(shell: Any, line: str, options: CellOptions, body: str, raw: str | None) -> Plan:
    """Compile a cell and refuse what can be seen to be wrong before anything runs.

    Raises
    ------
    SyntaxError
        With the user's own line.
    It2nbError
        With what was wrong and what to do.
    """
    space: dict[str, Any] = shell.user_ns
    # The loops of functions are left alone where they may train: a compiler may read them.
    in_functions = options.at == "loop" or (options.at == "auto" and "torch" not in sys.modules)
    loops_found = 0
    by_itself = False

    def rewrite(tree: Any) -> Any:
        nonlocal loops_found, by_itself
        by_itself = steps_itself(tree)
        tree, loops_found = wrap(tree, in_functions=in_functions)
        return tree

    cell = compile_cell(shell, f"%%it2 {line}".rstrip(), body, raw=raw, rewrite=rewrite)
    for name in options.track:
        check_tracker(name)
    own = names_of(cell.code, cell.last)
    used = reach(own, space)
    if options.session is None:
        options = replace(options, session=own_session(used, space))
    else:
        _check_session(options.session, space)
    again = None if options.replay is None else replay(options.replay)
    if again is not None:
        again.check(cell.text, go_on=options.go_on)
    found = Plan(
        options=options,
        line=line,
        cell=cell,
        at=control_points(options, used, loops_found, space, by_itself=by_itself),
        names=own,
        locals=local_names(cell.code),
        modes=modes.capture(),
        again=again,
    )
    _check_evaluate(found, space)
    _check_knobs(found, space)
    _check_steps_of(found, space, reach(own, space))
    return found


def _check_session(name: str, space: Mapping[str, Any]) -> None:
    session = space.get(name)
    if not isinstance(session, Session):
        what = f"it is a {type(session).__name__}" if name in space else "there is no such variable"
        raise It2nbError(f"--session {name}: {what}; give a TrainingSession")
    if session.is_ended:
        raise It2nbError(
            f"--session {name}: {session.run_id} is over ({session.status}); a session is one "
            f"run, so make a new one in its place"
        )


def _check_evaluate(plan: Plan, space: Mapping[str, Any]) -> None:
    asked = plan.options.evaluate
    if asked is None or root_of(asked) in space or root_of(asked) in plan.locals:
        return
    known = [name for name, value in space.items() if callable(value) and name[0] != "_"]
    raise It2nbError(
        f"--evaluate {asked}: there is no {root_of(asked)!r}{near(root_of(asked), known)}"
    )


def _check_steps_of(plan: Plan, space: Mapping[str, Any], used: Names) -> None:
    name = plan.options.steps_of
    if name is None:
        return
    if not name.isidentifier():
        return
    mentioned = plan.locals | used.all | used.attributes
    if name not in space and name in mentioned | _optimizer_classes():
        return  # made later
    if name in space and (hasattr(space[name], "param_groups") or name in used.binds):
        return
    if name in space:
        raise It2nbError(f"--steps-of {name}: it is a {type(space[name]).__name__}, no optimizer")
    known = [each for each, value in space.items() if hasattr(value, "param_groups")]
    raise It2nbError(f"--steps-of {name}: there is no {name!r}{near(name, known)}")


def _optimizer_classes() -> set[str]:
    """What an optimizer is called that no variable holds."""
    optim: Any = sys.modules.get("torch.optim")
    found: set[str] = set()
    left = [] if optim is None else [optim.Optimizer]
    while left:
        kind = left.pop()
        found |= {kind.__name__, kind.__name__.lower()}
        left += kind.__subclasses__()
    return found


def _check_knobs(plan: Plan, space: dict[str, Any]) -> None:
    for spec in plan.options.knobs:
        root = root_of(spec.name)
        if not is_there(spec, space) and root in plan.locals:
            continue
        try:
            variable_knob(spec, space)
        except KnobRangeError:
            if root not in plan.names.binds:  # else the cell gives it a value of its own first
                raise
