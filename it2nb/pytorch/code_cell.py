"""The text of a cell with calls around its updates; all else stays as the user wrote it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Insertion:
    """Text that comes in front of a place."""

    line: int
    column: int
    text: str


class Cell:
    """A cell's source, and where in it updates are made.

    Parameters
    ----------
    text : str
        Lines that are no Python (``%time``, ``!ls``) are left alone.

    Raises
    ------
    SyntaxError
    """

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        hidden = [_MAGIC.sub(r"\1pass  #", line) for line in self.lines]
        self.tree = ast.parse("\n".join(hidden))
        self._inserted: list[Insertion] = []

    def steps_of(self, optimizer: str) -> list[ast.stmt]:
        """Find the statements in which an optimizer makes its step, itself or by a scaler."""
        return [
            statement
            for statement in _statements(self.tree)
            if any(_is_step(node, optimizer) for node in _own(statement))
        ]

    def is_in_function(self, statement: ast.stmt) -> bool:
        """Whether a statement stands inside of a function."""
        return any(
            statement in list(ast.walk(node))
            for node in ast.walk(self.tree)
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef))
        )

    def around(self, statement: ast.stmt, before: str, after: str) -> None:
        """Put a call before a statement and one behind it; empty for none."""
        first, last = self.lines[statement.lineno - 1], self.lines[_end(statement) - 1]
        start = _column(first, statement.col_offset)
        stop = _column(last, statement.end_col_offset or 0)
        alone_before = not first[:start].strip()
        alone_after = not last[stop:].strip(" \t") or last[stop:].lstrip().startswith("#")
        indent = first[:start] if alone_before else ""
        if before:
            text = f"{before}\n{indent}" if alone_before else f"{before}; "
            self._inserted.append(Insertion(statement.lineno, start, text))
        if after:
            end = len(last) if alone_after and alone_before else stop
            text = f"\n{indent}{after}" if alone_before and alone_after else f"; {after}"
            self._inserted.append(Insertion(_end(statement), end, text))

    def turns(self) -> bool:
        """Count the turns of the outermost loops; False where there is none."""
        loops = list(_outermost(self.tree))
        for loop in loops:
            node = loop.iter if isinstance(loop, ast.For) else loop.test
            first, last = self.lines[node.lineno - 1], self.lines[(node.end_lineno or 1) - 1]
            opened = "turns(" if isinstance(loop, ast.For) else "turn() and ("
            start = _column(first, node.col_offset)
            stop = _column(last, node.end_col_offset or 0)
            self._inserted.append(Insertion(node.lineno, start, opened))
            self._inserted.append(Insertion(node.end_lineno or 1, stop, ")"))
        return bool(loops)

    def text(self) -> str:
        """Return the source with what was put in."""
        lines = list(self.lines)
        for each in sorted(self._inserted, key=lambda i: (i.line, i.column), reverse=True):
            line = lines[each.line - 1]
            lines[each.line - 1] = line[: each.column] + each.text + line[each.column :]
        return "\n".join(lines)


def indented(text: str) -> str:
    """Indent a source by four blanks, but not the inside of its strings.

    Raises
    ------
    SyntaxError
    """
    tree = ast.parse(text)
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        ):
            inside.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    return "\n".join(
        line if number in inside or not line.strip() else f"    {line}"
        for number, line in enumerate(text.split("\n"), 1)
    )


#: A line magic or a shell line; a cell with other magics in it is no Python.
_MAGIC = re.compile(r"^(\s*)[%!]")


def _is_step(node: ast.AST, optimizer: str) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
        return False
    if node.func.attr != "step":
        return False
    # opt.step(), or scaler.step(opt)
    return any(ast.unparse(each) == optimizer for each in (node.func.value, *node.args[:1]))


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            yield node


def _own(statement: ast.stmt) -> Iterator[ast.AST]:
    """Walk a statement without the statements inside of it."""
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [
            each
            for each in ast.iter_child_nodes(node)
            if not isinstance(each, (ast.stmt, ast.Lambda))
        ]


def _outermost(tree: ast.Module) -> Iterator[ast.For | ast.While]:
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, (ast.For, ast.While)):
            yield node
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            waiting += [each for each in ast.iter_child_nodes(node) if isinstance(each, ast.stmt)]


def _end(statement: ast.stmt) -> int:
    return statement.end_lineno or statement.lineno


def _column(line: str, offset: int) -> int:
    """Turn an offset in UTF-8 bytes into one in characters."""
    return len(line.encode()[:offset].decode(errors="ignore"))
