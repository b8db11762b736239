"""A journal read from its file, without its run."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import weakref
from pathlib import Path
from typing import Any

from it2nb.core import archive
from it2nb.core.chain import pack_rows
from it2nb.core.errors import JournalDamaged, JournalError
from it2nb.core.history import History
from it2nb.core.metrics import MetricStore
from it2nb.core.verify import VerifyReport, checked, file_of, verify_file
from it2nb.core.walk import Line, Walk

#: What every row has.
_FIELDS = frozenset(
    ("type", "ts", "t", "step", "branch_id", "round", "source", "action_id", "payload")
)


def open(path: str | Path, kind: type[OpenedJournal] | None = None) -> OpenedJournal:
    """Read a journal file, whether its run is over or goes on. Changes nothing. Any thread.

    Parameters
    ----------
    path : str or Path
        ``journal.jsonl``, the folder of the run, or an exported ``run.zip``.
    kind : type of OpenedJournal, optional
        What to make of it.

    Returns
    -------
    OpenedJournal
        With the read methods of the live one: `frame`, `requests`, `metrics`, `since`...

    Raises
    ------
    JournalError
        If it can't be read.
    JournalDamaged
        If a line is not what was written; names the seq. An unfinished last line is left out.
    """
    given: Any = path
    if not isinstance(given, (str, os.PathLike)) or not str(given):
        raise JournalError(
            f"{path!r:.60} is no path: give journal.jsonl, the folder of a run, or an exported "
            f"run.zip"
        )
    path = Path(path)
    made = kind or OpenedJournal
    if not archive.is_archive(path):
        return made(path)
    folder = tempfile.mkdtemp(prefix="it2nb-")
    try:
        opened = made(archive.unpack_journal(path, Path(folder)))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(opened, shutil.rmtree, folder, ignore_errors=True)
    return opened


class OpenedJournal(History):
    """The events of a journal file, as it was when it was opened.

    Attributes
    ----------
    path : Path
    metrics : MetricStore
    is_sealed : bool
        Whether the run was finished.
    torn_bytes : int
        Of an unfinished last line, which was left out.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = file_of(path).absolute()
        super().__init__(MetricStore(), self.path.parent.name)
        walk = Walk(self.path)
        for line in walk:
            load(self, line)
        self._head = walk.next_seq
        self._anchor = walk.hash.decode()
        self.is_sealed = walk.is_sealed
        self.torn_bytes = walk.torn

    def _extent(self) -> tuple[int, int]:
        return self._head, len(self._stems)

    def anchor(self) -> str:
        """Return the hash of the last line."""
        return self._anchor

    def verify(self, anchor: str | None = None) -> VerifyReport:
        """Check the file again, as it is now.

        Raises
        ------
        JournalDamaged
            If it is not what was written, or lacks the line of the anchor.
        """
        return checked(verify_file(self.path, anchor))

    def __repr__(self) -> str:
        return f"<OpenedJournal {str(self.path)!r}, {len(self)} events>"


def load(history: History, line: Line) -> None:
    """Take a line of a file into a history."""
    row = line.row
    try:
        if row["type"] == "metrics" and isinstance(row["seq"], list):
            _load_pack(history, row)
            return
        missing = _FIELDS - row.keys()
        if missing or not isinstance(row["payload"], dict):
            raise ValueError(f"it lacks {', '.join(sorted(missing)) or 'a payload'}")
    except (ValueError, KeyError, TypeError, IndexError) as err:
        raise JournalDamaged(
            f"the line of seq {line.first} is intact, but makes no sense ({err}): no version of "
            f"this package wrote it",
            seq=line.first,
        ) from err
    history.take_line(line.first, sys.intern(str(row["type"])), line.stem)


def _load_pack(history: History, pack: dict[str, Any]) -> None:
    history.take_rows(
        tuple(pack["columns"]),
        pack_rows(pack),
        epoch=float(pack["epoch"]),
        branch_id=int(pack["branch_id"]),
        round=int(pack["round"]),
    )
