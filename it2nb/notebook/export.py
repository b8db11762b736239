"""A run as a folder of plain files, for people without this package."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from it2nb.core.export import write_csv
from it2nb.core.session import Session


def export(session: Session, folder: Path | None = None) -> list[Path]:
    """Write journal, requests, metrics, state and cell of a run into a folder. Any thread.

    Parameters
    ----------
    session : Session
        It may still run; then the files hold what there is by now.
    folder : Path, optional
        ``it2export/<run>`` by default; made when it is missing.

    Returns
    -------
    list of Path
        What was written.
    """
    target = Path("it2export") / session.run_id if folder is None else folder
    target.mkdir(parents=True, exist_ok=True)
    written = []
    if session.path is not None and session.path.exists():
        written.append(Path(shutil.copyfile(session.path, target / "journal.jsonl")))
    written.append(write_csv(session.journal.requests(), target / "requests.csv"))
    written.append(write_csv(session.metrics.frame(), target / "metrics.csv"))
    state = json.dumps(json.loads(session.state().json_bytes()), indent=2)
    written.append(target / "state.json")
    written[-1].write_text(state, encoding="utf-8")
    if session.source_cell is not None:
        written.append(target / "cell.py")
        written[-1].write_text(session.source_cell, encoding="utf-8")
    return written
