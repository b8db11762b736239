"""Real kernels for tests: this environment's ipykernel, and others installed beside it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

ROOT = Path(__file__).resolve().parents[2]
#: A guard against deadlock, not a measure of speed.
LIMIT_S = 90.0
#: ipykernel of this environment, and the older ones that are supported.
VERSIONS = ("installed", "7.3.0", "6.31.0")

Message = dict[str, Any]


def side_install(version: str) -> Path:
    """Install an ipykernel into a folder of its own, once; returns the folder."""
    requirement = f"ipykernel=={version}"
    folder = ROOT / ".cache" / "kernels" / requirement
    if not folder.exists():
        half = folder.with_name(f"{requirement}.{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", str(half), requirement], check=True)
        half.rename(folder)
    return folder


class Cell:
    """One execute request and what came of it."""

    def __init__(self, kernel: Kernel, msg_id: str) -> None:
        self.kernel = kernel
        self.id = msg_id

    def wait(self, *, fails: bool = False) -> Cell:
        """Wait for the reply and the idle status; asserts that it succeeded, or failed."""
        reply = self.kernel.reply(self.id)
        self.kernel.until(lambda: self._is_idle(), f"idle of {self.id}")
        status = reply["content"]["status"]
        assert status == ("error" if fails else "ok"), "\n".join(
            reply["content"].get("traceback", [])
        )
        return self

    def _is_idle(self) -> bool:
        return any(each["content"]["execution_state"] == "idle" for each in self.messages("status"))

    def messages(self, *types: str) -> list[Message]:
        """Return the IOPub messages that belong to this cell."""
        return [
            each
            for each in self.kernel.seen()
            if each["parent_header"].get("msg_id") == self.id
            and (not types or each["msg_type"] in types)
        ]

    @property
    def text(self) -> str:
        """What was printed under it so far."""
        return "".join(each["content"]["text"] for each in self.messages("stream"))

    @property
    def shown(self) -> str:
        """The plain text of displays and results under it."""
        found = self.messages("display_data", "execute_result")
        return "\n".join(each["content"]["data"].get("text/plain", "") for each in found)

    @property
    def error(self) -> str:
        """Tracebacks under it."""
        return "\n".join("\n".join(each["content"]["traceback"]) for each in self.messages("error"))

    def until_text(self, part: str) -> Cell:
        """Wait until something was printed under it."""
        self.kernel.until(lambda: part in self.text, f"{part!r} under its cell")
        return self


class Kernel:
    """A kernel process and a client, with IOPub read on a thread.

    Speaks to the sockets itself: jupyter_client's blocking calls leave event loops behind.
    """

    def __init__(self, version: str, folder: Path) -> None:
        self.version = version
        self.folder = folder
        env = dict(os.environ)
        if version != "installed":
            env["PYTHONPATH"] = os.pathsep.join([str(side_install(version)), env["PYTHONPATH"]])
        path, _ = write_connection_file(str(folder / f"kernel-{version}.json"))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ipykernel_launcher", "--log-level=ERROR", "-f", path],
            cwd=folder,
            env=env,
            stdout=subprocess.DEVNULL,
        )
        self.client = BlockingKernelClient(connection_file=path)
        self.client.load_connection_file()
        self.client.start_channels(hb=False, stdin=False)
        self._seen: list[Message] = []
        self._replies: dict[str, Message] = {}
        self._news = threading.Condition()
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._await_start()

    def _await_start(self) -> None:
        # IOPub is connected when a status comes through it, not before.
        deadline = time.monotonic() + LIMIT_S
        while not any(each["msg_type"] == "status" for each in self.seen()):
            assert time.monotonic() < deadline and self.is_alive(), "the kernel did not start"
            self.reply(self.client.kernel_info())

    def close(self) -> None:
        """Shut it down as a front end does; it has to end by itself."""
        if self.is_alive():
            self.client.control_channel.send(
                self.client.session.msg("shutdown_request", {"restart": False})
            )
        try:
            self.process.wait(LIMIT_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._over.set()
            self._reader.join(LIMIT_S)
            self.client.stop_channels()
            self.client.context.term()

    def is_alive(self) -> bool:
        """Whether the process lives."""
        return self.process.poll() is None

    def _read(self) -> None:
        socket = self.client.iopub_channel.socket
        while True:
            if not socket.poll(50):
                if self._over.is_set():
                    return
                continue
            _, message = self.client.session.recv(socket, mode=0)
            with self._news:
                self._seen.append(message)
                self._news.notify_all()

    def seen(self) -> list[Message]:
        """Return all IOPub messages so far."""
        with self._news:
            return list(self._seen)

    def until(self, done: Callable[[], Any], what: str) -> None:
        """Wait until `done()`, looked at after each IOPub message."""
        deadline = time.monotonic() + LIMIT_S
        while not done():
            with self._news:
                if not self._news.wait(min(1.0, max(0.0, deadline - time.monotonic()))):
                    assert time.monotonic() < deadline, f"{what} did not come"
                    assert self.is_alive(), f"the kernel died before {what}"

    def reply(self, msg_id: str) -> Message:
        """Wait for the shell reply to a request."""
        socket = self.client.shell_channel.socket
        deadline = time.monotonic() + LIMIT_S
        while msg_id not in self._replies:
            assert time.monotonic() < deadline, f"no reply to {msg_id}"
            assert self.is_alive(), "the kernel died"
            if socket.poll(500):
                _, message = self.client.session.recv(socket, mode=0)
                self._replies[message["parent_header"].get("msg_id", "")] = message
        return self._replies[msg_id]

    def execute(self, code: str, *, allow_stdin: bool = True) -> Cell:
        """Send a cell; returns at once."""
        return Cell(self, self.client.execute(code, allow_stdin=allow_stdin))

    def run(self, code: str, *, allow_stdin: bool = True, fails: bool = False) -> Cell:
        """Run a cell to its end."""
        return self.execute(code, allow_stdin=allow_stdin).wait(fails=fails)

    def value(self, expression: str) -> str:
        """Evaluate an expression and return its repr."""
        cell = self.run(f"print(repr({expression}), end='')")
        self.until(lambda: cell.text, f"the value of {expression}")
        return cell.text

    def send_comm(self, comm_id: str, data: dict[str, Any], *, kind: str = "comm_msg") -> str:
        """Send a comm message to the main shell, as a front end without subshells does.

        Returns its id.
        """
        content: dict[str, Any] = {"comm_id": comm_id, "data": data}
        if kind == "comm_open":
            content["target_name"] = "test"
        message = self.client.session.msg(kind, content)
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def interrupt(self) -> None:
        """Press the interrupt button."""
        self.process.send_signal(signal.SIGINT)
