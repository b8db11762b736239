"""A front end without a screen: speaks the kernel protocol, runs cells, and talks to widgets."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import nbformat
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import AsyncKernelManager
from nbformat.v4 import output_from_msg

Message = dict[str, Any]
START_S = 120.0


class CellError(Exception):
    """A cell raised; the message is its traceback."""


class KernelClient:
    """One kernel and its front end. Use as an async context manager.

    Attributes
    ----------
    widgets : dict
        State of each widget model that the kernel opened, by comm id.
    on_widget : callable or None
        Called with (comm id, content, buffers) of each custom message from a widget.
    """

    def __init__(self, folder: Path, *, env: dict[str, str] | None = None) -> None:
        self.widgets: dict[str, dict[str, Any]] = {}
        self.on_widget: Callable[[str, dict[str, Any], list[bytes]], None] | None = None
        self._folder = folder
        self._env = {**os.environ, **(env or {})}
        self._manager = AsyncKernelManager(kernel_name="python3")
        self._client: AsyncKernelClient | None = None
        self._subshell: str | None = None
        self._reader: asyncio.Task[None] | None = None
        # By the id of the message that asked: where outputs go, and whether it is done.
        self._outputs: dict[str, list[Any]] = {}
        self._idle: dict[str, asyncio.Event] = {}

    @property
    def client(self) -> AsyncKernelClient:
        """The channels of the running kernel."""
        assert self._client is not None, "the kernel is not running; use `async with`"
        return self._client

    async def __aenter__(self) -> Self:
        await self._manager.start_kernel(
            cwd=str(self._folder),
            env=self._env,
            # Else the newest ipykernel warns that loopback is not encrypted.
            extra_arguments=["--log-level=ERROR"],
        )
        self._client = self._manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=START_S)
        self._reader = asyncio.create_task(self._read())
        await self._open_subshell()
        return self

    async def __aexit__(self, *_: object) -> None:
        # First in good order, so that runs write their last rows.
        await self._manager.shutdown_kernel()
        self.client.stop_channels()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)

    # ------------------------------------------------------------------------------- ask

    async def execute(self, code: str, outputs: list[Any], *, limit_s: float = 900.0) -> None:
        """Run a cell; its outputs land in ``outputs``, late ones of its threads too.

        Raises
        ------
        CellError
            If the cell raised.
        TimeoutError
            If it ran longer than ``limit_s`` seconds, or the kernel died in it.
        """
        # A front end that can ask a person lets the kernel ask; nbclient and its like do not.
        asked = self.client.execute(code, store_history=True, allow_stdin=True)
        self._outputs[asked] = outputs
        self._idle[asked] = asyncio.Event()
        async with asyncio.timeout(limit_s):
            reply = await self._reply(asked)
            idle = asyncio.create_task(self._idle[asked].wait())
            assert self._reader is not None
            await asyncio.wait({idle, self._reader}, return_when=asyncio.FIRST_COMPLETED)
            if self._reader.done():  # it never ends by itself: show what went wrong in it
                self._reader.result()
        if reply["content"]["status"] == "error":
            raise CellError("\n".join(reply["content"]["traceback"]))

    def send(self, widget: str, content: dict[str, Any]) -> None:
        """Send a custom message to a widget, beside whatever cell is running."""
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": widget, "data": data})
        if self._subshell is not None:
            message["header"]["subshell_id"] = self._subshell
        self.client.shell_channel.send(message)

    async def _open_subshell(self) -> None:
        """Ask for a thread beside the cells, as JupyterLab does; ipykernel 6 has none."""
        request = self.client.session.msg("create_subshell_request", {})
        features = (await self._kernel_info())["content"].get("supported_features", [])
        if "kernel subshells" not in features:
            return
        self.client.control_channel.send(request)
        while True:
            reply = await self.client.get_control_msg(timeout=START_S)
            if reply["parent_header"].get("msg_id") == request["header"]["msg_id"]:
                self._subshell = reply["content"]["subshell_id"]
                return

    async def _kernel_info(self) -> Message:
        return await self._reply(self.client.kernel_info())

    async def _reply(self, asked: str) -> Message:
        while True:
            reply: Message = await self.client.get_shell_msg(timeout=None)
            if reply["parent_header"].get("msg_id") == asked:
                return reply

    # ------------------------------------------------------------------------------ hear

    async def _read(self) -> None:
        while True:
            message = await self.client.get_iopub_msg(timeout=None)
            kind, content = message["msg_type"], message["content"]
            asked = message["parent_header"].get("msg_id", "")
            match kind:
                case "status" if content["execution_state"] == "idle" and asked in self._idle:
                    self._idle[asked].set()
                case "comm_open" if content["target_name"] == "jupyter.widget":
                    self.widgets[content["comm_id"]] = content["data"].get("state", {})
                case "comm_msg":
                    self._hear_widget(content, message["buffers"])
                case "update_display_data":
                    self._update_display(content)
                case "stream" | "display_data" | "execute_result" | "error":
                    self._add_output(self._outputs.get(asked), message)

    def _hear_widget(self, content: Message, buffers: list[Any]) -> None:
        widget, data = content["comm_id"], content["data"]
        if data.get("method") == "update":
            self.widgets.setdefault(widget, {}).update(data["state"])
        elif data.get("method") == "custom" and self.on_widget is not None:
            self.on_widget(widget, data["content"], [bytes(buffer) for buffer in buffers])

    def _update_display(self, content: Message) -> None:
        wanted = content["transient"]["display_id"]
        for outputs in self._outputs.values():
            for output in outputs:
                if output.get("transient", {}).get("display_id") == wanted:
                    output["data"] = nbformat.from_dict(content["data"])
                    output["metadata"] = nbformat.from_dict(content["metadata"])

    @staticmethod
    def _add_output(outputs: list[Any] | None, message: Message) -> None:
        if outputs is None:
            return
        output = output_from_msg(message)
        last = outputs[-1] if outputs else None
        if output.output_type == "stream" and last and last.get("name") == output.name:
            last["text"] += output.text
            return
        display_id = message["content"].get("transient", {}).get("display_id")
        if display_id:  # kept for updates; taken out before the notebook is written
            output["transient"] = {"display_id": display_id}
        outputs.append(output)
