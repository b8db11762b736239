"""Rows of the journal, as messages of the first Interactive Training release."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import orjson
from starlette.websockets import WebSocket

from it2nb.core.strict import strict
from it2nb.core.wire import new_id
from it2nb.server import legacy_views
from it2nb.server.legacy_commands import COMMANDS
from it2nb.server.serving import Serving

if TYPE_CHECKING:
    from it2nb.server.legacy import Command

TYPES = frozenset({"action_result", "action_submitted", "checkpoint_saved", "metrics"})
#: Commands whose text is kept until their result is there.
KEPT = 2_000


class Messages:
    """Tells clients of the first release what happens. The loop's thread only."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._asked: OrderedDict[str, Command] = OrderedDict()

    def remember(self, action_id: str, command: Command) -> None:
        """Keep a command, whose text goes back with its result."""
        self._asked[action_id] = command
        while len(self._asked) > KEPT:
            self._asked.popitem(last=False)

    async def write(self, socket: WebSocket, position: int) -> None:
        """Send what happens from row `position` on."""
        serving = self._serving
        while True:
            stroke = serving.bell.next
            chunk = serving.feed.only(position, TYPES)
            began = time.thread_time()
            async with asyncio.timeout(serving.limits.stalled_s):
                for line in chunk.lines:
                    for message in self.told(orjson.loads(line)):
                        text = orjson.dumps(message).decode()
                        await socket.send({"type": "websocket.send", "text": text})
            if chunk.lines:
                await serving.breathe(began)
            elif serving.feed.is_closed and chunk.next >= serving.feed.next_seq:
                await socket.close(1000, "the run is over")
                return
            elif chunk.next == position:
                await serving.any_of(stroke)
            position = chunk.next

    def told(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the messages that a row becomes."""
        payload = row["payload"]
        match row["type"]:
            case "metrics":
                yield self._log(row)
            case "action_submitted" if payload.get("id") in self._asked:
                yield _message(self._asked[payload["id"]], "pending")
            case "action_result":
                yield from self._result(row)
            case "checkpoint_saved":
                args = legacy_views.checkpoint(payload)
                yield _plain("checkpoint_info_update", args, new_id(), row["ts"])

    def _log(self, row: dict[str, Any]) -> dict[str, Any]:
        point = {
            "local_step": row["step"],
            "wall_time": row["ts"],
            "branch_id": legacy_views.branch_name(row["branch_id"]),
            "metrics": {**row["payload"], "global_step": row["step"]},
        }
        return _plain("log_update", point, new_id(), row["ts"])

    def _result(self, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        result = row["payload"]
        command = COMMANDS.get(result["type"])
        asked = self._asked.get(result["id"])
        if asked is None and command is None:
            return
        status = "success" if result["ok"] else "failed"
        args = _settings(result) if result["ok"] else None
        if asked is None:
            yield _plain(command or "", args or {}, result["id"], row["ts"], status)
            return
        message = _message(asked, status)
        if not result["ok"]:
            message["error"] = result["reason"] or result["error"]
        elif asked.command == "update_optimizer" and args:
            message["args"] = _dumps(args)
        elif asked.command == "load_checkpoint":
            branch = self._serving.session.branches[-1]
            given = orjson.loads(asked.args or "{}")
            given["branch_info"] = legacy_views.branch_info(branch, row["ts"])
            message["args"] = _dumps(given)
        yield message


def _settings(result: dict[str, Any]) -> dict[str, Any] | None:
    """Return the values that hold after a change, which need not be those asked for."""
    if result["type"] == "set_knob":
        return {str(result["name"]): {"value": result["after"]}}
    if result["type"] == "batch" and isinstance(result["data"], list):
        return {each["name"]: {"value": each["after"]} for each in result["data"]}
    return None


def _message(command: Command, status: str) -> dict[str, Any]:
    return {**command.model_dump(), "status": status}


def _plain(
    command: str, args: dict[str, Any], uuid: str, at: float, status: str = "success"
) -> dict[str, Any]:
    return {"status": status, "command": command, "args": _dumps(args), "uuid": uuid, "time": at}


def _dumps(value: Any) -> str:
    return orjson.dumps(strict(value)[0]).decode()
