"""Checking a journal file from the first byte to the last."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from it2nb.core.errors import JournalDamaged, JournalError
from it2nb.core.journal_file import is_being_written
from it2nb.core.walk import Walk


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """What a check of a journal file found.

    Attributes
    ----------
    ok : bool
        Every line is what was written, in order, and the anchor was found if one was given.
    events : int
        Events in the intact part.
    seq : int or None
        The first broken one.
    reason : str
        What is wrong, or what is worth knowing of an intact file.
    head : str
        Hash of the last intact line: the anchor of what is there.
    is_sealed : bool
        Whether the run was finished and its chain ended. A file whose end was cut off looks
        like that of a run that did not finish: only an anchor tells them apart.
    torn_bytes : int
        Of an unfinished last line, which a killed writer leaves.
    is_live : bool
        Whether somebody has the file open to write: the run goes on. Always False where files
        have no locks (Windows, some network disks).
    """

    ok: bool
    events: int
    seq: int | None
    reason: str
    head: str
    is_sealed: bool
    torn_bytes: int
    is_live: bool = False

    def __str__(self) -> str:
        if not self.ok:
            return f"broken at seq {self.seq}: {self.reason}"
        extent = f"{self.events} events, head {self.head}"
        if self.is_live:
            return f"intact so far: {self.reason}; {extent}"
        return f"intact: {extent}" + (f" ({self.reason})" if self.reason else "")


def verify_file(path: str | Path, anchor: str | None = None) -> VerifyReport:
    """Check every line of a journal file. Changes nothing; any thread, also while it is written.

    Parameters
    ----------
    path : str or Path
        The file, or the folder of the run.
    anchor : str, optional
        What `journal.anchor()` gave: the hash of a line that must be there.

    Raises
    ------
    JournalError
        If there is no such file, or the anchor is none.
    """
    wanted = None if anchor is None else _hash_of(anchor)
    walk = Walk(file_of(path))
    found = wanted is None or wanted == walk.hash.decode()
    broken: int | None = None
    reasons: list[str] = []
    # Before the file is read: a run that ends meanwhile has sealed what is read then.
    is_live = is_being_written(walk.path)
    try:
        for line in walk:
            found = found or line.hash.decode() == wanted
    except JournalDamaged as err:
        broken, reasons = err.seq, [str(err)]
    else:
        if walk.torn:
            reasons.append(f"the last {walk.torn} bytes are an unfinished line")
        if not found:
            broken = walk.next_seq
            reasons.insert(
                0, "the anchor is not there: the end was cut off, or it is another run's"
            )
        elif not walk.is_sealed:
            reasons.append(
                "the run goes on" if is_live else "the run is not finished, or its end was cut off"
            )
    return VerifyReport(
        ok=broken is None,
        events=walk.next_seq,
        seq=broken,
        reason="; ".join(reasons),
        head=walk.hash.decode(),
        is_sealed=walk.is_sealed,
        torn_bytes=walk.torn,
        is_live=is_live and broken is None and not walk.is_sealed,
    )


def checked(report: VerifyReport) -> VerifyReport:
    """Return a good report.

    Raises
    ------
    JournalDamaged
        If it is none; names the seq.
    """
    if not report.ok:
        raise JournalDamaged(report.reason, seq=report.seq)
    return report


def file_of(path: str | Path) -> Path:
    """Return the journal file that `path` names, itself or by its run's folder."""
    path = Path(path)
    return path / "journal.jsonl" if path.is_dir() else path


def _hash_of(anchor: object) -> str:
    """Read an anchor as people copy it: blanks around it, capital letters."""
    text = anchor.strip().lower() if isinstance(anchor, str) else ""
    if not re.fullmatch("[0-9a-f]{64}", text):
        raise JournalError(
            f"anchor={anchor!r:.80} is no anchor: it is the 64 digits from 0 to f that "
            f"journal.anchor() gave"
        )
    return text
