"""A real Jupyter server with folders of its own: JupyterLab and Notebook 7 on one port."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import nbformat

START_S = 120.0
STOP_S = 20.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)(/\S*?)lab\?token=")

# Nothing that asks another host, and nothing that asks the user.
SETTINGS: dict[str, dict[str, Any]] = {
    "ServerApp": {
        "ip": "127.0.0.1",
        "port": 0,
        "open_browser": False,
        "allow_root": True,
        "terminals_enabled": False,
    },
    "LabApp": {
        "expose_app_in_browser": True,
        "extension_manager": "readonly",
        "check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "news_url": None,
    },
    "JupyterNotebookApp": {"expose_app_in_browser": True},
}
# Else a first start asks whether to fetch news, above the notebook.
OVERRIDES = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}
}


class JupyterServer:
    """One server process, its kernels, and the folder that both live in.

    Parameters
    ----------
    home : Path
        An empty folder. Notebooks stand in ``home/work``, all else beside it.
    site : Path or None
        A folder made by ``pip install --target``, put before everything in the kernels' path and
        in the server's; None where the package is installed in this interpreter.
    base_url : str
        The prefix under which JupyterHub would serve it, with both slashes.
    """

    def __init__(self, home: Path, *, site: Path | None = None, base_url: str = "/") -> None:
        self.work = home / "work"
        self.runtime = home / "runtime"
        self.log: list[str] = []
        self.token = secrets.token_hex(16)
        self.url = ""
        self._home = home
        self._site = site
        self._base_url = base_url
        self._ready = threading.Event()
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    # ------------------------------------------------------------------------------ life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it tells its address."""
        self.work.mkdir(parents=True)
        config = self._home / "config"
        config.mkdir()
        settings = {name: dict(part) for name, part in SETTINGS.items()}
        settings["ServerApp"] |= {"root_dir": str(self.work), "base_url": self._base_url}
        settings["IdentityProvider"] = {"token": self.token}
        (config / "jupyter_server_config.json").write_text(json.dumps(settings))
        (config / "labconfig").mkdir()
        (config / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(OVERRIDES))
        self._process = subprocess.Popen(
            self.command(),
            cwd=self.work,
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name="jupyter-log", daemon=True)
        self._reader.start()
        if not self._ready.wait(START_S) or not self.url:
            self.stop()
            raise RuntimeError("Jupyter did not start:\n" + "\n".join(self.log[-40:]))

    def command(self) -> list[str]:
        """The command line of the server."""
        return [sys.executable, "-m", "jupyterlab"]

    def stop(self) -> None:
        """End the server, which ends its kernels; by force when it does not listen."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_S)
        if self._reader is not None:
            self._reader.join(STOP_S)
        if process.stderr is not None:
            process.stderr.close()
        self._process = None

    def _environment(self) -> dict[str, str]:
        folders = {
            "JUPYTER_CONFIG_DIR": "config",
            "JUPYTER_DATA_DIR": "data",
            "JUPYTER_RUNTIME_DIR": "runtime",
            "JUPYTERLAB_SETTINGS_DIR": "settings",
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "IPYTHONDIR": "ipython",
        }
        # Not PYTHONPATH as it stands: the checkout may be on it, and the wheel is what is tested.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env |= {name: str(self._home / folder) for name, folder in folders.items()}
        if self._site is not None:
            env["PYTHONPATH"] = str(self._site)
            env["JUPYTER_PATH"] = str(self._site / "share" / "jupyter")
        return env

    def _read(self) -> None:
        assert self._process is not None and self._process.stderr is not None
        for line in self._process.stderr:
            self.log.append(line.rstrip())
            found = ADDRESS.search(line)
            if found and not self._ready.is_set():
                self.url = f"http://127.0.0.1:{found[1]}{found[2]}"
                self._ready.set()
        self._ready.set()  # ended before it spoke: start() tells so

    # ---------------------------------------------------------------------------- content

    def write_notebook(self, name: str, cells: Sequence[str], *, kernel: str = "python3") -> Path:
        """Write ``name``.ipynb with these code cells and return its path."""
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
        return self._write(name, book, kernel)

    def put_notebook(self, name: str, source: Path, *, kernel: str = "python3") -> Path:
        """Copy a notebook without its outputs to ``name``.ipynb and return its path."""
        book = nbformat.read(source, as_version=4)
        for cell in book.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        return self._write(name, book, kernel)

    def _write(self, name: str, book: Any, kernel: str) -> Path:
        book.metadata.kernelspec = {"name": kernel, "display_name": kernel, "language": "python"}
        path = self.work / f"{name}.ipynb"
        nbformat.write(book, path)
        return path

    def add_kernel(self, name: str, *overlays: Path, env: dict[str, str] | None = None) -> str:
        """Add a kernel whose import path starts with ``overlays``; return its name."""
        folder = self._home / "data" / "kernels" / name
        folder.mkdir(parents=True, exist_ok=True)
        paths = [*overlays, *([self._site] if self._site is not None else [])]
        argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher"]
        spec = {
            "argv": [*argv, "-f", "{connection_file}"],
            "display_name": name,
            "language": "python",
            "env": {"PYTHONPATH": os.pathsep.join(map(str, paths)), **(env or {})},
        }
        (folder / "kernel.json").write_text(json.dumps(spec))
        return name

    # --------------------------------------------------------------------------- requests

    def request(self, method: str, path: str) -> Any:
        """Send a request to the server's own interface and return the decoded answer."""
        request = urllib.request.Request(
            self.url + path, method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def end_kernels(self) -> None:
        """End every kernel that a notebook of this server still has."""
        for session in self.request("GET", "api/sessions"):
            self.request("DELETE", f"api/sessions/{session['id']}")
