"""Builds js/ into the package, and has the wheel put it where a Jupyter server serves it.

``IT2NB_SKIP_JS=1`` leaves it out: the package then works without a live panel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

STATIC = "it2nb/notebook/static"
FILES = (
    "loader.js", "panel.mjs", "chart.mjs", "page.mjs", "remoteEntry.js", "labextension.json"
)  # fmt: skip
EXTENSION = "share/jupyter/labextensions/it2nb"
#: What a browser fetches from the server, under <base>/lab/extensions/it2nb/static/.
SERVED = ("panel.mjs", "chart.mjs", "remoteEntry.js")
SERVED_AT = f"{EXTENSION}/static"
#: What the built files depend on.
SOURCES = ("js/src/**/*", "js/build.mjs", "js/package-lock.json")


class PanelBuild(BuildHookInterface[Any]):
    """Runs npm unless the built files are newer than their sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if os.environ.get("IT2NB_SKIP_JS", "") not in ("", "0"):
            self.app.display_warning("IT2NB_SKIP_JS is set: no live panel in this build")
            return
        root = Path(self.root)
        if not _is_fresh(root):
            self._build(root / "js")
        missing = [name for name in FILES if not (root / STATIC / name).is_file()]
        if missing:
            raise RuntimeError(f"js/ was built, but without {', '.join(missing)}")
        # An editable install has no shared data; the panel then sends its scripts itself.
        if self.target_name == "wheel" and version != "editable":
            for name in SERVED:
                build_data["shared_data"][f"{STATIC}/{name}"] = f"{SERVED_AT}/{name}"
            # By this JupyterLab knows that there is something to load.
            described = build_data["shared_data"]
            described[f"{STATIC}/labextension.json"] = f"{EXTENSION}/package.json"

    def _build(self, js: Path) -> None:
        npm = shutil.which("npm")
        if npm is None:
            raise RuntimeError(
                "the panel of it2nb is built with npm, and there is none here: install Node.js 20 "
                "or newer, or set IT2NB_SKIP_JS=1 to build without the live panel"
            )
        if not (js / "node_modules").is_dir():
            self._run([npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"], js)
        self._run([npm, "run", "--silent", "build"], js)

    def _run(self, command: list[str], js: Path) -> None:
        done = subprocess.run(command, cwd=js, check=False)
        if done.returncode != 0:
            said = " ".join(["npm", *command[1:]])
            raise RuntimeError(f"`{said}` in js/ failed with exit status {done.returncode}")


def _is_fresh(root: Path) -> bool:
    built = [root / STATIC / name for name in FILES]
    if not all(path.is_file() for path in built):
        return False
    oldest = min(path.stat().st_mtime for path in built)
    sources = [path for pattern in SOURCES for path in root.glob(pattern) if path.is_file()]
    # An sdist brings the built files and may bring no date: then they are taken as they are.
    return all(path.stat().st_mtime <= oldest for path in sources)
