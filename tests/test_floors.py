"""The house keeps its floors: who may import whom, and what an import may bring along."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT

PACKAGE = ROOT / "it2nb"
MODULES = sorted(PACKAGE.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PACKAGES = {dotted(path) for path in MODULES if path.name == "__init__.py"}
NAMES = {dotted(path) for path in MODULES}


def imports(source: str) -> Iterator[tuple[str, str, int]]:
    """Yield (module, name, line) of each ``from module import name``, lazy ones too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import; write the whole name"
            for alias in node.names:
                yield node.module or "", alias.name, node.lineno
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, "", node.lineno


def from_a_package(source: str) -> list[str]:
    """List the imports that take a name from a package's ``__init__``."""
    return [
        f"line {line}: {module}.{name}".rstrip(".")
        for module, name, line in imports(source)
        if module in PACKAGES and f"{module}.{name}" not in NAMES
    ]


def test_contracts_of_pyproject_are_kept() -> None:
    found = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_names_are_imported_from_the_file_that_defines_them(path: Path) -> None:
    assert from_a_package(path.read_text()) == []


def test_an_import_from_a_package_is_found() -> None:
    assert from_a_package("def f():\n    from it2nb.core import Session") == [
        "line 2: it2nb.core.Session"
    ]
    assert from_a_package("import it2nb") == ["line 1: it2nb"]
    assert from_a_package("from it2nb.core import wire\nfrom it2nb.core.wire import Action") == []


def loaded_by(statement: str) -> set[str]:
    """Return the top names of the modules in a fresh interpreter after ``statement``."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    ).stdout
    return {name.partition(".")[0] for name in json.loads(out)}


def test_import_brings_neither_torch_nor_ipython() -> None:
    heavy = {"torch", "IPython", "ipykernel", "ipywidgets", "anywidget", "pandas", "plotly"}
    assert loaded_by("import it2nb") & heavy == set()
    assert loaded_by("import it2nb.core.session") & heavy == set()


def test_every_extra_that_a_message_names_exists() -> None:
    named = {
        (match[1], path.name)
        for path in MODULES
        for match in re.finditer(r"require\([^)]*extra=[\"']([a-z]+)[\"']", path.read_text())
    }
    unknown = {
        pair for pair in named if pair[0] not in PYPROJECT["project"]["optional-dependencies"]
    }
    assert unknown == set()


def test_requirements_of_an_extra_include_those_of_the_extras_inside_it() -> None:
    out = subprocess.run(
        [sys.executable, ROOT / "scripts/requirements.py", "dev"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    project = PYPROJECT["project"]
    assert set(project["dependencies"][0].split()) <= set(out)
    assert any(line.startswith("torch>=") for line in out)
    assert not any(line.startswith("it2nb") for line in out)


# Packages that come with one that is declared, because it is made of them; and other names.
COMES_WITH = {
    "IPython": "ipykernel",
    "PIL": "pillow",
    "anthropic": "pydantic-ai-slim",
    "anyio": "mcp",
    "comm": "ipykernel",
    "httpx2": "pydantic-ai-slim",
    "jupyter_client": "ipykernel",
    "mcp_types": "mcp",
    "openai": "pydantic-ai-slim",
    "pydantic_ai": "pydantic-ai-slim",
    "starlette": "fastapi",
    "tornado": "ipykernel",
    "traitlets": "ipykernel",
    "zmq": "ipykernel",
}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    imported = {
        COMES_WITH.get(top, top)
        for path in MODULES
        for module, _, _ in imports(path.read_text())
        if (top := module.partition(".")[0]) not in {*sys.stdlib_module_names, "it2nb"}
    }
    project = PYPROJECT["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    name = re.compile(r"[\w-]+")
    needed = {name.match(line)[0] for line in project["dependencies"]}  # type: ignore[index]
    known = needed | {name.match(line)[0] for line in extras}  # type: ignore[index]
    assert imported - known == set()
    assert needed - imported == set()
