"""Checkpoint files: one atomic file each, that loads without running code.

A checkpoint is written beside its final place, flushed to the disk and renamed: under its final
name there is a whole file or the one that was there before. What it holds is plain
(`it2nb.pytorch.plain`), so that ``torch.load(path, weights_only=True)`` reads it anywhere.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import time
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import IO, Any, cast

import psutil
import torch

from it2nb.core.errors import Rejected
from it2nb.pytorch.plain import Reducer
from it2nb.pytorch.state import NOTHING_BOUND, Live, capture, named

FORMAT = "it2nb.checkpoint"
VERSION = 1
SUFFIX = ".pt"

_NAME = re.compile(
    r"(?:round-(?P<round>\d+)-)?(?:branch-(?P<branch>\d+)-)?step-(?P<step>\d+)(?:_\d+)?"
    r"(?:-(?P<tag>[A-Za-z0-9._-]+))?\.pt"
)
_serial = count()


@dataclass(frozen=True, slots=True)
class CheckpointInfo:
    """One whole checkpoint file.

    Attributes
    ----------
    path : Path
    step : int
        Updates completed.
    size_bytes : int
    sha256 : str
        Of the file's bytes; empty in a listing, where no file is read.
    branch_id, round : int
    tag : str or None
    saved_at : float
        Unix time, seconds.
    """

    path: Path
    step: int
    size_bytes: int
    sha256: str = ""
    branch_id: int = 0
    round: int = 0
    tag: str | None = None
    saved_at: float = field(default=0.0, compare=False)


def file_name(
    step: int, *, branch_id: int = 0, round: int = 0, tag: str | None = None, nth: int = 1
) -> str:
    """Name a checkpoint: ``step-000123.pt``, ``branch-2-step-000123-best.pt``.

    Parameters
    ----------
    step, branch_id, round : int
    tag : str, optional
    nth : int
        The second one of the same step is ``step-000123_2.pt``.

    Raises
    ------
    Rejected
        If the tag is more than letters, digits, ``.``, ``_`` and ``-``.
    """
    if tag is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", tag):
        raise Rejected(
            f"tag {tag!r:.80} can't be part of a file name; use up to 64 of a-z, A-Z, 0-9, dots, "
            f"underscores and dashes"
        )
    parts = [f"round-{round}"] if round else []
    parts += [f"branch-{branch_id}"] if branch_id else []
    parts += [f"step-{step:06d}" + (f"_{nth}" if nth > 1 else "")]
    parts += [tag] if tag else []
    return "-".join(parts) + SUFFIX


def free_path(folder: Path, step: int, **names: Any) -> Path:
    """Name a checkpoint that is not there yet: a file whose hash was told is never replaced."""
    for nth in count(1):
        path = folder / file_name(step, **names, nth=nth)
        if not path.exists():
            return path
    raise AssertionError("count has no end")


def save(
    path: str | os.PathLike[str],
    *,
    models: Any = (),
    optimizers: Any = (),
    schedulers: Any = (),
    scaler: Any = None,
    stateful: Mapping[str, Any] | None = None,
    rng: bool = True,
    meta: Mapping[str, Any] | None = None,
    extra: Any = None,
) -> CheckpointInfo:
    """Save a training to one file, atomically. Training thread, at a control point.

    Parameters
    ----------
    path : path
        The file; its folder is made. An older file of this name is replaced when the new one
        is whole.
    models, optimizers, schedulers : one object, several, or a mapping of name to object
        At least one model or optimizer.
    scaler : torch.amp.GradScaler, optional
    stateful : mapping of str to Stateful, optional
        Whatever else has ``state_dict`` and ``load_state_dict``.
    rng : bool
        Also the state of the random streams.
    meta : mapping, optional
        Step, branch, knobs...: plain values. ``step``, ``branch_id``, ``round`` and ``tag``
        also appear in the result.
    extra : any plain tree, optional
        What the user's own hooks gave.

    Returns
    -------
    CheckpointInfo

    Raises
    ------
    Rejected
        If there is nothing to save or some state is not plain; nothing was written.
    OSError
        If the disk refused: full, read-only. Older checkpoints are as they were.
    """
    live = Live(
        named(models, "model"),
        named(optimizers, "optimizer"),
        named(schedulers, "scheduler"),
        scaler,
        dict(stateful or {}),
    )
    return save_live(path, live, rng=rng, meta=meta, extra=extra)


def save_live(
    path: str | os.PathLike[str],
    live: Live,
    *,
    rng: bool = True,
    meta: Mapping[str, Any] | None = None,
    extra: Any = None,
) -> CheckpointInfo:
    """Do what `save` does for objects that are named already."""
    if not live:
        raise Rejected(NOTHING_BOUND)
    # Training waits here, so the file can be written from the live storage itself.
    reduce = Reducer(portable=True, clone=False)
    tree = capture(live, reduce, with_rng=rng)
    return write(path, tree, meta=meta, extra=reduce(extra, "what on_save returned"))


def write(
    path: str | os.PathLike[str],
    tree: Mapping[str, Any],
    *,
    meta: Mapping[str, Any] | None = None,
    extra: Any = None,
) -> CheckpointInfo:
    """Write a plain tree as a checkpoint file, atomically. Any thread.

    Raises
    ------
    OSError
        If the disk refused.
    """
    final = Path(path)
    about: dict[str, Any] = {
        "step": 0,
        "branch_id": 0,
        "round": 0,
        "tag": None,
        "saved_at": time.time(),
    }
    about.update(Reducer(portable=True, clone=True)(dict(meta or {}), "meta"))
    content = {"format": FORMAT, "version": VERSION, "meta": about, **tree, "extra": extra}
    final.parent.mkdir(parents=True, exist_ok=True)
    sweep(final.parent)
    part = final.with_name(f".{final.name}.{os.getpid()}-{next(_serial)}.part")
    try:
        digest, size = _write_through(part, content)
        os.replace(part, final)
    except BaseException:
        # Give the room back at once: a full disk stays full otherwise.
        part.unlink(missing_ok=True)
        raise
    _flush_folder(final.parent)
    return CheckpointInfo(
        final,
        about["step"],
        size,
        digest,
        about["branch_id"],
        about["round"],
        about["tag"],
        about["saved_at"],
    )


class _Hashed:
    """A file that hashes what passes, and keeps an error that torch's writer would rename."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()
        self.size_bytes = 0
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        rest = memoryview(data).cast("B")
        try:
            while rest:  # unbuffered: the system may take a part only
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self.error = error
            raise
        self.sha256.update(data)
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back here."""


def _write_through(part: Path, content: Mapping[str, Any]) -> tuple[str, int]:
    """Write and flush to the disk; return the SHA-256 and the size in bytes."""
    with open(part, "xb", buffering=0) as file:
        hashed = _Hashed(file)
        try:
            with _checksums():
                torch.save(dict(content), cast(IO[bytes], hashed))
        except RuntimeError as error:
            # The writer finds its file shorter than it thinks and says only that.
            if hashed.error is not None:
                raise hashed.error from error
            raise
        os.fsync(file.fileno())
    return hashed.sha256.hexdigest(), hashed.size_bytes


@contextmanager
def _checksums() -> Iterator[None]:
    """Let torch write the checksums by which `read` finds damage, whatever the user set."""
    options = torch.serialization
    if not hasattr(options, "set_crc32_options"):  # torch 2.5 always writes them
        yield
        return
    kept = options.get_crc32_options()
    options.set_crc32_options(True)
    try:
        yield
    finally:
        options.set_crc32_options(kept)


def _flush_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system lets one open a folder."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(folder: Path) -> list[Path]:
    """Remove the unfinished files that processes left in `folder` when they were killed."""
    removed = []
    for part in folder.glob(".*.part"):
        owner = part.name.rsplit(".", 2)[-2].partition("-")[0]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            part.unlink(missing_ok=True)
            removed.append(part)
    return removed


def list_checkpoints(folder: str | os.PathLike[str]) -> list[CheckpointInfo]:
    """List the whole checkpoints in a folder, oldest first. Any thread; reads no tensors.

    Files with an end cut off (copied by halves, say) are not listed.
    """
    found: list[tuple[int, int, CheckpointInfo]] = []
    for path in Path(folder).glob(f"*{SUFFIX}"):
        match = _NAME.fullmatch(path.name)
        if match is None or not zipfile.is_zipfile(path):
            continue
        stat = path.stat()
        info = CheckpointInfo(
            path,
            int(match["step"]),
            stat.st_size,
            branch_id=int(match["branch"] or 0),
            round=int(match["round"] or 0),
            tag=match["tag"],
            saved_at=stat.st_mtime,
        )
        found.append((stat.st_mtime_ns, info.step, info))
    return [info for _, _, info in sorted(found, key=lambda each: each[:2])]


def find(where: str | os.PathLike[str], folders: Iterable[Path] = ()) -> Path:
    """Find a checkpoint file: a path, a folder (its newest), or a name or tag in one of `folders`.

    Raises
    ------
    Rejected
        If there is none; it names those that there are.
    """
    folders = list(folders)
    try:
        asked = Path(where).expanduser()
        for path in [asked, *(folder / asked for folder in folders if not asked.is_absolute())]:
            if path.is_dir():
                listed = list_checkpoints(path) or list_checkpoints(path / "checkpoints")
                if not listed:
                    raise Rejected(f"there is no whole checkpoint in {path}")
                return listed[-1].path
            if path.is_file():
                return path
    except (OSError, RuntimeError) as err:  # no such user's home, a name that no disk takes
        raise Rejected(f"{os.fspath(where)!r:.80} is no path of a checkpoint: {err!s:.80}") from err
    there = [each for folder in folders for each in list_checkpoints(folder)]
    tagged = [each.path for each in there if each.tag is not None and each.tag == str(where)]
    if tagged:
        return tagged[-1]
    names = ", ".join(each.path.name for each in reversed(there[-5:]))
    hint = f"; there are {names}" if names else ""
    raise Rejected(f"there is no checkpoint {str(asked)!r:.200}{hint}")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a checkpoint file onto the CPU. Any thread. No code in it is run.

    Raises
    ------
    Rejected
        If it is missing, damaged, no checkpoint of ours, or holds pickled code.
    """
    path = Path(path)
    # torch.load also knows formats from before zip files, whose loaders had holes.
    if not zipfile.is_zipfile(path):
        raise Rejected(
            f"{path} is no whole checkpoint: it is no zip file, as torch.save writes them"
            if path.exists()
            else f"there is no checkpoint {str(path)!r}"
        )
    try:
        # torch.load takes a file in which single bits have changed.
        with zipfile.ZipFile(path) as file:
            damaged = file.testzip()
        if damaged is not None:
            raise Rejected(f"{path} is damaged: {damaged} in it is not what was written")
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as err:
        said = re.search(r"GLOBAL ([\w.]+)", str(err))
        what = f"{said[1]}, which" if said else "something that"
        raise Rejected(
            f"{path} was not loaded and nothing in it was run: it holds {what} is no plain data. "
            f"A checkpoint from somebody else can run code that way; one of it2nb never needs it"
        ) from err
    except (RuntimeError, OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile) as err:
        raise Rejected(f"{path} can't be read: {type(err).__name__}: {err!s:.200}") from err
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise Rejected(
            f"{path} is no checkpoint of it2nb; load it yourself, with torch.load and "
            f"load_state_dict, in a function given to session.on_load"
        )
    if content.get("version") != VERSION:
        raise Rejected(
            f"{path} has format version {content.get('version')!r}; this it2nb reads {VERSION}"
        )
    return content
