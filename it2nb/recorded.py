"""A run as its journal tells it, with the curves: what `it2nb.open` gives."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from it2nb.core import opened
from it2nb.core.opened import OpenedJournal

if TYPE_CHECKING:
    import plotly.graph_objects as go


class RecordedRun(OpenedJournal):
    """The events of a journal file, to be read and drawn like those of a live session."""

    @property
    def journal(self) -> Self:
        """Itself, so that what reads a session's journal reads a recorded one."""
        return self

    def plot(self, metrics: str | Sequence[str] | None = None) -> go.Figure:
        """Draw the metrics with a marker at each intervention."""
        from it2nb.figures import run_figure

        metrics = [metrics] if isinstance(metrics, str) else metrics
        drifts = self.tail(len(self), ("knob_drifted",))
        forks = self.tail(len(self), ("branch_forked",))
        return run_figure(self.metrics.frame(), self.requests(), metrics, drifts, forks)

    def report(self, path: str | Path) -> Path:
        """Write the run as one HTML file that opens without a network; see `it2nb.report`."""
        from it2nb.report import write

        return write(self.journal, path, title=self.run)

    def export(self, path: str | Path) -> Path:
        """Write the run into one zip file, which `it2nb.open` reads."""
        from it2nb.archive import export

        return export(self.journal, path, title=self.run)


def open(path: str | Path) -> RecordedRun:
    """Read a run from its file, whether it is over or goes on. Changes nothing. Any thread.

    Parameters
    ----------
    path : str or Path
        ``journal.jsonl``, the folder of the run, or an exported ``run.zip``.

    Returns
    -------
    RecordedRun
        With `frame`, `requests`, `metrics`, `plot`, `since`, `verify` as a live session's
        journal has them.

    Raises
    ------
    JournalError
        If it can't be read.
    JournalDamaged
        If a line is not what was written; names the seq. An unfinished last line is left out.
    """
    return cast(RecordedRun, opened.open(path, RecordedRun))
