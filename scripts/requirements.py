"""Print what the package and some of its extras need, one requirement a line.

    python scripts/requirements.py examples dev
    python scripts/requirements.py --lowest torch lab     # the oldest versions that are promised

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
LOWER_BOUND = re.compile(r"([\w.-]+(?:\[[\w,]+\])?)>=([\d.]+)")
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


def lowest(line: str) -> str:
    """Turn a range into its lower end: ``pandas>=2.2`` into ``pandas==2.2``."""
    bound = LOWER_BOUND.match(line)
    if bound is None:
        raise SystemExit(f"{line!r} in pyproject.toml has no lower bound (>=)")
    return f"{bound[1]}=={bound[2]}"


if __name__ == "__main__":
    options = {argument for argument in sys.argv[1:] if argument.startswith("-")}
    if options - {"--lowest"}:
        sys.exit(f"unknown option: {sorted(options)[0]}; there is --lowest alone")
    found = requirements(*(argument for argument in sys.argv[1:] if argument not in options))
    print("\n".join(map(lowest, found) if options else found))
