"""The file of a journal: one writer, whole lines only."""

from __future__ import annotations

import contextlib
import errno
import os
import time
import weakref
from pathlib import Path
from types import ModuleType

from it2nb.core.errors import JournalDamaged, JournalError
from it2nb.core.walk import Walk

fcntl: ModuleType | None
try:
    import fcntl
except ModuleNotFoundError:  # Windows: no advisory locks, and nothing else to take
    fcntl = None

_HELD = (errno.EACCES, errno.EAGAIN)
#: Times that the lock is asked for.
_TRIES = 5
#: Times that a file is read whole because somebody else seems to have written, and has not. There
#: are file systems whose times come later.
_FALSE_ALARMS = 3


def is_being_written(path: Path) -> bool:
    """Whether a living writer, in this process or another, holds the file. Any thread."""
    if fcntl is None:
        return False
    try:
        file = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as err:
        return err.errno in _HELD
    finally:
        os.close(file)  # and with it the lock
    return False


class JournalFile:
    """An append-only file, held by one writer. Its owner's lock stands around every method.

    Parameters
    ----------
    path : Path
        Made if it is not there, with its folders.

    Raises
    ------
    JournalError
        If the file can't be opened, or another writer holds it.
    """

    def __init__(self, path: Path) -> None:
        # Made absolute: the program may change its directory.
        self.path = Path(os.path.abspath(path))
        self._torn = False
        #: When it was written last, by us; None while that is not known.
        self._written_ns: int | None = None
        self._is_suspect = False
        self._false_alarms = 0
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._fd: int | None = os.open(path, flags, 0o666)
        except OSError as err:
            raise JournalError(
                f"the journal {str(path)!r} can't be opened ({err.strerror}); name another "
                f"directory=..., or directory=None to keep the journal in memory"
            ) from err
        # A session that is dropped without an end gives its lock back, too.
        self._closing = weakref.finalize(self, os.close, self._fd)
        self._closing.atexit = False  # the process's end writes the last rows first
        self._lock()

    def _lock(self) -> None:
        # flock belongs to the open file: a reader in this process that closes the same file
        # does not drop it, as it would drop a POSIX record lock.
        assert self._fd is not None
        if fcntl is None:
            return
        try:
            self._take_lock()
        except OSError as err:
            if err.errno not in _HELD:
                return  # a file system without locks: the best that there is
            self.close()
            raise JournalError(
                f"the journal {str(self.path)!r} is being written by another session; read it "
                f"with it2nb.open(...), or give this run another run_id"
            ) from err

    def _take_lock(self) -> None:
        assert fcntl is not None and self._fd is not None
        for _ in range(_TRIES):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except OSError as err:
                if err.errno not in _HELD:
                    raise
            # `is_being_written` holds it for a moment.
            time.sleep(0.002)
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def size(self) -> int:
        """Bytes of the file."""
        assert self._fd is not None
        return os.fstat(self._fd).st_size

    def harm(self, size: int) -> str:
        """Say what somebody else did to the file; empty while it is as we left it.

        Parameters
        ----------
        size : int, bytes
            What we have written.
        """
        if self._fd is None:
            return ""
        there: os.stat_result | None = None
        with contextlib.suppress(OSError):
            there = os.stat(self.path)
        try:
            ours = os.fstat(self._fd)
        except OSError as err:
            return f"was out of reach ({err.strerror})"
        if there is None:
            # One that was moved with its folder has its name still, and is written on.
            return "" if ours.st_nlink else "was deleted"
        if not os.path.samestat(ours, there):
            return "was replaced by another"
        return self._changed(ours, size) or self._written_over(ours)

    def _written_over(self, found: os.stat_result) -> str:
        """Read the file whole where somebody else wrote into its midst, or touched it."""
        self._look_at_time(found)
        if not self._is_suspect or self._torn or self._false_alarms >= _FALSE_ALARMS:
            return ""
        walk = Walk(self.path)
        try:
            for _ in walk:
                pass
        except JournalDamaged:
            return "was written into by somebody else"
        except JournalError:
            return ""  # out of reach for now
        self._is_suspect = False
        self._false_alarms += 1
        return ""

    def _look_at_time(self, found: os.stat_result) -> None:
        if self._written_ns is not None and found.st_mtime_ns != self._written_ns:
            self._is_suspect = True
            self._written_ns = found.st_mtime_ns

    def _changed(self, found: os.stat_result, size: int) -> str:
        if found.st_nlink == 0:
            return "was deleted or replaced"
        if self._torn or found.st_size == size:
            return ""
        return "was cut short" if found.st_size < size else "was written into by somebody else"

    def put_aside(self) -> Path | None:
        """Rename what stands in the file's place; None when nothing does.

        Raises
        ------
        OSError
        """
        if not os.path.lexists(self.path):
            return None
        aside = self.path.with_name(f"{self.path.name}.replaced")
        number = 1
        while os.path.lexists(aside):
            number += 1
            aside = self.path.with_name(f"{self.path.name}.replaced{number}")
        os.rename(self.path, aside)
        return aside

    def write(self, data: bytes, size: int) -> None:
        """Append whole lines; the file has `size` bytes of whole lines before.

        Raises
        ------
        OSError
            If the disk refuses. The file is then cut back to `size`, now or, if even that
            fails, before the next write. Also if somebody else changed the file.
        """
        if self._fd is None:
            raise OSError(errno.EBADF, "the file is closed")
        if self._torn:
            self.cut(size)
        found = os.fstat(self._fd)
        harm = self._changed(found, size)
        if harm:
            raise OSError(errno.ESTALE, f"the file {harm}")
        self._look_at_time(found)
        done = 0
        try:
            while done < len(data):
                count = os.write(self._fd, data[done:] if done else data)
                if count <= 0:
                    raise OSError(errno.EIO, "the disk takes nothing")
                done += count
            self._written_ns = os.fstat(self._fd).st_mtime_ns
        except OSError:
            # How much of it arrived is not known: a failed write may have written.
            with contextlib.suppress(OSError):
                self.cut(size)
            raise

    def cut(self, size: int) -> None:
        """Cut the file back to `size` bytes; if that fails, the next write tries again."""
        assert self._fd is not None
        self._torn = True
        self._written_ns = None
        if os.fstat(self._fd).st_size > size:  # or it would be filled up with zeros
            os.ftruncate(self._fd, size)
        self._torn = False

    def close(self) -> None:
        """Close the file and so give the lock back; idempotent."""
        self._fd = None
        self._closing()

    def abandon(self) -> None:
        """Let go in a forked child: the parent goes on writing and keeps its lock.

        Closing the child's copy of the descriptor leaves the parent's lock in force.
        """
        with contextlib.suppress(OSError):
            self.close()
