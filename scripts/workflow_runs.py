"""Keep the journals of executed notebooks: packed, with a manifest of their hashes.

    python -m scripts.demo notebooks/04_layerwise_gpt.ipynb --out .cache/runs/04 --hands-off
    python -m scripts.workflow_runs .cache/runs/04 ...

Takes the newest run of each title from the work folders and writes it2nb/assets/runs.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from pathlib import Path

import it2nb
from it2nb.archive import export
from it2nb.recorded import RecordedRun
from it2nb.workflows.recorded import FOLDER


def title_of(journal: RecordedRun) -> str:
    """Return what a run was called."""
    for event in journal.since(0):
        if event.type == "environment":
            return str(event.payload["run"]["title"])
    raise SystemExit(f"{journal.run} has no environment row")


def keep(folder: Path, scale: str, manifest: dict[str, dict[str, str]]) -> None:
    """Pack the runs below one work folder."""
    notebook = next(iter(folder.glob("*.ipynb"))).name
    for path in sorted(folder.glob("work/it2runs/*/journal.jsonl")):
        journal = it2nb.open(path)
        journal.verify()
        title = title_of(journal)
        name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
        packed = export(journal, FOLDER / f"{name}.zip", title=title)
        manifest[name] = {
            "sha256": hashlib.sha256(packed.read_bytes()).hexdigest(),
            "anchor": journal.anchor(),
            "notebook": notebook,
            "scale": scale,
        }
        print(f"{packed.name}: {packed.stat().st_size:,} bytes, {len(journal.requests())} requests")


def main(arguments: list[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", type=Path, nargs="+", help="of executed notebooks")
    parser.add_argument("--scale", default="laptop", help="at which they were executed")
    asked = parser.parse_args(arguments)
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / "manifest.json"
    manifest = json.loads(file.read_text()) if file.exists() else {}
    for folder in asked.folders:
        keep(folder, asked.scale, manifest)
    file.write_text(json.dumps(dict(sorted(manifest.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
