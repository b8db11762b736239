"""Check binder/ as far as it can be without Docker: ``make binder``.

    python -m scripts.binder [FOLDER]

Copies what git tracks into an empty folder, makes a new virtual environment, runs
``binder/postBuild`` in it, starts JupyterLab through ``binder/start`` behind a prefix as
JupyterHub gives it, and runs the quickstart in Chromium: the panel is live, a knob is set. Needs
minutes and the network that pip and npm need. Run it with an interpreter that has playwright.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

from tests.browser.harness import OpenNotebook, chromium
from tests.browser.server import JupyterServer

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "/user/anna/"
QUICKSTART = "notebooks/01_quickstart.ipynb"


class BinderServer(JupyterServer):
    """The Jupyter of another environment, started as Binder starts it."""

    def __init__(self, home: Path, checkout: Path, env: Path) -> None:
        super().__init__(home, base_url=PREFIX)
        self._checkout, self._env = checkout, env

    def command(self) -> list[str]:
        """The start command of the repository, around the server's own."""
        start = str(self._checkout / "binder" / "start")
        return [start, str(self._env / "bin" / "python"), "-m", "jupyterlab"]

    def _environment(self) -> dict[str, str]:
        env = super()._environment() | {"IT2NB_SCALE": "0.05", "VIRTUAL_ENV": str(self._env)}
        return env | {"PATH": f"{self._env / 'bin'}{os.pathsep}{env['PATH']}"}


def build(checkout: Path, env: Path) -> None:
    """Make the environment from the files in binder/ alone."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    for name in listed.decode().split("\0"):
        if name:
            into = checkout / name
            into.parent.mkdir(parents=True, exist_ok=True)
            into.write_bytes((ROOT / name).read_bytes())
            into.chmod((ROOT / name).stat().st_mode)
    subprocess.run([sys.executable, "-m", "venv", str(env)], check=True)
    path = f"{env / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
    subprocess.run(
        [str(checkout / "binder" / "postBuild")], cwd=checkout, check=True,
        env={**environ, "PATH": path},
    )  # fmt: skip


def steer(server: BinderServer) -> None:
    """Run the quickstart up to its loop, set a knob in the panel, and see the answer."""
    with (
        sync_playwright() as playwright,
        chromium(playwright) as browser,
        OpenNotebook(server, browser, "quickstart") as book,
    ):
        try:
            for cell in ("load", "data", "model", "loop"):
                book.run(book.index(cell))
            panel = book.panel(book.index("loop"))
            said = book.set_knob(panel, "lr", "1e-3")
            expect(said).to_contain_text("applied", timeout=60_000)
            assert not book.foreign_requests, book.foreign_requests
            assert PREFIX in book.page.url
        except BaseException:
            print(book.told(), file=sys.stderr)
            raise
    server.end_kernels()


def main(folder: Path) -> None:
    """Build, start, steer; say how long and how large."""
    checkout, env = folder / "repo", folder / "env"
    began = time.monotonic()
    if not (env / "bin" / "jupyter-lab").exists():
        build(checkout, env)
    print(f"built in {time.monotonic() - began:.0f} s")
    size = sum(path.lstat().st_size for path in env.rglob("*") if not path.is_symlink())
    print(f"environment of {size / 1e9:.1f} GB")
    with (
        tempfile.TemporaryDirectory() as home,
        BinderServer(Path(home) / "home", checkout, env) as server,
    ):
        server.put_notebook("quickstart", checkout / QUICKSTART)
        steer(server)
    print(f"the quickstart is live behind {PREFIX}, {time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
