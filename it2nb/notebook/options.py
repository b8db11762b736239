"""The options of ``%%it2`` and the verbs of ``%it2``, and how their values are read."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from it2nb.core.errors import near
from it2nb.integrations.trackers import NAMES as TRACKERS
from it2nb.notebook.words import CommandError, bare, literal, split


@dataclass(frozen=True, slots=True)
class Watch:
    """One watched value: ``loss``, ``lr=opt.param_groups[0]['lr']``.

    Attributes
    ----------
    name : str
        The metric's name.
    expression : str
        What is looked at; the same as `name` when no other was given.
    """

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class KnobSpec:
    """A variable of the namespace that is to be a knob: ``clip=0.1:10:log``, ``mode=a|b``.

    Attributes
    ----------
    name : str
        The knob's name, which is the target itself: ``"clip"``, ``"cfg.clip"``.
    min, max : float or int, optional
    scale : {"linear", "log"}
    choices : tuple, optional
    """

    name: str
    min: float | int | None = None
    max: float | int | None = None
    scale: Literal["linear", "log"] = "linear"
    choices: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True)
class Option:
    """One ``--option``: how its value is read, and what it means."""

    name: str
    help: str
    value: str = ""
    read: Callable[[str], Any] | None = None
    into: str = ""
    constant: Any = True
    many: bool = False


def _watches(text: str) -> list[Watch]:
    found = []
    for item in split(bare(text), ","):
        # `==`, `<=` and the like belong to the expression.
        named = re.match(r"([A-Za-z_][\w./-]*)\s*=(?!=)\s*(.+)", item, re.DOTALL)
        name, expression = (named[1], named[2]) if named else (item, item)
        _check_expression(expression, f"--watch {item}")
        found.append(Watch(name, expression))
    if not found:
        raise CommandError("--watch needs names: --watch loss,acc")
    return found


def _check_expression(text: str, where: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError as err:
        raise CommandError(f"{where}: {text!r} is no Python expression ({err.msg})") from None


def _knob(text: str) -> KnobSpec:
    target, mark, rest = text.partition("=")
    target = target.strip()
    node = _check_expression(target, f"--knob {text}")
    if not isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
        raise CommandError(
            f"--knob {text}: {target!r} can't be assigned to; name a variable, an attribute "
            f"(cfg.clip) or an item (cfg['clip'])"
        )
    if not mark:
        return KnobSpec(target)
    if "|" in rest:
        choices = tuple(literal(each) for each in split(rest, "|"))
        return KnobSpec(target, choices=choices)
    bounds = [each.strip() for each in rest.split(":")]
    scale: Literal["linear", "log"] = "linear"
    if bounds[-1] in ("log", "linear"):
        scale = "log" if bounds.pop() == "log" else "linear"
    if len(bounds) != 2:
        raise CommandError(
            f"--knob {text}: {rest!r} has to be lo:hi or lo:hi:log (clip=0.1:10:log), "
            f"or choices (mode=a|b|c)"
        )
    low, high = (_bound(each, text) for each in bounds)
    if low is not None and high is not None and low > high:
        raise CommandError(f"--knob {text}: {low:g} is above {high:g}")
    return KnobSpec(target, low, high, scale)


def _bound(text: str, where: str) -> float | int | None:
    if not text:
        return None
    value = literal(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise CommandError(f"--knob {where}: {text!r} is no number; leave it empty for no bound")
    return value


def _whole(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        try:
            value = int(text.replace("_", ""))
        except ValueError:
            raise CommandError(f"{text!r} is no whole number") from None
        if value < least:
            raise CommandError(f"{value} is too small; at least {least}")
        return value

    return read


def _at(text: str) -> str:
    if text not in ("optimizer", "loop", "session", "auto"):
        raise CommandError(f"{text!r} has to be optimizer, loop, session or auto")
    return text


def _expression(text: str) -> str:
    _check_expression(text, "--evaluate")
    return text


def _rule(text: str) -> str:
    from it2nb.controllers.grammar import parse
    from it2nb.controllers.rule_words import RuleError

    said = bare(text)
    try:
        parse(said)
    except RuleError as err:
        raise CommandError(str(err)) from None
    return said


def _identifier(text: str) -> str:
    if not text.isidentifier():
        raise CommandError(f"{text!r} has to be the name of a variable that holds a session")
    return text


def _trackers(text: str) -> list[str]:
    found = split(bare(text), ",")
    for name in found:
        if name not in TRACKERS:
            raise CommandError(f"no tracker is named {name!r:.60}{near(name, TRACKERS)}")
    return found


def _seconds(text: str) -> float:
    value = literal(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise CommandError(f"{text!r} is no number of seconds")
    return float(value)


CELL_OPTIONS: tuple[Option, ...] = (
    Option("watch", "values to record at each step: variables, or name=expression",
           "NAME[,NAME...]", _watches, "watch", many=True),
    Option("knob", "a variable to steer: lo:hi, lo:hi:log, or choices a|b|c",
           "NAME=lo:hi[:log]", _knob, "knobs", many=True),
    Option("evaluate", "function that the evaluate button runs", "FN", _expression),
    Option("session", "a session of your own to run with", "NAME", _identifier),
    Option("steps", "how long the run is, for the progress bar", "N", _whole(1)),
    Option("at", "what is one step: optimizer (its step), loop (a turn of the outermost loop), "
           "session (the cell calls session.step itself)", "WHAT", _at),
    Option("name", "title of the run", "TITLE", bare, "title"),
    Option("title", "the same as --name", "TITLE", bare, "title"),
    Option("seed", "seed Python, NumPy and PyTorch first, and record it", "N", _whole(0)),
    Option("replay", "do a recorded run again: its journal, its folder, or an exported run.zip",
           "FILE", bare),
    Option("go-on", "replay also where this cell is not the recorded one"),
    Option("goal", "the metric that the run is after", "METRIC", bare),
    Option("rule", "a rule to steer by: \"loss > 5 for 20 steps: pause\"; may be given again",
           "TEXT", _rule, "rules", many=True),
    Option("dir", "folder of the journal, it2runs by default; none keeps it in memory", "DIR",
           bare, "directory"),
    Option("track", "copy the run into tensorboard, wandb (offline), mlflow, trackio, aim",
           "NAME[,NAME...]", _trackers, "track", many=True),
    Option("wait", "the cell waits for the end of the run", constant=True),
    Option("no-wait", "the cell returns at once, also in a headless run", into="wait",
           constant=False),
    Option("steps-of", "the optimizer whose steps count, where there are several", "NAME", bare),
    Option("modules", "the settings of the model's layers (dropout, eps, momentum) as knobs"),
    Option(
        "no-snapshots",
        "keep no snapshots in memory; then there is no undo",
        into="snapshots",
        constant=False,
    ),
    Option("no-panel", "show no panel", into="panel", constant=False),
    Option("no-heartbeat", "no sign of life to the server while the run goes on",
           into="heartbeat", constant=False),
    Option("autosave", "seconds between two checkpoints that are saved by themselves, 600 by "
           "default; 0 saves none", "S", _seconds),
    Option("help", "show this"),
)  # fmt: skip

_TIMEOUT = Option("timeout", "seconds to wait for the result", "S", _seconds)
_REASON = Option("reason", "why, for the journal", "TEXT", bare)


@dataclass(frozen=True, slots=True)
class Verb:
    """One ``%it2`` verb: its arguments, how many, and what it does."""

    name: str
    usage: str
    help: str
    least: int = 0
    most: int = 0
    pairs: bool = False
    options: tuple[Option, ...] = ()
    #: Whether the rest of the line is one text.
    is_text: bool = False


VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (
        Verb("status", "", "how the run is doing"),
        Verb("knobs", "[NAME|all]", "the knobs, their values and bounds; a pattern such as betas*",
             0, 1),
        Verb("set", "NAME VALUE", "set a knob", 2, 2, True,
             (Option("mode", "rescale, hold or release", "MODE", bare), _REASON, _TIMEOUT)),
        Verb("do", "ACTION [k=v ...]", "ask for an action", 1, 1, True, (_REASON, _TIMEOUT)),
        Verb("actions", "", "what can be asked for"),
        Verb("pause", "", "hold the loop between two steps", options=(_REASON, _TIMEOUT)),
        Verb("resume", "", "go on", options=(_REASON, _TIMEOUT)),
        Verb("stop", "", "end the run after the step under way", options=(_REASON, _TIMEOUT)),
        Verb("evaluate", "", "evaluate now; returns the metrics", options=(_REASON, _TIMEOUT)),
        Verb("save", "[TAG]", "save a checkpoint; returns path and hash", 0, 1,
             options=(_REASON, _TIMEOUT)),
        Verb("load", "[FILE]", "go back to a checkpoint: file, folder or tag; the newest one", 0, 1,
             options=(_REASON, _TIMEOUT)),
        Verb("undo", "", "take the last change back: the state from before it, in a new branch",
             options=(Option("knobs-only", "put back the knobs alone; the training goes on"),
                      _REASON, _TIMEOUT)),
        Verb("goto", "STEP", "go back to a step, or the nearest before it that is kept", 1, 1,
             options=(_REASON, _TIMEOUT)),
        Verb("wait", "[SECONDS]", "wait for the end; interrupting it ends the wait alone", 0, 1),
        Verb("panel", "", "show the panel here too"),
        Verb("journal", "[ROWS]", "what happened and what became of requests, newest last", 0, 1,
             options=(Option("type", "only events of this type", "TYPE", bare),)),
        Verb("plot", "[METRIC ...]", "curves with a marker at each change", 0, 12),
        Verb("runs", "", "all runs of this kernel"),
        Verb("policy", "", "the rules in force"),
        Verb("rule", "TEXT", "add a rule to the run: loss > 5 for 20 steps: pause", 1, 1,
             is_text=True),
        Verb("rules", "", "the rules, agents and searches of the run"),
        Verb("export", "[FOLDER|run.zip|run.html]", "write the run: a folder of files, one zip "
             "that it2nb.open reads, or a report to look at", 0, 1),
        Verb("help", "[VERB]", "show this", 0, 1),
    )
}  # fmt: skip


def usage() -> str:
    """Return the help of both magics as text."""
    lines = ["%%it2 [options]   run the cell's loop in the background, with a panel", ""]
    lines += [f"  {f'--{each.name} {each.value}'.rstrip():28}{each.help}" for each in CELL_OPTIONS]
    lines += ["", "%it2 VERB"]
    shown = [(f"{each.name} {each.usage}".rstrip(), each.help) for each in VERBS.values()]
    width = max(len(call) for call, _ in shown) + 2
    lines += [f"  {call:{width}}{text}" for call, text in shown]
    return "\n".join(lines)
