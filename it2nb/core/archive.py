"""Run archives: one zip file with the journal of a run and what goes with it.

An archive comes from somebody else. Of it nothing is unpacked but the journal, by its one name,
in a bounded amount; names in the archive never become paths.
"""

from __future__ import annotations

import os
import re
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from it2nb.core.errors import JournalError

#: The journal's name in the archive, at its top.
JOURNAL = "journal.jsonl"
#: Largest journal that is unpacked, bytes.
MAX_BYTES = 4 << 30
#: A journal shrinks to a third or so (its hashes don't shrink): more than this is a bomb.
MAX_RATIO = 200
_CHUNK = 1 << 20


def is_archive(path: Path) -> bool:
    """Whether a path is a zip file."""
    return path.is_file() and zipfile.is_zipfile(path)


def pack(path: Path, run: str, members: Iterable[tuple[str, bytes]]) -> Path:
    """Write an archive, atomically; an older file of this name gives way to a whole one.

    Parameters
    ----------
    path : Path
    run : str
        Name of the run.
    members : iterable of (name, content)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            archive.comment = run.encode()[:200]
            for name, content in members:
                archive.writestr(name, content)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return path


def unpack_journal(path: Path, folder: Path) -> Path:
    """Write the journal in an archive to ``folder/<run>/journal.jsonl``; returns its path.

    Raises
    ------
    JournalError
        If there is none, or the archive is damaged, encrypted or a bomb.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = [each for each in archive.infolist() if each.filename == JOURNAL]
            if len(found) != 1:
                what = "no" if not found else f"{len(found)} times a"
                raise JournalError(f"{str(path)!r} holds {what} {JOURNAL}: it is no exported run")
            [info] = found
            if info.flag_bits & 1:
                raise JournalError(f"{str(path)!r} is encrypted; unpack it first")
            target = folder / _run_of(archive, path) / JOURNAL
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as source, target.open("xb") as out:
                _copy(source, out, min(MAX_BYTES, MAX_RATIO * max(info.compress_size, 1024)), path)
            return target
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as err:
        raise JournalError(
            f"the archive {str(path)!r} can't be read ({type(err).__name__}: {err})"
        ) from err


def _copy(source: IO[bytes], out: IO[bytes], most: int, path: Path) -> None:
    """Copy at most that much: what an archive says of its sizes may be wrong."""
    left = most
    while chunk := source.read(min(_CHUNK, left + 1)):
        left -= len(chunk)
        if left < 0:
            raise JournalError(
                f"the journal in {str(path)!r} grows beyond {most:,} bytes when it is unpacked: "
                f"more than a journal can, so it is not unpacked"
            )
        out.write(chunk)


def _run_of(archive: zipfile.ZipFile, path: Path) -> str:
    """Return the run's name from the archive's comment, if it is one; else that of the file."""
    name = archive.comment.decode("utf-8", "replace")
    return name if re.fullmatch(r"[A-Za-z0-9][\w.-]{0,120}", name) else path.stem
