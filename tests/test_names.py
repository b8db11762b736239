"""Public names: each loads, each is known to type checkers, and none loads more than it needs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import it2nb


def test_every_public_name_loads_and_is_listed() -> None:
    for name in it2nb.__all__:
        assert getattr(it2nb, name) is not None
        assert name in dir(it2nb)


def test_type_checkers_know_the_same_names_from_the_same_files() -> None:
    tree = ast.parse(Path(it2nb.__file__).read_text())
    known = {
        alias.name: node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert known == it2nb._HOMES


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        it2nb.nothing  # noqa: B018


def test_importing_the_package_loads_neither_torch_nor_ipython_nor_pandas() -> None:
    script = (
        "import sys, it2nb, it2nb.core.session\n"
        "heavy = {'torch', 'IPython', 'pandas', 'plotly', 'ipywidgets', 'transformers'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
