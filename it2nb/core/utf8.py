"""Text that can be written: half a character (a lone surrogate) has no UTF-8 form.

A file name that is no text, an emoji that a model's answer was cut in: both become such a half
somewhere in a title, a warning or an error, and whoever encodes it would raise.
"""

from __future__ import annotations


def whole(text: str) -> str:
    """Return `text` with a question mark in the place of each half character."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
