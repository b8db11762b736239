"""Names of a run's files in its record."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


class Whereabouts:
    """Tells a path as from the folder in which the program began, and finds it again from there.

    A journal that is handed on should not tell whose machine it was written on. Where the program
    has left that folder, and where it was given an absolute one, paths are absolute.

    Parameters
    ----------
    directory : str, Path or None
        Where the run's files are, as it was given.
    """

    def __init__(self, directory: str | Path | None) -> None:
        self._home: Path | None = None
        if directory is None or not Path(directory).is_absolute():
            with suppress(OSError):  # the present folder was deleted
                self._home = Path.cwd()

    def told(self, path: Path) -> str:
        """Return what the record calls this file. Any thread."""
        with suppress(OSError):
            if self._home == Path.cwd() and path.is_relative_to(self._home):
                return str(path.relative_to(self._home))
        return str(path)

    def found(self, told: str) -> Path:
        """Return the path of a file that the record calls so. Any thread."""
        return Path(told) if self._home is None else self._home / told
