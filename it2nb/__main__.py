"""``python -m it2nb``: check a journal, show what was asked in it, or serve a run to assistants."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from it2nb._version import __version__
from it2nb.core import archive
from it2nb.core.errors import It2nbError, JournalDamaged
from it2nb.core.opened import open as open_journal
from it2nb.core.recording import Recording
from it2nb.core.verify import verify_file

#: Intact; not what was written; can't be read, or asked wrongly.
INTACT, BROKEN, UNREADABLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        command = {"verify": verify, "show": show, "mcp": mcp}[options.command]
        return command(options)
    except JournalDamaged as err:
        print(f"broken at seq {err.seq}: {err}", file=sys.stderr)
        return BROKEN
    except It2nbError as err:
        print(err, file=sys.stderr)
        return UNREADABLE
    except BrokenPipeError:
        # Whoever reads our lines has seen enough (`| head`).
        sys.stderr.close()
        return INTACT


def verify(options: argparse.Namespace) -> int:
    """Check a journal from the first byte to the last."""
    path = Path(options.file)
    folder = None
    if archive.is_archive(path):
        folder = tempfile.mkdtemp(prefix="it2nb-")
    try:
        if folder is not None:
            path = archive.unpack_journal(path, Path(folder))
        report = verify_file(path, options.anchor)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"{options.file}: {report}", file=sys.stdout if report.ok else sys.stderr)
    return INTACT if report.ok else BROKEN


def show(options: argparse.Namespace) -> int:
    """Print the requests of a run."""
    journal = open_journal(options.file)
    recording = Recording(journal)
    last = recording.last
    where = "" if last is None else f", at {last}"
    print(f"{journal.run}: {recording.status}{where}, {len(journal):,} events")
    frame = journal.requests()
    if options.status:
        frame = frame[frame["status"] == options.status]
    if frame.empty:
        print("no requests")
        return INTACT
    columns = ("step", "branch_id", "source", "type", "name", "before", "after", "status", "reason")
    rows = [[_cell(value) for value in row] for row in frame[list(columns)].itertuples(index=False)]
    print(_table([list(columns), *rows]))
    return INTACT


def mcp(options: argparse.Namespace) -> int:
    """Let an assistant see and steer a run, over standard input and output."""
    from it2nb.server.mcp import serve_stdio

    serve_stdio(options.url, options.token, wait_s=options.wait)
    return INTACT


def _table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def _cell(value: object) -> str:
    """Show a value in a terminal: short, in one line, without control characters."""
    if value is None or value != value:  # NaN stands for a missing text
        return ""
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    # A journal is somebody else's text: no escape sequence reaches the terminal.
    plain = "".join(c if c.isprintable() else " " for c in shown)
    return plain if len(plain) <= 60 else plain[:57] + "..."


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m it2nb", description=__doc__)
    parser.add_argument("--version", action="version", version=f"it2nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, said in (
        ("verify", "check every line against the chain of hashes"),
        ("show", "print what was asked, and what became of it"),
    ):
        command = commands.add_parser(name, help=said, description=said)
        command.add_argument("file", help="journal.jsonl, the folder of a run, or a run.zip")
        if name == "verify":
            command.add_argument("--anchor", help="the hash of a line that has to be there")
        else:
            command.add_argument("--status", help="only requests with this status")
    said = "let an assistant see and steer a run: an MCP server over standard input and output"
    command = commands.add_parser("mcp", help=said, description=said)
    command.add_argument("--url", required=True, help="of the run's server, session.serve().url")
    command.add_argument("--token", help="its token; better in the variable IT2NB_TOKEN")
    command.add_argument(
        "--wait", type=float, default=30.0, metavar="SECONDS", help="for the result of a request"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
