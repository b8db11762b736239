"""A steered run as plain code: what people did while it trained becomes a schedule in the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from it2nb.pytorch.code_changes import Changes
from it2nb.pytorch.code_writer import Writer

if TYPE_CHECKING:
    from it2nb.core.history import History


class Code(str):
    """The text of a program.

    Attributes
    ----------
    left_out : tuple of str
        What the run did and the program does not; empty where it does the same, bit for bit.
    """

    left_out: tuple[str, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether nothing was left out."""
        return not self.left_out

    def __repr__(self) -> str:
        # At a prompt one wants to read it.
        return str(self)


def to_code(journal: History, round: int | None = None) -> Code:
    """Write a steered run as plain Python and PyTorch, without it2nb. Any thread.

    Parameters
    ----------
    journal : History
        Live or opened.
    round : int, optional
        Of a run with rounds: which; the last one by default.

    Returns
    -------
    Code
        For a ``%%it2`` cell the cell itself, with a schedule and calls around its updates. For
        another loop the schedule, and where to call it.

    Notes
    -----
    The same values to the bit need the same start: the cells before it, the same random state
    (``--seed N``, which the program repeats), versions and machine.
    """
    changes = Changes(journal, round)
    code = Code(Writer(changes).text())
    code.left_out = tuple(changes.left_out)
    return code
