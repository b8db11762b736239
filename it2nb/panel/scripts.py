"""The scripts of a panel, for front ends whose server doesn't serve them."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

from it2nb.core.wire_panel import Asset


@cache
def _gzipped(name: str) -> bytes:
    text = files("it2nb.notebook").joinpath("static", name).read_bytes()
    return gzip.compress(text, compresslevel=6, mtime=0)


def packed(name: str, *, to: str, n: int) -> tuple[Asset, bytes]:
    """Return the message that brings a script to a page, and its gzipped text.

    Raises
    ------
    FileNotFoundError
        If the scripts were not built.
    """
    return Asset(n=n, to=to, name=name), _gzipped(name)
