from __future__ import annotations

import linecache
import traceback
from typing import Any

import pytest

from it2nb.notebook.cell import Cell, compile_cell


def compiled(shell: Any, body: str, raw: str | None = None) -> Cell:
    return compile_cell(shell, "%%it2 --watch loss", body, raw=raw)


def line_of_error(cell: Cell, shell: Any) -> int:
    try:
        exec(cell.code, shell.user_ns)
    except ZeroDivisionError as err:
        return traceback.extract_tb(err.__traceback__)[-1].lineno or 0
    raise AssertionError


@pytest.mark.parametrize(
    ("above", "between", "line"), [("", "", 3), ("", "\n\n", 5), ("\n\n", "", 5), ("\n", "\n", 5)]
)
def test_lines_are_counted_as_the_user_sees_them_c33(
    shell: Any, above: str, between: str, line: int
) -> None:
    body = f"{between}x = 1\ny = 1 / 0\n"
    cell = compiled(shell, body, raw=f"{above}%%it2 --watch loss\n{body}".rstrip("\n"))
    assert line_of_error(cell, shell) == line
    assert linecache.getline(cell.filename, line).strip() == "y = 1 / 0"


def test_without_the_raw_text_the_magic_is_line_one(shell: Any) -> None:
    assert line_of_error(compiled(shell, "x = 1\ny = 1 / 0\n"), shell) == 3


def test_a_syntax_error_names_the_line_c33(shell: Any) -> None:
    with pytest.raises(SyntaxError) as caught:
        compiled(shell, "x = 1\nfor in range(3):\n    pass\n")
    assert caught.value.lineno == 3


def test_return_outside_of_a_function_is_refused_before_anything_runs_c33(shell: Any) -> None:
    with pytest.raises(SyntaxError, match="outside function") as caught:
        compiled(shell, "ran = 1\nreturn ran\n")
    assert caught.value.lineno == 3
    assert "ran" not in shell.user_ns


def test_ipython_syntax_is_transformed(shell: Any) -> None:
    exec(compiled(shell, "who = %config\nhome = !echo hi\n").code, shell.user_ns)
    assert list(shell.user_ns["home"]) == ["hi"]


def test_the_last_expression_is_apart(shell: Any) -> None:
    cell = compiled(shell, "x = 1\nx + 1\n")
    assert cell.last is not None
    exec(cell.code, shell.user_ns)
    assert eval(cell.last, shell.user_ns) == 2


@pytest.mark.parametrize("body", ["x = 1\n", "x = 1\nx;\n", "x = 1\nx;  # quiet\n", "pass\n"])
def test_a_semicolon_or_a_statement_shows_nothing(shell: Any, body: str) -> None:
    assert compiled(shell, body).last is None


def test_await_is_allowed_at_the_top(shell: Any) -> None:
    import inspect

    cell = compiled(shell, "import asyncio\nawait asyncio.sleep(0)\nx = 2\n")
    assert cell.code.co_flags & inspect.CO_COROUTINE


def test_future_statements_hold_for_the_cell(shell: Any) -> None:
    cell = compiled(shell, "from __future__ import annotations\ndef f(x: not_there) -> None: ...\n")
    exec(cell.code, shell.user_ns)
    assert shell.user_ns["f"].__annotations__["x"] == "not_there"


def test_the_hash_is_that_of_the_text(shell: Any) -> None:
    assert compiled(shell, "x = 1\n").sha256 == compiled(shell, "x = 1\n").sha256
    assert compiled(shell, "x = 1\n").sha256 != compiled(shell, "x = 2\n").sha256
