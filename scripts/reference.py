"""Write docs/reference.md from the code: verbs, options, names, actions, events.

    python -m scripts.reference

A test fails when the page is not what this writes.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import it2nb
from it2nb.core.session import Session
from it2nb.core.wire import SOURCES
from it2nb.notebook.options import CELL_OPTIONS, VERBS
from it2nb.session import TrainingSession
from scripts.events import EVENTS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference.md"
HEAD = """# Reference

Made by `python -m scripts.reference` from the code itself; a test fails when it is stale. What each
name does in full stands in its docstring: `help(it2nb.TrainingSession.step)`, `it2nb.at?`.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_magics(), *_names(), *_session(), *_actions(), *_events()])


def _magics() -> Iterator[str]:
    yield "## `%%it2`: options\n\n| option | what it does |\n|---|---|"
    for each in CELL_OPTIONS:
        yield f"| `{_cell(f'--{each.name} {each.value}'.strip())}` | {_cell(each.help)} |"
    yield "\n## `%it2`: verbs\n\n| line | what it does | options |\n|---|---|---|"
    for verb in VERBS.values():
        options = ", ".join(f"`--{each.name}`" for each in verb.options)
        line = _cell(f"%it2 {verb.name} {verb.usage}".strip())
        yield f"| `{line}` | {_cell(verb.help)} | {options} |"
    yield ""


def _names() -> Iterator[str]:
    yield "## `import it2nb`\n\n| name | what it is |\n|---|---|"
    for name in sorted(it2nb.__all__, key=str.lower):
        if not name.startswith("__"):
            yield f"| `{name}` | {_cell(_said_of(name))} |"
    yield ""


def _session() -> Iterator[str]:
    yield "## `TrainingSession`\n\n| member | what it does |\n|---|---|"
    for name, member in sorted(inspect.getmembers(TrainingSession)):
        if name.startswith("_") or not (inspect.isfunction(member) or isinstance(member, property)):
            continue
        called = f"{name}()" if inspect.isfunction(member) else name
        yield f"| `{called}` | {_cell(_first(member))} |"
    yield ""


def _actions() -> Iterator[str]:
    yield (
        "## Built-in actions\n\nAsked for with `session.do(name, ...)`, `%it2 do name ...`, a "
        "button or `POST /actions`; a session that knows its model and optimizer has more (`undo`, "
        "`goto`, `fork`, `freeze`...): `%it2 actions` lists them.\n\n"
        "| action | what it does | arguments |\n|---|---|---|"
    )
    session = Session(directory=None)
    for each in session.actions.schemas():
        args = ", ".join(f"`{name}`" for name in each.args.get("properties", {}))
        yield f"| `{each.name}` | {_cell(each.description)} | {args} |"
    session.finish()
    yield ""


def _events() -> Iterator[str]:
    yield (
        "## Events\n\nRows of the journal, and what sockets and subscribers hear. `source` is one "
        f"of {', '.join(f'`{each}`' for each in SOURCES)}.\n\n| type | when |\n|---|---|"
    )
    for name, when in sorted(EVENTS.items()):
        yield f"| `{name}` | {_cell(when)} |"
    yield ""


def _said_of(name: str) -> str:
    """What a public name is, read from its file: some can't be imported without an extra."""
    if name not in it2nb._HOMES:
        return _first(getattr(it2nb, name))
    return _paragraph(_docstring(it2nb._HOMES[name], name))


def _docstring(module: str, name: str) -> str:
    base = ROOT / Path(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name == name:
            text = ast.get_docstring(node)
            if text:  # an overload has none
                return text
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                if (each.asname or each.name) == name:
                    return _docstring(node.module, each.name)
    raise LookupError(f"{name} has no docstring in {module}")


def _first(thing: Any) -> str:
    return _paragraph(inspect.getdoc(thing) or "")


def _paragraph(text: str) -> str:
    """The first paragraph of a docstring, in one line."""
    return " ".join(text.partition("\n\n")[0].split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def emitted(folder: Path = ROOT / "it2nb") -> set[str]:
    """Find the types of all events that the code writes: literals in calls that write rows."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
                found.update(_types(call.func.attr, call.args))
    return found


def _types(called: str, args: list[ast.expr]) -> Iterator[str]:
    if called in ("emit", "append") and len(args) >= 2:
        yield from _texts([args[0]])
    if called in ("write_rows", "append_many", "put") and args:
        pairs = [each for each in ast.walk(args[0]) if isinstance(each, ast.Tuple)]
        yield from _texts([each.elts[0] for each in pairs if len(each.elts) == 2])
    if called == "append" and len(args) == 1 and isinstance(args[0], ast.Tuple):
        pair = args[0].elts
        if len(pair) == 2 and isinstance(pair[1], (ast.Dict, ast.Name)):
            yield from _texts([pair[0]])


def _texts(nodes: list[ast.expr]) -> Iterator[str]:
    for node in nodes:
        branches = [node.body, node.orelse] if isinstance(node, ast.IfExp) else [node]
        for each in branches:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                yield each.value


if __name__ == "__main__":
    PAGE.write_text(page())
    sys.stdout.write(f"{PAGE.relative_to(ROOT)}\n")
