"""Print what the package and some of its extras need, one requirement a line.

    python scripts/requirements.py examples dev

`pip install .[dev]` would build and install the package as well, before its front end is there.
Standard library only: it runs before anything is installed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
OWN_EXTRAS = re.compile(r"it2nb\[(.*)\]")


def requirements(*extras: str) -> list[str]:
    """Return the requirements of the package with ``extras``, sorted, each once."""
    with PYPROJECT.open("rb") as file:
        project = tomllib.load(file)["project"]

    def expand(lines: list[str]) -> Iterator[str]:
        for line in lines:
            own = OWN_EXTRAS.fullmatch(line)
            if own is None:
                yield line
                continue
            for extra in own[1].split(","):
                yield from expand(project["optional-dependencies"][extra.strip()])

    return sorted({*expand(project["dependencies"]), *expand([f"it2nb[{e}]" for e in extras])})


if __name__ == "__main__":
    print("\n".join(requirements(*sys.argv[1:])))
