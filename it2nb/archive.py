"""A run as one zip file: its journal, its code, its surroundings, its figures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from it2nb.core import archive
from it2nb.core.errors import JournalError
from it2nb.core.faults import guard
from it2nb.core.recording import Recording
from it2nb.curves import svg
from it2nb.report import render

if TYPE_CHECKING:
    from it2nb.core.history import History

#: Metrics that get a figure of their own.
MAX_FIGURES = 24

_README = """\
{run}: a training run and what was done to it, exported by it2nb.

journal.jsonl     every event; each line holds the hash of the line before it
report.html       the run to look at, in any browser, without a network
cell.py           the code of the notebook cell
steered.py        the same run as a plain program, with what people changed
environment.json  versions, machine and settings
figures/          one curve for each metric

    python -m it2nb verify {name}
    python -m it2nb show {name}
    it2nb.open("{name}").requests()
"""


def export(journal: History, path: str | Path, *, title: str = "") -> Path:
    """Write a run into one zip file. Any thread, also while the run goes on.

    Parameters
    ----------
    journal : History
        Live or opened, with a file.
    path : str or Path
        ``run.zip``.
    title : str
        For people.

    Returns
    -------
    Path
        The file; `it2nb.open` reads it.

    Raises
    ------
    JournalError
        If the journal has no file.
    OSError
        If the disk refuses.
    """
    source = getattr(journal, "path", None)
    if source is None:
        raise JournalError(
            f"{journal.run} keeps its journal in memory, so there is nothing to verify later: "
            f"make the session with directory='it2runs' to export it"
        )
    journal.since(journal.next_seq)  # seals what was recorded until now
    target = Path(path)
    return archive.pack(target, journal.run, _members(journal, source, target.name, title))


def _members(journal: History, source: Path, name: str, title: str) -> Iterator[tuple[str, bytes]]:
    recording = Recording(journal)
    yield "README.txt", _README.format(run=journal.run, name=name).encode()
    yield archive.JOURNAL, _whole_lines(source.read_bytes())
    environment = json.dumps(recording.environment, indent=2, ensure_ascii=False)
    yield "environment.json", environment.encode()
    text = (recording.cell or {}).get("text")
    if isinstance(text, str):
        yield "cell.py", text.encode("utf-8", "replace")
        with guard("the run as a program"):
            from it2nb.pytorch.code import to_code

            yield "steered.py", to_code(journal).encode("utf-8", "replace")
    yield "report.html", render(journal, title=title).encode()
    for number, metric in enumerate(journal.metrics.names()[:MAX_FIGURES]):
        safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in metric)[:60]
        yield f"figures/{number:02d}-{safe}.svg", svg(journal, metric).encode()


def _whole_lines(data: bytes) -> bytes:
    """Leave out a line that a running writer has begun."""
    return data[: data.rfind(b"\n") + 1]
