"""The code of a cell, compiled as IPython would: its own file name, its own line numbers."""

from __future__ import annotations

import ast
import hashlib
import io
import token
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

Rewrite = Callable[[ast.Module], ast.Module]


@dataclass(frozen=True, slots=True)
class Cell:
    """A compiled ``%%it2`` cell.

    Attributes
    ----------
    text : str
        The body, as the user wrote it.
    filename : str
        Of the whole cell, as tracebacks and the debugger know it.
    number : int
        The execution count, ``In[number]``.
    code : CodeType
        All statements but a displayed last expression.
    last : CodeType or None
        The last expression, whose value is displayed.
    """

    text: str
    filename: str
    number: int
    code: CodeType
    last: CodeType | None

    @property
    def sha256(self) -> str:
        """Hash of the body, for the record of the run."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


def compile_cell(
    shell: Any, header: str, body: str, *, raw: str | None = None, rewrite: Rewrite | None = None
) -> Cell:
    """Compile the body of a cell magic so that its errors name the user's own lines.

    Parameters
    ----------
    shell : InteractiveShell
    header : str
        The magic's own line, ``"%%it2 --watch loss"``.
    body : str
        What stands below it.
    raw : str, optional
        The whole cell where it is known: blank lines above the magic count as lines too.
    rewrite : callable, optional
        Changes the syntax tree (`loops.wrap`).

    Raises
    ------
    SyntaxError
        With the line in the cell, also for a ``return`` outside of a function. Nothing ran.
    """
    if raw is None or not _is_end_of(body, raw):
        raw = f"{header}\n{body}"
    above = len(_lines(raw)) - len(_lines(body))
    filename = _register(shell, raw, shell.transform_cell(body), body, above)
    source = _shifted(shell.transform_cell(body), body, above)
    tree = shell.compile.ast_parse(source, filename, "exec")
    tree = shell.transform_ast(tree)
    statements, last = _split_last(shell, tree, body)
    if rewrite is not None:
        statements = rewrite(statements)
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if shell.autoawait else 0
    with shell.compile.extra_flags(flags):
        code = shell.compile(statements, filename, "exec")
        value = None if last is None else shell.compile(last, filename, "eval")
    return Cell(body, filename, shell.execution_count, code, value)


def _register(shell: Any, raw: str, transformed: str, body: str, above: int) -> str:
    """Make the cell's lines known to tracebacks; returns its file name."""
    # Tracebacks parse the source to show whole statements, and a magic is no Python.
    head = [f"#{line}" if line.strip() else line for line in _lines(raw)[:above]]
    shown = "\n".join([*head, _shifted(transformed, body, 0)])
    return str(shell.compile.cache(shown, shell.execution_count, raw_code=raw))


def _shifted(transformed: str, body: str, above: int) -> str:
    """Move code down to the lines where the user sees it."""
    # transform_cell drops blank lines at the top.
    lines = _lines(body)
    blank = next((index for index, line in enumerate(lines) if line.strip()), 0)
    return "\n" * (above + blank) + transformed


def _split_last(
    shell: Any, tree: ast.Module, body: str
) -> tuple[ast.Module, ast.Expression | None]:
    wanted = shell.ast_node_interactivity in ("last_expr", "last_expr_or_assign", "all")
    if not wanted or not tree.body or not isinstance(tree.body[-1], ast.Expr) or _is_quiet(body):
        return tree, None
    last = tree.body[-1]
    return ast.Module(tree.body[:-1], type_ignores=[]), ast.Expression(last.value)


def _is_quiet(body: str) -> bool:
    """Tell whether the code ends with a semicolon, as people write it to show no value."""
    skipped = {token.NEWLINE, token.NL, token.COMMENT, token.ENDMARKER, token.DEDENT}
    last = ""
    try:
        for each in tokenize.generate_tokens(io.StringIO(body).readline):
            if each.type not in skipped:
                last = each.string
    except (tokenize.TokenError, SyntaxError):
        return False  # it holds a magic or shell line; Python's own tokenizer can't say
    return last == ";"


def _is_end_of(body: str, raw: str) -> bool:
    return raw.rstrip("\n").endswith(body.rstrip("\n")) and "%%it2" in raw


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")
